// Bounds: what no plan on a graph can exceed, and the cut that says why.
//
//   Result<Bound> bound = allgather_bound(graph);
//   bound->algbw.to_string();                 // "1200/7": GB/s of the whole gathered message
//   bound->cut;                               // the nodes of S, see below
//
// algbw is message bytes over time, with the message as users count it: the gathered output of an
// all-gather, the input of a reduce-scatter or all-reduce, the root's buffer of a broadcast. Ranks
// copy and reduce, switches only forward.
//
// What is proved:
// - all-gather, reduce-scatter, no shared groups: if the ranks in S send to a rank outside S, |S|
//   blocks leave S, so algbw <= N B+(S) / |S|, with B+(S) the capacity that leaves S. The bound is
//   the minimum over all S and is exact: where switches give out what they take in (trees.h),
//   packings of trees reach it. Reduce-scatter: the same on the graph with all links turned round.
// - broadcast from r: the least max-flow from r to any rank (J. Edmonds, 1973).
// - all-reduce: (a) the result on one side of a cut depends on the inputs of the other, so the
//   whole message crosses every cut that separates two ranks; (b) cut the ranks into parts P1..Pk.
//   Until the first part knows an element of the result, k-1 messages about it have entered parts,
//   and k-1 more until all know it: algbw <= sum of B-(Pi) / 2(k-1); the same for what they give
//   out. Parts that are tried: single ranks, and what hangs together by links above a threshold.
// - With shared groups all values stay upper bounds (a cut's capacity counts no group above its own
//   capacity, and both directions of a cut together carry N blocks), but they need not be reached:
//   exact is false.
//
// Cost: N max-flows a round and one or two rounds; broadcast N max-flows a root.
// Thread rule: free functions on values.
// Failure rule: numbers that do not fit 64 bits are an error.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/graph.h"
#include "planner/rational.h"
#include "topocoll/status.h"

namespace topocoll {

struct Bound {
  Rational algbw;      ///< GB/s
  Rational rank_rate;  ///< algbw / ranks, in units of the graph's capacity
  bool exact =
      true;  ///< a packing reaches it where switches are balanced; else an upper bound only
  std::vector<int> cut;  ///< nodes of S, ascending: what leaves S limits the rate
};

/// All-gather; the bottleneck cut is the first that is found and is deterministic.
Result<Bound> allgather_bound(const Graph& graph);

/// Ranks that hold more than one block each: merged ones of a cluster's quotient (cluster_bound.h),
/// or the roots of trees of different rates. rank_rate is then the rate of one block.
struct RankBlocks {
  std::vector<std::int64_t> blocks;  ///< of each rank, 0 or more, at least one in all
  std::vector<int>
      receivers;  ///< ranks that must get all blocks; any that are not may stay without
};
Result<Bound> allgather_bound(const Graph& graph, const RankBlocks& ranks);
/// Reduce-scatter; what enters the cut limits the rate.
Result<Bound> reduce_scatter_bound(const Graph& graph);
/// Broadcast from one rank, in capacity units; reduce to it: the same on reversed().
std::int64_t broadcast_rate(const Graph& graph, int root);

/// The least max-flow from `root` to any rank, in capacity units, and the nodes on the root's side
/// of the cut that limits it.
struct LeastCut {
  std::int64_t units = 0;
  std::vector<bool> inside;
};
LeastCut least_cut(const Graph& graph, int root);

struct AllReduceBound {
  Rational upper;                     ///< GB/s, proved
  Rational reduce_scatter_allgather;  ///< GB/s, reached by a reduce-scatter and then an all-gather
  /// The part of each node; what passes between parts sets `upper`.
  std::vector<int> parts;
  bool one_cut = false;   ///< (a): two parts; else (b)
  bool gives_out = false;  ///< of (b): what parts give out, else what they take in
};
Result<AllReduceBound> allreduce_bound(const Graph& graph);

/// Capacity of the links that leave S = {nodes with inside[node]}; a shared group counts at most
/// its capacity.
std::int64_t leaving_capacity(const Graph& graph, const std::vector<bool>& inside);

/// Capacity of the links between S and the rest, both directions together, groups counted likewise.
std::int64_t crossing_capacity(const Graph& graph, const std::vector<bool>& inside);

/// Partitions of the nodes worth looking at, as a part number for each node: single nodes, and what
/// hangs together by fast links.
std::vector<std::vector<int>> partitions(const Graph& graph);
/// The parts that hold ranks, as sets of nodes.
std::vector<std::vector<bool>> parts_with_ranks(const Graph& graph, const std::vector<int>& parts);

/// The graph with every link turned round.
Graph reversed(const Graph& graph);

}  // namespace topocoll
