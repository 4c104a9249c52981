#include "planner/cluster.h"

#include <gtest/gtest.h>

#include <set>

#include "planner/clusters.h"
#include "planner/make_graphs.h"
#include "topocoll/topology_formats.h"

namespace topocoll {
namespace {

using namespace topocoll::testing;

TEST(Fabric, ReadsWhatItDocuments) {
  const auto fabric = fabric_from_json(
      R"({"topocoll_fabric": 1, "name": "x", "rails": 8, "gbps_per_gpu": 50, "nodes_per_leaf": 32,
          "oversubscription": 2, "spine_joins_rails": true, "latency_ns": 1500, "spine_latency_ns": 1000})",
      "rails.json");
  ASSERT_TRUE(fabric.ok()) << fabric.status().to_string();
  EXPECT_EQ(fabric->rails, 8);
  EXPECT_EQ(fabric->gbps_per_gpu, 50);
  EXPECT_EQ(fabric->nodes_per_leaf, 32);
  EXPECT_EQ(fabric->oversubscription, 2);
  EXPECT_TRUE(fabric->spine_joins_rails);
  EXPECT_EQ(fabric->latency_ns, 1500);
  EXPECT_EQ(fabric->spine_latency_ns, 1000);
  const auto ports = fabric_from_json(
      R"({"topocoll_fabric": 1, "rails": 2, "ports": [{"at": "a", "rail": 1, "gbps": 12.5}, {"at": "b", "in_gbps": 3}]})",
      "ports.json");
  ASSERT_TRUE(ports.ok()) << ports.status().to_string();
  ASSERT_EQ(ports->ports.size(), 2U);
  EXPECT_EQ(ports->ports[0].rail, 1);
  EXPECT_EQ(ports->ports[0].out_gbps, 12.5);
  EXPECT_EQ(ports->ports[1].out_gbps, 0);
  EXPECT_EQ(ports->ports[1].in_gbps, 3);
}

TEST(Fabric, RefusesWhatMakesNoSense) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"rails": 1})", "topocoll_fabric"},
      {R"({"topocoll_fabric": 2, "gbps_per_gpu": 5})", "topocoll_fabric"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": -5})", "gbps_per_gpu"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 0})", "gbps_per_gpu"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "rail": 8})", "rail"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "rails": 0})", "rails"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "rails": 1000000000})", "rails"},
      {R"({"topocoll_fabric": 1})", "gbps_per_gpu or ports"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "ports": [{"at": "a", "gbps": 1}]})",
       "gbps_per_gpu or ports"},
      {R"({"topocoll_fabric": 1, "ports": []})", "ports"},
      {R"({"topocoll_fabric": 1, "ports": [{"at": "a"}]})", "ports[0]"},
      {R"({"topocoll_fabric": 1, "ports": [{"at": "a", "gbps": 1, "rail": 1}]})", "ports[0].rail"},
      {R"({"topocoll_fabric": 1, "ports": [{"at": "a", "gbps": -1}]})", "ports[0].gbps"},
      {R"({"topocoll_fabric": 1, "ports": [{"at": 7, "gbps": 1}]})", "ports[0].at"},
      {R"({"topocoll_fabric": 1, "ports": {"at": "a"}})", "ports"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "oversubscription": 2})", "nodes_per_leaf"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "nodes_per_leaf": 0})", "nodes_per_leaf"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "nodes_per_leaf": 2, "oversubscription": 0.5})",
       "oversubscription"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "latency_ns": -1})", "latency_ns"},
      {R"({"topocoll_fabric": 1, "gbps_per_gpu": 5, "nodes_per_leaf": 2, "spine_joins_rails": 1})",
       "spine_joins_rails"},
      {"[1]", ""},
      {"", ""}};
  for (const auto& [text, place] : cases) {
    const auto fabric = fabric_from_json(text, "fabric.json");
    ASSERT_FALSE(fabric.ok()) << text;
    EXPECT_EQ(fabric.status().text().rfind("fabric.json", 0), 0U) << fabric.status().text();
    EXPECT_NE(fabric.status().text().find(place), std::string::npos)
        << text << ": " << fabric.status().text();
  }
}

TEST(Cluster, RefusesWhatCannotBeBuilt) {
  const Graph node = node_of("hgxh100_x2_rail8");
  for (const int nodes : {-1, 0, 1, 8193, 1'000'000'000}) {
    const auto cluster = make_cluster(node, per_gpu(50, 8), nodes);
    ASSERT_FALSE(cluster.ok()) << nodes;
    EXPECT_NE(cluster.status().text().find("2 to 8192"), std::string::npos)
        << cluster.status().text();
  }
  EXPECT_TRUE(make_cluster(node, per_gpu(50, 8), 8192).ok());
  // Eight GPUs cannot serve nine rails.
  const auto rails = make_cluster(node, per_gpu(50, 9), 2);
  ASSERT_FALSE(rails.ok());
  EXPECT_EQ(rails.status().text(),
            "fabric: the node has 8 GPUs and the fabric 9 rails, so some rails have no port: set "
            "rails to 8 or fewer, or name each rail's ports");
  Fabric unserved;
  unserved.rails = 2;
  unserved.ports = {{"n0g0", 0, 50, 50}};
  EXPECT_NE(make_cluster(node, unserved, 2).status().text().find("rail 1 has no port that sends"),
            std::string::npos);
  Fabric fabric;
  fabric.ports = {{"n0g0", 0, 50, 0}};
  const auto one_way = make_cluster(node, fabric, 2);
  ASSERT_FALSE(one_way.ok());
  EXPECT_NE(one_way.status().text().find("no port that receives"), std::string::npos)
      << one_way.status().text();
  fabric.ports = {{"nic9", 0, 50, 50}};
  const auto nowhere = make_cluster(node, fabric, 2);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.status().text().find("nic9"), std::string::npos) << nowhere.status().text();
}

