// From trees to plans: writes the steps of every rank, so that verify() proves what the packing
// promised.
//
//   Result<TreePlan> made = plan_from_packing(CollectiveKind::kAllGather, graph, packing, {});
//   made->plan                  // verifies; its routes fit the graph
//   made->algbw                 // GB/s after rounding weights to whole chunks
//
// Order. Hops of all trees are sorted into stages by depth; within a stage each rank first sends,
// then receives, in one order that all ranks share, so every FIFO is filled and emptied in the same
// order and nobody can wait for ever. A tree toward the root reduces own input first, then the
// children's partial sums by child rank, in the element type. An all-reduce is a tree toward the
// root and one away from it for each chunk. Channels. Each path between two ranks is a channel of
// its own, or several where asked for (channels.h), named in Plan::routes with their shares of the
// bandwidth. Thread rule: free functions on values. Failure rule: a plan beyond the limits of
// planner/steps.h is kUnsupported.
#pragma once

#include <string>
#include <vector>

#include "planner/exchange.h"
#include "planner/graph.h"
#include "planner/rounding.h"
#include "planner/trees.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

/// A tree toward the root and one away from it; `weight` is the share of the message they carry.
struct TreePair {
  double weight = 0;
  Tree in;   ///< children before parents
  Tree out;  ///< parents before children; the same root
};

struct TreePlan {
  Plan plan;
  double algbw = 0;  ///< GB/s that the most loaded link allows; 0 without a graph
  std::vector<int> chunks{};  ///< that each tree, or pair of trees, carries
};

/// Channels of a path at most, where paths have them in proportion to what they carry. Found by
/// trial: of 1,000 random machines all reach 90 % of the bound of an all-gather, and all but one or
/// two with 4, 6, 12 or 16.
inline constexpr int kPathChannels = 8;

/// all_gather, broadcast: trees away from the root; reduce_scatter, reduce: trees toward it.
Result<TreePlan> plan_from_packing(CollectiveKind kind, const Graph& graph, const Packing& packing,
                                   const RoundingLimits& limits = {}, int path_channels = 1);

/// all_reduce.
inline constexpr RoundingLimits kPairRounding{1024, 256, 0.9945};
Result<TreePlan> plan_from_pairs(const Graph& graph, const std::vector<TreePair>& pairs,
                                 const RoundingLimits& limits = kPairRounding,
                                 int path_channels = 1);

/// all_to_all along ways that may pass other ranks. Pieces are few, as each is a chunk of every block.
Result<TreePlan> plan_from_exchange(const Graph& graph, const Exchange& exchange,
                                    const RoundingLimits& limits = {16, 8, 0.99});

/// Whether the plan's routes exist in the graph and no link or group has to carry more than its
/// capacity.
Status check_routes(const Plan& plan, const Graph& graph);

}  // namespace topocoll
