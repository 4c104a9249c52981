// Topologies for tests of the planner's door, from the graphs of the other tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/graphs.h"
#include "topocoll/topology.h"

namespace topocoll::testing {

/// Ranks become GPUs, in the order of ranks.
inline Topology topology_of(const Graph& graph) {
  Topology topology;
  for (const int node : graph.rank_nodes) {
    topology.nodes.push_back({graph.nodes[static_cast<std::size_t>(node)].id, NodeKind::kGpu});
  }
  for (const GraphNode& node : graph.nodes) {
    if (node.rank < 0) topology.nodes.push_back({node.id, NodeKind::kSwitch});
  }
  for (const GraphLink& link : graph.links) {
    TopologyEdge edge{graph.nodes[static_cast<std::size_t>(link.from)].id,
                      graph.nodes[static_cast<std::size_t>(link.to)].id,
                      "link",
                      {},
                      {}};
    edge.bandwidth_gbps.declared = graph.gbps(static_cast<double>(link.capacity));
    edge.latency_ns.measured = link.latency_ns;
    topology.edges.push_back(edge);
  }
  return topology;
}

/// The same machine as it looks when devices are enumerated in another order.
inline Topology enumerated_otherwise(Topology topology, std::uint64_t seed) {
  Random random(seed);
  const auto shuffle = [&](auto& list) {
    for (int i = static_cast<int>(list.size()) - 1; i > 0; --i) {
      std::swap(list[static_cast<std::size_t>(i)],
                list[static_cast<std::size_t>(random.below(i + 1))]);
    }
  };
  shuffle(topology.nodes);
  shuffle(topology.edges);
  return topology;
}

}  // namespace topocoll::testing
