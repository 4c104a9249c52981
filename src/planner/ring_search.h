// The three methods behind best_ring(); see rings.h for what each guarantees.
// Thread rule: free functions on values. Failure rule: an empty order means that there is no ring
// or that none was found.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/rings.h"
#include "planner/routes.h"

namespace topocoll {

/// Highest rate of a ring if each hop had all resources of its route to itself: an upper bound, and
/// the rate itself where hops are independent. n <= kMaxExactRing. 0: no ring exists.
double solo_rate_bound(const Routes& routes);

/// The exact method for independent hops, `rate` being solo_rate_bound() > 0.
std::vector<int> least_skew_ring(const Routes& routes, double rate);

struct BranchResult {
  std::vector<int> order;
  bool rate_is_proved = false;
  bool skew_is_proved = false;
};
/// Branch and bound for shared resources. `start` (or empty) is an order to improve on;
/// `upper_bound` a rate that no ring exceeds.
BranchResult branch_and_bound_ring(const Routes& routes, const std::vector<int>& start,
                                   double upper_bound, std::int64_t max_nodes);

/// Local search, for any size.
std::vector<int> local_search_ring(const Routes& routes, std::int64_t max_moves);

}  // namespace topocoll
