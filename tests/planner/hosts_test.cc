#include "planner/hosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "planner/cluster_bound.h"
#include "planner/clusters.h"
#include "planner/emit.h"
#include "planner/folded.h"
#include "planner/host_order.h"
#include "planner/make_graphs.h"
#include "topocoll/planning.h"
#include "topocoll/topology_formats.h"

namespace topocoll {
namespace {

using namespace topocoll::testing;

/// The same graph with its nodes in another order, so that ranks of different hosts mix.
Graph shuffled(const Graph& graph, std::uint64_t seed) {
  GraphDescription d;
  for (const GraphNode& n : graph.nodes) d.nodes.push_back({n.id, n.rank >= 0, "node"});
  Random random(seed);
  for (std::size_t i = d.nodes.size(); i > 1; --i)
    std::swap(d.nodes[i - 1], d.nodes[at(random.below(static_cast<int>(i)))]);
  for (const GraphLink& l : graph.links) {
    d.links.push_back({graph.nodes[at(l.from)].id, graph.nodes[at(l.to)].id,
                       graph.gbps(static_cast<double>(l.capacity)), false, l.latency_ns, "link"});
  }
  return *make_graph(d, "shuffled");
}

TEST(Hosts, AreFoundInRecordedMachines) {
  for (const RecordedCluster& recorded : recorded_clusters()) {
    const Graph graph = load_fixture(recorded.fixture).graph;
    for (const Graph& g : {graph, shuffled(graph, 3)}) {
      const auto split = split_hosts(g);
      ASSERT_TRUE(split.has_value()) << recorded.fixture;
      ASSERT_EQ(split->hosts.size(), at(recorded.nodes)) << recorded.fixture;
      std::set<std::string> prefixes;
      for (const std::vector<int>& nodes : split->hosts) {
        std::set<std::string> of_host;
        for (const int n : nodes) of_host.insert(g.nodes[at(n)].id.substr(0, 2));
        EXPECT_EQ(of_host.size(), 1U) << recorded.fixture;
        prefixes.insert(*of_host.begin());
      }
      EXPECT_EQ(prefixes.size(), split->hosts.size());
      // TE-CCL's senders and receivers are linked directly: the port's partner tells hosts apart.
      if (recorded.fixture == "dgx2_x2_relay") continue;
      EXPECT_EQ(classify(g, *split).classes, 1) << recorded.fixture;
    }
  }
}

/// Blink's partial DGX-1V machines: of all subsets of 8 GPUs, classes of connected ones are known.
TEST(Hosts, CountBlinksClassesOfPartialMachines) {
  const Graph dgx1 = load_fixture("dgx1v_8xV100").graph;
  const int expected[] = {5, 14, 14, 10, 2, 1};  // of 3, 4, ... 8 GPUs
  for (int size = 3; size <= 8; ++size) {
    std::vector<Graph> classes;
    for (int set = 0; set < 256; ++set) {
      if (__builtin_popcount(static_cast<unsigned>(set)) != size) continue;
      // Two copies in one graph, the subset and a class's model, are the two hosts to compare.
      const auto subset = [&](int members) {
        GraphDescription d;
        for (int g = 0; g < 8; ++g) {
          if ((members >> g & 1) != 0) d.nodes.push_back({dgx1.rank_id(g), true, "node"});
        }
        for (const GraphLink& l : dgx1.links) {
          const int from = dgx1.nodes[at(l.from)].rank;
          const int to = dgx1.nodes[at(l.to)].rank;
          if ((members >> from & 1) != 0 && (members >> to & 1) != 0) {
            d.links.push_back({dgx1.rank_id(from), dgx1.rank_id(to),
                               dgx1.gbps(static_cast<double>(l.capacity)), false, std::nullopt,
                               "link"});
          }
        }
        return make_graph(d, "subset");
      };
      const auto graph = subset(set);
      if (!graph.ok()) continue;  // not connected
      const bool known = std::any_of(classes.begin(), classes.end(), [&](const Graph& model) {
        Graph both = model;
        HostSplit split{{{}, {}}, {}};
        for (std::size_t n = 0; n < model.nodes.size(); ++n)
          split.hosts[0].push_back(static_cast<int>(n));
        for (const GraphNode& n : graph->nodes) {
          split.hosts[1].push_back(static_cast<int>(both.nodes.size()));
          both.nodes.push_back({"b" + n.id, 0});
        }
        const auto shift = static_cast<int>(model.nodes.size());
        // Both are in GB/s: units differ where all links of one are double.
        const double scale = graph->unit.to_double() / model.unit.to_double();
        for (const GraphLink& l : graph->links) {
          both.links.push_back(
              {l.from + shift, l.to + shift,
               static_cast<std::int64_t>(static_cast<double>(l.capacity) * scale * 2),
               std::nullopt});
        }
        for (std::size_t l = 0; l < model.links.size(); ++l) both.links[l].capacity *= 2;
        return map_host(both, split, 0, 1, true).has_value();
      });
      if (!known) classes.push_back(*graph);
    }
    EXPECT_EQ(classes.size(), static_cast<std::size_t>(expected[size - 3])) << size << " GPUs";
  }
}

TEST(Hosts, MapsKeepEveryLink) {
  const Graph graph = shuffled(load_fixture("mi250_2x16").graph, 7);
  const auto split = split_hosts(graph);
  ASSERT_TRUE(split.has_value());
  const auto partners = map_host(graph, *split, 0, 1, true);
  ASSERT_TRUE(partners.has_value());
  std::map<int, int> partner;
  for (std::size_t i = 0; i < partners->size(); ++i) partner[split->hosts[0][i]] = (*partners)[i];
  std::map<std::pair<int, int>, std::int64_t> links;
  for (const GraphLink& l : graph.links) links[{l.from, l.to}] += l.capacity;
  for (const GraphLink& l : graph.links) {
    if (!partner.contains(l.from) || !partner.contains(l.to)) continue;
    EXPECT_EQ((links[{l.from, l.to}]), (links[{partner[l.from], partner[l.to]}]));
  }
}

TEST(Hosts, PlansOfFoldedMachinesVerifyOnTheMachine) {
  for (const char* name : {"hgxh100_x2_rail8", "dgxa100_x4", "mi250_2x8", "p4d_x2"}) {
    const Graph graph = shuffled(load_fixture(name).graph, 11);
    const auto folded = fold(graph);
    ASSERT_TRUE(folded.ok()) << name << ": " << folded.status().to_string();
    EXPECT_EQ(cluster_bound(folded->cluster, CollectiveKind::kAllGather, 0)->algbw,
              allgather_bound(graph)->algbw);
    for (const auto& [kind, shape] : {std::pair(CollectiveKind::kAllGather, NodeShape::kRing),
                                      {CollectiveKind::kReduceScatter, NodeShape::kRing},
                                      {CollectiveKind::kAllReduce, NodeShape::kRing},
                                      {CollectiveKind::kBroadcast, NodeShape::kChain}}) {
      const int root = 5;
      auto plan = plan_hierarchy(
          folded->cluster, {kind, shape, cluster_rank(*folded, graph, root), 0, folded->order});
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      const auto unfolded = unfold(*folded, graph, *plan);
      ASSERT_TRUE(unfolded.ok()) << unfolded.status().to_string();
      EXPECT_EQ(unfolded->root, has_root(kind) ? root : 0);
      const Status proof = verify(*unfolded);
      EXPECT_TRUE(proof.ok()) << name << ": " << proof.to_string();
      const Status routes = check_routes(*unfolded, graph);
      EXPECT_TRUE(routes.ok()) << name << ": " << routes.to_string();
    }
  }
}

TEST(Hosts, ASlowHostGivesTheTemplateItsCapacity) {
  const Cluster even = cluster_of(node_of("hgxh100_x2_rail8"), per_gpu(50, 8), 6);
  Graph graph = *flat_graph(even);
  graph.unit = *graph.unit.over(Rational(2));
  for (GraphLink& l : graph.links) {
    const std::string& from = graph.nodes[at(l.from)].id;
    const std::string& to = graph.nodes[at(l.to)].id;
    const bool slow = (from == "4/n0g3" && to == "rail3") || (from == "rail3" && to == "4/n0g3");
    if (!slow) l.capacity *= 2;
  }
  const auto folded = fold(graph);
  ASSERT_TRUE(folded.ok()) << folded.status().to_string();
  EXPECT_EQ(folded->classes.classes, 2);
  EXPECT_NE(folded->classes.class_of[4], folded->classes.class_of[0]);
  const auto slow = plan_hierarchy(
      folded->cluster, {CollectiveKind::kAllGather, NodeShape::kRing, 0, 1e9, folded->order});
  const auto fast = plan_hierarchy(even, {CollectiveKind::kAllGather, NodeShape::kRing, 0, 0, {}});
  ASSERT_TRUE(slow.ok() && fast.ok());
  // One of eight rails at half speed: 15/16 of the traffic still fits, not only half.
  EXPECT_GT(slow->algbw()->to_double(), 0.8 * fast->algbw()->to_double());
  const auto plan = unfold(*folded, graph, *slow);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(verify(*plan).ok());
  EXPECT_TRUE(check_routes(*plan, graph).ok());
}

TEST(Hosts, TheOrderAvoidsLongWays) {
  // Hosts 0, 2, 4 and 1, 3, 5 are near each other; between the groups each hop costs 10 us.
  GraphMaker maker(12);
  for (const char* leaf : {"even", "odd", "core"}) maker.node(leaf);
  for (int h = 0; h < 6; ++h) {
    maker.both(rank_name(2 * h), rank_name(2 * h + 1), 100);
    maker.both(rank_name(2 * h), h % 2 == 0 ? "even" : "odd", 10, 500);
  }
  maker.both("even", "core", 40, 5000).both("odd", "core", 40, 5000);
  const Graph graph = maker.make();
  const auto split = split_hosts(graph);
  ASSERT_TRUE(split.has_value());
  const auto order = order_hosts(graph, *split);
  ASSERT_TRUE(order.ok()) << order.status().to_string();
  int changes = 0;
  for (std::size_t i = 0; i < order->size(); ++i)
    changes += ((*order)[i] + (*order)[(i + 1) % order->size()]) % 2;
  EXPECT_EQ(changes, 2);
}

TEST(Hosts, WhatIsNoClusterIsNotFolded) {
  EXPECT_EQ(fold(load_fixture("dgx2_x2_relay").graph).status().cause(), Cause::kUnsupported);
  EXPECT_EQ(fold(full_mesh(4, 10)).status().cause(), Cause::kUnsupported);
  GraphMaker uneven(5);
  uneven.node("sw").both("g0", "g1", 100).both("g2", "g3", 100).both("g3", "g4", 100);
  for (int r = 0; r < 5; ++r) uneven.both(rank_name(r), "sw", 10);
  EXPECT_EQ(fold(uneven.make()).status().cause(), Cause::kUnsupported);
}

/// Eight HGX H100 on eight rails, in one file.
std::string eight_hosts() {
  nlohmann::json file{{"unit", "GB/s per direction"},
                      {"nodes", nlohmann::json::array()},
                      {"edges", nlohmann::json::array()}};
  const auto both = [&](const std::string& a, const std::string& b, double gbps) {
    file["edges"].push_back({a, b, gbps});
    file["edges"].push_back({b, a, gbps});
  };
  for (int g = 0; g < 8; ++g)
    file["nodes"].push_back({{"id", "rail" + std::to_string(g)}, {"kind", "sw"}});
  for (int h = 0; h < 8; ++h) {
    const std::string host = "h" + std::to_string(h);
    file["nodes"].push_back({{"id", host + "nvs"}, {"kind", "sw"}});
    for (int g = 0; g < 8; ++g) {
      file["nodes"].push_back({{"id", host + "g" + std::to_string(g)}, {"kind", "gpu"}});
      both(host + "g" + std::to_string(g), host + "nvs", 450);
      both(host + "g" + std::to_string(g), "rail" + std::to_string(g), 50);
    }
  }
  return file.dump();
}

TEST(Hosts, LargeMachinesArePlannedAsOneTemplate) {
  const auto topology = import_topology(eight_hosts(), "eight.json");
  ASSERT_TRUE(topology.ok()) << topology.status().to_string();
  for (const CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kAllReduce, CollectiveKind::kBroadcast}) {
    const auto report = plan_collective(*topology, {kind, 0, 16});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->algorithm.starts_with("hierarchical_")) << report->algorithm;
    EXPECT_GE(report->plan_gbps, 0.98 * report->bound_gbps) << name(kind);
    EXPECT_LE(report->plan_gbps, report->bound_gbps * (1 + 1e-9)) << name(kind);
    EXPECT_TRUE(verify(report->plan).ok());
    EXPECT_NE(explain(*report).find("one template for 8 equal hosts"), std::string::npos)
        << explain(*report);
  }
}

}  // namespace
}  // namespace topocoll
