// Lanes of a cluster: which GPU sends on which rail, and which one receives there.
// A port on a GPU is its own lane; a port on a switch or adapter is shared by the nearest GPUs. On
// each rail a GPU's exit meets its own entrance first, the rest are paired in order. Thread rule:
// free functions on values. Failure rule: kUnsupported names a port that no GPU reaches through
// switches.
#pragma once

#include <vector>

#include "planner/hierarchy.h"

namespace topocoll {

Result<std::vector<Lane>> find_lanes(const Cluster& cluster);

/// The node's graph for trees: what lanes need of the links they pass is set aside. `link` is each
/// link's number in the cell.
struct TreeGraph {
  Graph graph;
  std::vector<int> link;
};
Result<TreeGraph> tree_graph(const Cluster& cluster, const std::vector<Lane>& lanes);

}  // namespace topocoll
