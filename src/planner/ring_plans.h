// Plans along rings: who sends what when each rank passes chunks on to its neighbour.
//
//   Plan p = *make_ring_plan(CollectiveKind::kAllReduce, {{0, 3, 2, 1}, {0, 1, 2, 3}}, 0);
//
// One ring is one channel; the message is cut evenly among them. With n ranks:
//   all_reduce      n - 1 steps reduce-scatter, n - 1 steps all-gather; Plan::chunks = n per ring
//   reduce_scatter  n - 1 steps; the block of rank r starts at r's successor and ends at r
//   all_gather      n - 1 steps; the block of rank r starts at r
//   broadcast       a chain from the root along the ring: pipelined by the executor's windows
//   reduce          a chain from the root's successor to the root
// all_gather and reduce_scatter cut each rank's block into one chunk per ring.
// Partial sums are evaluated along the ring, in the order in which ranks are passed: the same on
// all ranks and every run. Scratch: 2 chunks per ring where something is reduced. Sources:
// Patarasuk and Yuan 2009 (ring), Thakur, Rabenseifner and Gropp 2005. Thread rule: a free function
// on values. Failure rule: kInvalidArgument for orders that are no permutations of the same ranks;
// kUnsupported for other kinds.
#pragma once

#include <vector>

#include "planner/graph.h"
#include "planner/routes.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

/// `orders`: one ring per channel, 1 to 64; each lists ranks 0..n-1 once, in the direction of
/// sending.
Result<Plan> make_ring_plan(CollectiveKind kind, const std::vector<std::vector<int>>& orders,
                            int root);

/// Names in Plan::routes the way of every channel of the plan through the graph, each with a share
/// of `gbps` on its links. kUnsupported for two ranks that talk and have no route.
Status set_routes(Plan& plan, const Graph& graph, const Routes& routes, double gbps);

}  // namespace topocoll