TEST(Cluster, FlatGraphIsTheRecordedMachine) {
  for (const RecordedCluster& recorded : recorded_clusters()) {
    const Graph expected = load_fixture(recorded.fixture).graph;
    const auto flat =
        flat_graph(cluster_of(node_of(recorded.fixture), recorded.fabric, recorded.nodes));
    ASSERT_TRUE(flat.ok());
    EXPECT_EQ(flat->ranks(), expected.ranks()) << recorded.fixture;
    // TE-CCL joins its senders with their receivers directly, here a rail does.
    if (recorded.fixture == "dgx2_x2_relay") continue;
    const auto sorted = [](const Graph& graph) {
      std::multiset<double> gbps;
      for (const GraphLink& l : graph.links)
        gbps.insert(graph.gbps(static_cast<double>(l.capacity)));
      return gbps;
    };
    EXPECT_EQ(sorted(*flat), sorted(expected)) << recorded.fixture;
  }
}

TEST(Cluster, QuotientsStandForAllNodes) {
  const Cluster cluster =
      cluster_of(node_of("hgxh100_x2_rail8"), below_leaves(per_gpu(50, 8), 3), 8);
  const auto q = quotient(cluster, {0, 4});
  ASSERT_TRUE(q.ok());
  std::int64_t ranks = 0;
  for (const std::int64_t blocks : q->ranks.blocks) ranks += blocks;
  EXPECT_EQ(ranks, cluster.ranks());
  EXPECT_EQ(q->ranks.receivers.size(), 16U);
  EXPECT_EQ(q->rank_of.size(), 2U);
  const auto total = [](const Graph& graph) {
    std::int64_t sum = 0;
    for (const GraphLink& l : graph.links) sum += l.capacity;
    return sum;
  };
  EXPECT_EQ(total(q->graph), total(*flat_graph(cluster)));
}

TEST(Cluster, PlansThroughTheDoor) {
  const auto node = import_topology(fixture_text("hgxh100_x1.json"), "hgxh100_x1.json");
  ASSERT_TRUE(node.ok());
  const auto report = plan_cluster(*node, per_gpu(50, 8), {{CollectiveKind::kAllGather}, 2048});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->ranks, 16384);
  EXPECT_EQ(report->bound, "819200/2047");
  EXPECT_NE(unit_words(*report).find("; (819200/2047) is the bound as an exact fraction"),
            std::string::npos);
  EXPECT_GE(report->plan_gbps, 0.99 * report->bound_gbps);
  EXPECT_EQ(report->lanes.size(), 8U);
  const auto steps = rank_steps(*report, 16383);
  ASSERT_TRUE(steps.ok());
  EXPECT_GT(steps->size(), 16383U);
  EXPECT_NE(explain(*report).find("2048 nodes of 8 GPUs"), std::string::npos);
  const auto times = simulate_cluster(*report, {1 << 20, std::uint64_t{1} << 34});
  ASSERT_TRUE(times.ok());
  EXPECT_LT(times->at(0).at.time_us, times->at(1).at.time_us);

  // Two nodes: what enters a GPU limits, and trees over all ranks use its rail for more than its
  // lane.
  const auto two = plan_cluster(*node, per_gpu(50, 8), {{CollectiveKind::kAllGather}, 2});
  ASSERT_TRUE(two.ok());
  ASSERT_EQ(two->candidates.back().algorithm, "trees");
  EXPECT_GT(two->candidates.back().gbps, two->plan_gbps);
  EXPECT_LE(two->candidates.back().gbps, two->bound_gbps * (1 + 1e-9));

  const auto small = plan_cluster(*node, per_gpu(50, 8), {{CollectiveKind::kAllReduce}, 3});
  ASSERT_TRUE(small.ok());
  const auto plan = expand(*small);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(verify(*plan).ok());

  EXPECT_EQ(plan_cluster(*node, per_gpu(50, 8), {{CollectiveKind::kAllToAll}, 2}).status().cause(),
            Cause::kUnsupported);
  EXPECT_EQ(
      plan_cluster(*node, per_gpu(50, 8), {{CollectiveKind::kBroadcast, 16}, 2}).status().cause(),
      Cause::kInvalidArgument);
}

}  // namespace
}  // namespace topocoll
