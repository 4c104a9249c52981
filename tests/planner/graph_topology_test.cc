#include "planner/graph_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/bound.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;

TopologyNode node(const std::string& id, NodeKind kind) {
  TopologyNode result;
  result.id = id;
  result.kind = kind;
  return result;
}

TopologyEdge edge(const std::string& from, const std::string& to, const std::string& kind,
                  std::optional<double> declared = {}, std::optional<double> measured = {}) {
  TopologyEdge result;
  result.from = from;
  result.to = to;
  result.kind = kind;
  result.bandwidth_gbps = {declared, measured};
  return result;
}

/// Two sockets with a root port and two GPUs each.
Topology two_sockets() {
  Topology t;
  t.nodes.push_back(node("host", NodeKind::kHost));
  for (const std::string s : {"0", "1"}) {
    t.nodes.push_back(node("package:" + s, NodeKind::kPackage));
    t.nodes.push_back(node("numa:" + s, NodeKind::kNumaNode));
    t.nodes.push_back(node("pci:" + s, NodeKind::kPciBridge));
    t.edges.push_back(edge("host", "package:" + s, "contains"));
    t.edges.push_back(edge("package:" + s, "numa:" + s, "contains"));
    t.edges.push_back(edge("numa:" + s, "pci:" + s, "contains"));
    for (const std::string g : {"a", "b"}) {
      t.nodes.push_back(node("gpu:" + s + g, NodeKind::kGpu));
      t.edges.push_back(edge("pci:" + s, "gpu:" + s + g, "pci", 12));
    }
  }
  t.edges.push_back(edge("numa:0", "numa:1", "interconnect", 20, 10.02));
  t.edges.push_back(edge("numa:1", "numa:0", "interconnect", 20, 10.01));
  return t;
}

TEST(GraphFromTopology, TakesMeasuredBeforeDeclared) {
  const Result<Graph> graph = graph_from_topology(two_sockets(), {});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->ranks(), 4);
  EXPECT_EQ(graph->rank_id(0), "gpu:0a");
  EXPECT_EQ(graph->nodes.size(), 6U) << "a root port and its NUMA node are one place";
  EXPECT_EQ(allgather_bound(*graph)->algbw, Rational(16)) << "12 GB/s into each GPU";
  Topology slow = two_sockets();
  slow.edges.back().bandwidth_gbps.measured = 5;
  EXPECT_EQ(allgather_bound(*graph_from_topology(slow, {}))->algbw, Rational(10));
}

TEST(GraphFromTopology, WhatCpusReachIsNoCapacity) {
  Topology t = two_sockets();
  t.edges.push_back(edge("numa:0", "numa:1", "memory", 0, 500));
  t.edges.push_back(edge("numa:1", "numa:0", "coherence", 0, 500));
  EXPECT_EQ(allgather_bound(*graph_from_topology(t, {}))->algbw,
            allgather_bound(*graph_from_topology(two_sockets(), {}))->algbw);
  EXPECT_EQ(graph_from_topology(t, {})->links.size(),
            graph_from_topology(two_sockets(), {})->links.size());
}

TEST(GraphFromTopology, UnknownIsNoLink) {
  Topology t = two_sockets();
  t.edges.back().bandwidth_gbps = {};
  EXPECT_THAT(graph_from_topology(t, {}).status().text(),
              HasSubstr("without a known bandwidth were left out: numa:1 -> numa:0"));
}

TEST(GraphFromTopology, RanksMayBeChosen) {
  const Topology t = two_sockets();
  const Result<Graph> graph = graph_from_topology(t, {"gpu:1a", "numa:0"});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->rank_id(1), "numa:0");
  EXPECT_THAT(graph_from_topology(t, {"gpu:9"}).status().text(), HasSubstr("called \"gpu:9\""));
  EXPECT_THAT(graph_from_topology(t, {"numa:0", "numa:0"}).status().text(), HasSubstr("twice"));
  EXPECT_THAT(graph_from_topology(Topology(), {}).status().text(), HasSubstr("0 of them"));
}

TEST(GraphFromTopology, GroupsBecomeSharedCapacities) {
  Topology t = two_sockets();
  t.groups.push_back(
      {"half duplex",
       {12, {}},
       {{"numa:0", "numa:1", "interconnect"}, {"numa:1", "numa:0", "interconnect"}}});
  Result<Graph> graph = graph_from_topology(t, {});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  ASSERT_EQ(graph->groups.size(), 1U);
  EXPECT_EQ(allgather_bound(*graph)->algbw, Rational(12));
  t.groups[0].bandwidth_gbps.declared = 100;
  EXPECT_TRUE(graph_from_topology(t, {})->groups.empty()) << "limits nothing";
}

