// Tree packings: which trees carry which share of an all-gather, reduce-scatter, broadcast or
// reduce.
//
//   Result<Packing> packing = pack_allgather(graph);
//   packing->algbw                                // equals allgather_bound(graph)->algbw
//   Status proof = check_packing(graph, *packing);
//
// Made by edge splitting (split.h) and arborescence packing (arborescence.h), the way of L. Zhao et
// al., "ForestColl: Throughput-Optimal Collective Communications on Heterogeneous Network Fabrics"
// (2024), on capacitated links: a tree's weight stands for that many unit trees. What is proved:
// without shared groups, and where every switch gives out what it takes in, the packing reaches the
// bound exactly, for any links between ranks. Where a switch is unequal, the packing is the best
// that trimming finds to 1/256 of the bound; with shared groups a group's capacity is first divided
// among its members in proportion. In these cases the gap to the bound is what remains to be
// printed. Thread rule: free functions on values. Failure rule: what 64-bit numbers cannot hold is
// kUnsupported.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/graph.h"
#include "planner/rational.h"
#include "topocoll/status.h"

namespace topocoll {

/// One transfer of a tree, between two ranks, through switches only.
struct Hop {
  int from = 0;  ///< ranks; data goes from `from` to `to`
  int to = 0;
  std::vector<int> path;  ///< of Graph::links, in order
  friend bool operator==(const Hop&, const Hop&) = default;
};

struct Tree {
  int root = 0;
  std::int64_t weight = 0;  ///< in Packing::weight_rate
  /// Away from the root: parents before children. Toward it: children before parents.
  std::vector<Hop> hops;
  friend bool operator==(const Tree&, const Tree&) = default;
};

struct Packing {
  bool toward_root = false;  ///< reduce-scatter, reduce
  std::vector<Tree> trees;   ///< by root, then by falling weight
  Rational weight_rate;      ///< what weight 1 carries, in GB/s
  Rational algbw;            ///< GB/s of the whole message
};

/// All ranks are roots of equal weight.
Result<Packing> pack_allgather(const Graph& graph);
Result<Packing> pack_reduce_scatter(const Graph& graph);
/// One root; algbw is its whole rate.
Result<Packing> pack_broadcast(const Graph& graph, int root);
Result<Packing> pack_reduce(const Graph& graph, int root);
/// Trees away from roots of different weights (`blocks` of each rank, 0: no root); algbw is the sum
/// of all roots' rates.
Result<Packing> pack_weighted(const Graph& graph, const std::vector<std::int64_t>& blocks);

/// Whether all trees span the ranks in the order that Tree::hops promises, every path exists and
/// passes switches only, and no link or group carries more than its capacity. Knows nothing of how
/// packings are made.
Status check_packing(const Graph& graph, const Packing& packing);

/// Weight that each link carries. Of a packing whose paths exist.
std::vector<std::int64_t> link_loads(const Graph& graph, const std::vector<Tree>& trees);

}  // namespace topocoll
