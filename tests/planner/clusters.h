// Clusters for the planner's tests: the node of a fixture on a fabric.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/index.h"
#include "planner/cluster.h"
#include "planner/graphs.h"

namespace topocoll::testing {

/// The part of a graph whose ids begin with `prefix`.
inline Graph part_of(const Graph& graph, const std::string& prefix) {
  GraphDescription d;
  std::map<int, bool> inside;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!graph.nodes[n].id.starts_with(prefix)) continue;
    inside[static_cast<int>(n)] = true;
    d.nodes.push_back({graph.nodes[n].id, graph.nodes[n].rank >= 0, "node"});
  }
  for (const GraphLink& l : graph.links) {
    if (!inside.contains(l.from) || !inside.contains(l.to)) continue;
    d.links.push_back({graph.nodes[at(l.from)].id, graph.nodes[at(l.to)].id,
                       graph.gbps(static_cast<double>(l.capacity)), false, l.latency_ns, "link"});
  }
  Result<Graph> part = make_graph(d, "part");
  EXPECT_TRUE(part.ok()) << part.status().to_string();
  return part.ok() ? *part : Graph();
}

inline Graph node_of(const std::string& fixture) {
  return part_of(load_fixture(fixture).graph, "n0");
}

inline Fabric per_gpu(double gbps, int rails = 1) {
  Fabric fabric;
  fabric.gbps_per_gpu = gbps;
  fabric.rails = rails;
  return fabric;
}

inline Fabric below_leaves(Fabric fabric, int nodes_per_leaf, double oversubscription = 1,
                           bool joins = false) {
  fabric.nodes_per_leaf = nodes_per_leaf;
  fabric.oversubscription = oversubscription;
  fabric.spine_joins_rails = joins;
  return fabric;
}

inline Fabric p4d_fabric() {
  Fabric fabric;
  for (int s = 0; s < 4; ++s) fabric.ports.push_back({"n0sw" + std::to_string(s), 0, 12.5, 12.5});
  return fabric;
}

/// TE-CCL's DGX-2 pair: odd GPUs send, even ones receive, eight ways.
inline Fabric relay_fabric() {
  Fabric fabric;
  fabric.rails = 8;
  for (int r = 0; r < 8; ++r) {
    fabric.ports.push_back({"n0g" + std::to_string(2 * r + 1), r, 12.5, 0});
    fabric.ports.push_back({"n0g" + std::to_string(2 * r), r, 0, 12.5});
  }
  return fabric;
}

inline Cluster cluster_of(const Graph& node, const Fabric& fabric, int nodes) {
  Result<Cluster> cluster = make_cluster(node, fabric, nodes);
  EXPECT_TRUE(cluster.ok()) << cluster.status().to_string();
  return cluster.ok() ? *cluster : Cluster();
}

/// Every recorded machine of several equal nodes, as node, fabric and number.
struct RecordedCluster {
  std::string fixture;
  Fabric fabric;
  int nodes = 2;
};
inline std::vector<RecordedCluster> recorded_clusters() {
  return {{"hgxh100_x2_rail8", per_gpu(50, 8), 2},
          {"hgxh100_x2_flat", per_gpu(50), 2},
          {"dgxa100_x2", per_gpu(25, 2), 2},
          {"dgxa100_x4", per_gpu(25, 2), 4},
          {"mi250_2x16", per_gpu(16), 2},
          {"mi250_2x8", per_gpu(16), 2},
          {"p4d_x2", p4d_fabric(), 2},
          {"dgx2_x2_relay", relay_fabric(), 2}};
}

}  // namespace topocoll::testing