/// A flat machine of which a probe knows that GPUs 0 and 1 share a switch.
Topology inferred_switch() {
  Topology t;
  t.nodes.push_back(node("host", NodeKind::kHost));
  for (const std::string g : {"0", "1", "2"}) {
    t.nodes.push_back(node("gpu:" + g, NodeKind::kGpu));
    t.edges.push_back(edge("host", "gpu:" + g, "pci", 24));
  }
  t.nodes.push_back(node("switch:inferred:0", NodeKind::kSwitch));
  t.nodes.back().attributes[kInferredFrom] = "contention";
  t.edges.push_back(edge("host", "switch:inferred:0", "contains"));
  for (const std::string end : {"gpu:0", "gpu:1", "host"}) {
    t.edges.push_back(edge(end, "switch:inferred:0", "link", {}, 12));
    t.edges.push_back(edge("switch:inferred:0", end, "link", {}, 12));
  }
  return t;
}

TEST(GraphFromTopology, GpusAtAnInferredSwitchStandThere) {
  const Result<Graph> graph = graph_from_topology(inferred_switch(), {});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->nodes.size(), 5U) << "the switch is no part of the host";
  EXPECT_EQ(graph->links.size(), 8U) << "of the declared links that of gpu:2 is left";
  EXPECT_EQ(allgather_bound(*graph)->algbw, Rational(18)) << "12 GB/s into gpu:0 and gpu:1";
}

TEST(GraphFromTopology, DirectLinksThatChangeDataAreLeftOut) {
  Topology t;
  for (const std::string g : {"0", "1", "2"}) t.nodes.push_back(node("gpu:" + g, NodeKind::kGpu));
  for (const std::string a : {"0", "1", "2"}) {
    for (const std::string b : {"0", "1", "2"}) {
      if (a != b) t.edges.push_back(edge("gpu:" + a, "gpu:" + b, "nvlink", 50));
    }
  }
  TopologyEdge lie = edge("gpu:0", "gpu:1", "transfer");
  lie.fault = "stores: 3 words differ";
  t.edges.push_back(lie);
  const Result<Graph> graph = graph_from_topology(t, {});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->links.size(), 5U);
  t.edges.back().fault.clear();
  EXPECT_EQ(graph_from_topology(t, {})->links.size(), 6U);
}

/// Where every link changes data: the error says so of the first, in a time that does not grow with
/// faults times links.
TEST(GraphFromTopology, AMeshOfWrongLinksIsToldApartFromNoLinks) {
  constexpr int kGpus = 160;
  Topology t;
  for (int g = 0; g < kGpus; ++g) {
    t.nodes.push_back(node("gpu:" + std::to_string(g), NodeKind::kGpu));
  }
  for (const TopologyNode& a : t.nodes) {
    for (const TopologyNode& b : t.nodes) {
      if (&a == &b) continue;
      t.edges.push_back(edge(a.id, b.id, "nvlink", 50));
      t.edges.push_back(edge(a.id, b.id, "transfer"));
      t.edges.back().fault = "stores: 3 words differ";
    }
  }
  EXPECT_THAT(graph_from_topology(t, {}).status().text(),
              AllOf(HasSubstr("cannot reach"),
                    HasSubstr("on which data arrives wrong were left out: gpu:0 -> gpu:1, "),
                    HasSubstr(" and 25432 more")));
}

TEST(GraphFromTopology, AWayThroughSwitchesThatChangesDataIsAnError) {
  Topology t = two_sockets();
  const auto lie = [&](const std::string& from, const std::string& to) {
    TopologyEdge transfer = edge(from, to, "transfer");
    transfer.fault = "stores: 3 words differ";
    t.edges.push_back(transfer);
  };
  lie("gpu:0a", "gpu:1a");
  EXPECT_TRUE(graph_from_topology(t, {}).ok()) << "their way leads through memory";
  lie("gpu:1b", "gpu:1a");
  const Status s = graph_from_topology(t, {}).status();
  EXPECT_EQ(s.cause(), Cause::kUnsupported);
  for (const char* part : {"\"gpu:1b\" to \"gpu:1a\"", "stores: 3 words differ",
                           "topocoll topo check", "--without "}) {
    EXPECT_THAT(s.text(), HasSubstr(part));
  }
  EXPECT_TRUE(graph_from_topology(t, {"gpu:0a", "gpu:0b", "gpu:1a"}).ok())
      << "one of them is left out";
}

}  // namespace
}  // namespace topocoll
