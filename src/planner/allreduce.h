// All-reduce by trees: pairs of a tree toward a root and one away from it, each pair with a share
// of the message.
//
//   Result<AllReduceTrees> trees = pack_allreduce(graph, {});
//   trees->algbw, trees->upper              // GB/s reached, and proved not to be exceeded by any
//   pairs
//
// Chunks flow through a pair without waiting for other chunks, so links carry reductions and
// results at once, and roots may have any weights: on partial and degraded machines this beats a
// reduce-scatter followed by an all-gather (docs/planning.md). The best weights are a linear
// program with one column for each pair of trees and one row for each link and shared group.
// Columns are generated: for the prices (duals) of the rows the best pair is the cheapest tree each
// way, over the cheapest paths through switches. The first columns are the trees of the
// reduce-scatter and all-gather packings, so the result is never below these. What is proved: for
// any prices y, no set of pairs exceeds (sum of capacity * y) / (price of the cheapest pair);
// `upper` is the least such value seen, and the bound of bound.h if that is lower. Prices are
// smoothed between iterations (P. Wentges, 1997). With more ranks than AllReduceOptions::most_ranks
// only the first columns are used. Thread rule: free functions on values. Failure rule: errors of
// the packings and of the simplex method.
#pragma once

#include <vector>

#include "planner/emit.h"
#include "planner/graph.h"
#include "topocoll/status.h"

namespace topocoll {

struct AllReduceOptions {
  double gap = 0.004;    ///< stop when algbw is this close to upper (a fraction)
  int iterations = 400;  ///< of column generation at most
  int most_ranks = 40;   ///< beyond these no columns are generated
};

struct AllReduceTrees {
  std::vector<TreePair> pairs;  ///< weights in GB/s, by falling weight
  double algbw = 0;             ///< GB/s; no link carries more than its capacity
  double upper = 0;             ///< GB/s
  int iterations = 0;
};

Result<AllReduceTrees> pack_allreduce(const Graph& graph, const AllReduceOptions& options = {});

}  // namespace topocoll
