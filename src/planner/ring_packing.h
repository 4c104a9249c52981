// Ring packing: many rings at once, each carrying a part of the message, so that together they use
// what a single ring leaves idle.
//
//   RingChannels c = *round_rings(routes, 8);     // at most 8 rings of equal rate
//
// A ring may occur several times, and the sum of rates is as large as possible. For each candidate
// rate (a capacity over a whole number) it is the integer packing of rings into whole capacities,
// depth first with the linear program of ring_columns.h as bound. The search is bounded; `exact`
// says whether the bound was reached. A single ring is always a candidate, so the result is never
// slower than best_ring().
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
