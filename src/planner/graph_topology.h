// From the machine's Topology to the planner's Graph.
//
//   Result<Graph> graph = graph_from_topology(topology, {});      // the ranks are all GPUs
//
// Bandwidths are those that were measured, else those that are declared (a Graph puts the former on
// a grid of 1 %). An edge whose bandwidth nobody knows is no link: unknown is neither 0 nor
// unlimited. Only where the tree says that something is part of a NUMA node, a bridge or an
// adapter, and gives no figure, both are taken as one place. Between NUMA nodes and packages a
// figure is needed. Tree edges are links both ways.
//
// What a probe of GPUs found goes before what is declared. A GPU with a link to an inferred switch
// (is_inferred()) stands there and not where the tree has it. A direct link between two ranks whose
// "transfer" has a fault is no link.
//
// Thread rule: free functions on values. Failure rule: if ranks cannot reach each other, the error
// names the edges that were left out; if a way with a fault leads through switches, the pair and
// what to do.
#pragma once

#include <string>
#include <vector>

#include "planner/graph.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

/// `ranks`: ids of nodes, in the order of ranks; empty: all GPUs in the topology's order.
Result<Graph> graph_from_topology(const Topology& topology, const std::vector<std::string>& ranks);

}  // namespace topocoll
