// Simulator: runs a plan over a graph in model time.
//
//   Routes routes(graph);
//   SimulationResult r = *simulate(plan, graph, routes, CostModel::declared(), {.bytes = 1 << 20});
//   r.time_ns, r.spread_ns, routes.resource_name(r.bottleneck)
//
// Model. A plan's rank r is the graph's rank r. A channel takes the path that Plan::routes gives
// it, else the one of Routes. Within a rank a step waits for what it needs and for nothing else:
// for the steps that wrote its sources, for those that still use its target, and for earlier
// messages of its FIFO (peer and channel). A signal waits for all earlier steps of the rank, a wait
// holds up all later ones. A FIFO moves one message at a time: alpha and the route's latency, then
// its bytes at the rate of max-min fair sharing among all messages under way on each trunk and
// shared group (fair_share.h). Copies and reductions take model time but share no resource. The
// message is cut into `windows`; window w + 1 runs each step after window w did, and window w +
// slots starts on a rank when window w is done there. Message bytes M: all_reduce, reduce,
// broadcast: the vector; all_gather, gather: the whole output; reduce_scatter, scatter, all_to_all:
// the whole input of a rank that has one. All chunks are equal. Event driven and deterministic;
// events within 1e-12 of each other count as simultaneous. Cost: O((steps * windows) log + flows
// that share a resource with a change). Source: the flow model of Casanova et al. (SimGrid, 2014).
// Do not expect small messages to the nanosecond. Thread rule: a free function on values. Failure
// rule: kInvalidArgument for options that make no sense, a plan of other size than the graph or one
// that cannot end; kUnsupported where two ranks that talk have no route (names both). Only for a
// plan that verifies.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cost.h"
#include "planner/graph.h"
#include "planner/routes.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

struct SimulationOptions {
  double bytes = 0;  ///< M above
  int windows = 1;
  int slots = 4;                 ///< windows under way at once, at least 1
  std::vector<double> start_ns;  ///< when each rank enters (stragglers); empty: all at 0
};

struct SimulationResult {
  double time_ns = 0;                  ///< from 0 to the end of the last rank
  std::vector<double> finish_ns;       ///< of each rank
  double spread_ns = 0;                ///< latest minus earliest finish
  std::vector<double> resource_bytes;  ///< payload bytes by resource of Routes
  int bottleneck = -1;          ///< resource with the longest time at capacity; -1: no message
  double bottleneck_share = 0;  ///< that time / time_ns
  std::int64_t messages = 0;

  /// M / time in GB/s.
  [[nodiscard]] double algbw_gbps(double bytes) const { return time_ns > 0 ? bytes / time_ns : 0; }
};

/// Bytes of one chunk of the plan for a message of M bytes in one window.
[[nodiscard]] double chunk_bytes(const Plan& plan, double bytes);

Result<SimulationResult> simulate(const Plan& plan, const Graph& graph, const Routes& routes,
                                  const CostModel& model, const SimulationOptions& options);

}  // namespace topocoll
