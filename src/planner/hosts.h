// Hosts of a machine that one graph describes: which nodes belong together, and which hosts are
// alike.
//
//   std::optional<HostSplit> split = split_hosts(graph);        // nothing: one host
//   HostClasses classes = classify(graph, *split);
//
// Hosts are what hangs together by links of a threshold and more: the least threshold that leaves
// several parts of equally many ranks, two or more each. Switches that touch one host only join it;
// the rest is the network. Alike are hosts with a one-to-one map of their nodes that keeps ranks,
// links, and ports to the same network nodes; by colour refinement (nodes get the colours of their
// neighbours until nothing changes) and then an exact search among nodes of equal colours. First
// with capacities; hosts that are alike without them differ in speed only. Thread rule: free
// functions on values. Failure rule: nothing fails; a search that takes too long finds no map.
#pragma once

#include <optional>
#include <vector>

#include "planner/graph.h"

namespace topocoll {

struct HostSplit {
  std::vector<std::vector<int>> hosts;  ///< nodes of each, ascending; hosts by their first rank
  std::vector<int> network;             ///< nodes of none
};
std::optional<HostSplit> split_hosts(const Graph& graph);

/// The nodes of `host` in the order of their partners in `model`, or nothing.
std::optional<std::vector<int>> map_host(const Graph& graph, const HostSplit& split, int model,
                                         int host, bool with_capacities);

struct HostClasses {
  /// Each host's nodes in the order of host 0's; empty: it is built in another way.
  std::vector<std::vector<int>> nodes;
  std::vector<int> class_of;  ///< of each host; hosts of a class have equal capacities too
  int classes = 0;
};
HostClasses classify(const Graph& graph, const HostSplit& split);

}  // namespace topocoll
