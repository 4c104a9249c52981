// Ring search: the order of ranks in which a single ring is fastest and, among those, least skewed.
//
//   Routes routes(graph);
//   RingResult ring = *best_ring(routes);
//   ring.order, graph.gbps(ring.cost.rate), ring.proof
//
// Orders are compared by RingCost: the highest rate first (its slowest resource under the ring's
// own load); then the smallest largest hop latency, the smallest sum of hop latencies, the smallest
// variance of hop latencies. A hop without a known latency counts as the largest known one.
// Methods:
// - hops load nothing in common (Routes::hops_are_independent) and n <= kMaxExactRing: threshold
//   search over rates, then over latencies, by subset dynamic programming, then the cheapest cycle
//   on (sum, sum of squares) of latencies rounded to the power of ten between 1/65535 and 1/6553 of
//   the largest hop: exact but for this rounding;
// - hops share resources and n <= kMaxExactRing: branch and bound over orders with the loads of the
//   partial order, rank 0 first, of interchangeable ranks the lower first; exact unless the limit
//   of visited nodes ends it, which `proof` says;
// - else: local search (segments moved, reversed) from several fixed starts; no guarantee but
//   upper_bound.
// Deterministic: the same routes give the same order. Thread rule: free functions on values.
// Failure rule: kUnsupported where no ring exists (exact) or none was found (heuristic), naming a
// rank without a way in or out if that is the reason.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/routes.h"
#include "topocoll/status.h"

namespace topocoll {

struct RingCost {
  double rate = 0;            ///< graph units; 0: a hop has no route
  double max_latency_ns = 0;  ///< of a hop
  double sum_latency_ns = 0;
  double latency_variance = 0;  ///< ns^2, of the hops
};

/// Whether `a` comes before `b`. Numbers that differ by less than 1e-9 of themselves are equal.
[[nodiscard]] bool better(const RingCost& a, const RingCost& b);

enum class RingProof : std::uint8_t {
  kExact,      ///< no order is better
  kRateExact,  ///< no order is faster; one of less skew may exist
  kHeuristic,  ///< the best that was found
};

struct RingResult {
  std::vector<int>
      order;  ///< all ranks, rank 0 first; each sends to the next, the last to the first
  RingCost cost;
  double upper_bound = 0;  ///< no ring has a higher rate, in graph units
  RingProof proof = RingProof::kHeuristic;
};

/// Cost of the closed order.
[[nodiscard]] RingCost ring_cost(const Routes& routes, std::span<const int> order);

/// `max_nodes` limits the branch and bound and the moves tried by the local search.
Result<RingResult> best_ring(const Routes& routes, std::int64_t max_nodes = 4'000'000);

}  // namespace topocoll
