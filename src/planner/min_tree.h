// The cheapest spanning tree away from a root in a directed graph (Y. Chu and T. Liu, 1965; J.
// Edmonds, 1967), and the cheapest paths between ranks through switches.
//
//   std::vector<int> parent = cheapest_tree(cost, n, root);    // parent[root] = -1
//
// Ties go to the lowest index, so that equal inputs give equal trees.
// Thread rule: free functions on values. Failure rule: nothing fails; a vertex that no tree reaches
// makes the result empty.
#pragma once

#include <limits>
#include <vector>

#include "planner/graph.h"

namespace topocoll {

inline constexpr double kNoArc = std::numeric_limits<double>::infinity();

/// `cost[a * n + b]` of the arc from a to b, kNoArc where there is none. O(n^3).
std::vector<int> cheapest_tree(const std::vector<double>& cost, int n, int root);

/// For every ordered pair of ranks the path through switches with the least sum of prices, then of
/// links.
struct RankPaths {
  std::vector<double> cost;            ///< ranks * ranks, kNoArc where only ranks lead there
  std::vector<std::vector<int>> path;  ///< of Graph::links, in the same order
};
RankPaths cheapest_paths(const Graph& graph, const std::vector<double>& link_price);

}  // namespace topocoll
