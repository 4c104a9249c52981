// Ring packing: many rings at once, each carrying a part of the message, so that together they use
// what a single ring leaves idle.
//
//   RingPacking p = *pack_rings(routes);          // fractional: rings with rates, sum p.rate
//   RingChannels c = *round_rings(routes, 8);     // at most 8 rings of equal rate
//
// pack_rings: the largest sum of rates such that no resource carries more than its capacity, by
// column generation: a linear program over the rings found so far, whose dual prices make the next
// ring the cheapest Hamiltonian cycle (Held-Karp). Exact for n <= kMaxExactRing: `upper_bound`
// (Lagrange: the value of the program over the price of the cheapest ring) meets `rate` to 1e-6.
// Beyond, rings are priced by local search (cycle_search.h) and `upper_bound` is the least capacity
// into or out of a rank.
//
// round_rings: rings of equal rate, a ring may occur several times, the sum of rates as large as
// possible. For each candidate rate (a capacity over a whole number) it is the integer packing of
// rings into whole capacities, depth first with the linear program as bound. The search is bounded;
// `exact` says whether the bound was reached. A single ring is always a candidate, so the result is
// never slower than best_ring().
//
// Determinism and threads as for rings.h. Failure rule: kUnsupported as best_ring(); kInternal from
// the solver.
#pragma once

#include <span>
#include <vector>

#include "planner/rings.h"
#include "planner/routes.h"
#include "topocoll/status.h"

namespace topocoll {

struct WeightedRing {
  std::vector<int> order;  ///< rank 0 first
  double rate = 0;         ///< graph units
};

struct RingPacking {
  std::vector<WeightedRing> rings;  ///< rates above 0, in the order they were found
  double rate = 0;                  ///< their sum
  double upper_bound = 0;           ///< of any packing of rings on these routes
  int iterations = 0;
};

Result<RingPacking> pack_rings(const Routes& routes);

struct RingChannels {
  std::vector<std::vector<int>> orders;  ///< one per channel
  double rate_each = 0;                  ///< graph units
  double upper_bound = 0;                ///< of the sum of rates of any such choice
  bool exact = false;                    ///< no choice of at most `channels` rings is faster

  [[nodiscard]] double rate() const { return rate_each * static_cast<double>(orders.size()); }
};

/// `channels` is 1 to 64.
Result<RingChannels> round_rings(const Routes& routes, int channels);
/// The same for several counts at the price of about one.
Result<std::vector<RingChannels>> round_rings(const Routes& routes, std::span<const int> counts);

}  // namespace topocoll
