#include "topology/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/measured_gpus.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;

Topology machine(const char* description = "pack:1 numa:2 l3:1 core:2 pu:1") {
  Topology t = synthetic_topology(description).value();
  t.host = "node";
  t.edges.push_back({"numa:0", "numa:1", "interconnect", {20, {}}, {}});
  t.groups.push_back({"both", {30, {}}, {{"numa:0", "numa:1", "interconnect"}}});
  t.notes = {"n"};
  return t;
}

TopologyNode& node(Topology& t, const std::string& id) {
  return *std::find_if(t.nodes.begin(), t.nodes.end(), [&](const auto& n) { return n.id == id; });
}

std::string error(std::vector<TopologyPart> parts) {
  return merge_topologies(std::move(parts)).status().text();
}

TEST(Merge, EqualPartsOfOneHostCollapse) {
  Topology expected = machine();
  node(expected, "host").attributes["ranks"] = "0-2,5";
  const auto merged = merge_topologies(
      {{5, "h", machine()}, {1, "h", machine()}, {0, "h", machine()}, {2, "h", machine()}});
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ(to_json(*merged), to_json(expected));
}

TEST(Merge, PartsOfOneHostAddUp) {
  Topology first = machine();
  Topology second = machine();
  node(first, "cpu:1").cpus.clear();
  node(first, "numa:0").cpus = {0};
  node(second, "cpu:0").cpus.clear();
  node(second, "numa:0").cpus = {1};
  second.nodes.push_back({"gpu:0000:01:00.0", NodeKind::kGpu, "G", {}, {}, {}, {}, {}});
  second.edges.push_back({"numa:0", "gpu:0000:01:00.0", "pci", {32, {}}, {}});
  second.edges.push_back({"cpu:0", "cpu:1", "coherence", {}, {{}, 60.0}});
  first.edges.back().bandwidth_gbps.measured = 15;
  second.edges[first.edges.size() - 1].bandwidth_gbps.measured = 16;
  node(first, "host").attributes["CUDA_VISIBLE_DEVICES"] = "";
  node(second, "host").attributes["CUDA_VISIBLE_DEVICES"] = "0";
  second.notes.emplace_back("m");
  const auto merged = merge_topologies({{1, "h", second}, {0, "h", first}});
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ(merged->find("numa:0")->cpus, (std::vector{0, 1}));
  EXPECT_EQ(merged->find("cpu:0")->cpus, std::vector{0});
  EXPECT_EQ(merged->parent("gpu:0000:01:00.0")->id, "numa:0");
  EXPECT_EQ(merged->edges.back().latency_ns.measured, 60.0);
  EXPECT_EQ(merged->find("host")->attributes.at("CUDA_VISIBLE_DEVICES"), "") << "the lowest rank's";
  const auto link = std::find_if(merged->edges.begin(), merged->edges.end(),
                                 [](const TopologyEdge& e) { return e.kind == "interconnect"; });
  EXPECT_EQ(link->bandwidth_gbps.measured, 15);
  EXPECT_EQ(merged->notes, (std::vector<std::string>{"n", "m"}));
}

TEST(Merge, WhatOneRankMeasuredOfATransferAndWhatWasWrongWithItStay) {
  Topology first = testing::measured_gpus();
  Topology second = first;
  const auto edge = [](Topology& t) -> TopologyEdge& {
    return testing::transfer_between(t, testing::gpu_id(2), testing::gpu_id(5));
  };
  edge(first).figures.erase(kLoadsGbps);
  edge(second).figures[kLoadsGbps] = testing::measured_figure(30);
  edge(second).figures[kDuplexGbps] = testing::measured_figure(1);
  edge(second).fault = "loads: 1 of 4096 words differs";
  auto merged = merge_topologies({{0, "h", first}, {1, "h", second}});
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ(edge(*merged).figures[kLoadsGbps].measured, 30);
  EXPECT_EQ(edge(*merged).figures[kDuplexGbps], edge(first).figures[kDuplexGbps])
      << "the lowest rank's";
  EXPECT_EQ(edge(*merged).fault, edge(second).fault);
}

TEST(Merge, SeveralHostsBecomeSubtrees) {
  Topology b = machine();
  b.host = "other";
  const auto merged = merge_topologies({{0, "a", machine()}, {1, "b", b}, {2, "a", machine()}});
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ(merged->host, "2 hosts");
  EXPECT_EQ(merged->nodes.size(), 2 * machine().nodes.size());
  EXPECT_EQ(merged->edges.size(), 2 * machine().edges.size());
  EXPECT_EQ(merged->find("a/host")->attributes.at("ranks"), "0,2");
  EXPECT_EQ(merged->find("b/host")->label, "other");
  EXPECT_EQ(merged->parent("b/numa:1")->id,
            machine().parent("numa:1") == nullptr ? "" : "b/" + machine().parent("numa:1")->id);
  EXPECT_EQ(merged->groups[1].members[0].from, "b/numa:0");
  EXPECT_EQ(merged->notes, (std::vector<std::string>{"node: n", "other: n"}));
}

TEST(Merge, LongHostIdsFitIntoIds) {
  const std::string one(255, 'x');
  const std::string two = one.substr(1) + "y";
  const auto merged = merge_topologies({{0, one, machine()}, {1, two, machine()}});
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ(merged->of_kind(NodeKind::kHost).size(), 2u);
}

TEST(Merge, TheOrderOfPartsDoesNotMatter) {
  std::vector<TopologyPart> parts;
  for (int r = 0; r < 8; ++r) {
    Topology t = machine();
    node(t, "host").attributes["memlock_bytes"] = std::to_string(r);
    t.notes.push_back(std::to_string(r));
    parts.push_back({r, r % 3 == 0 ? "b" : "a", t});
  }
  const std::string expected = to_json(merge_topologies(parts).value());
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(parts.begin(), parts.end(), random);
    EXPECT_EQ(to_json(merge_topologies(parts).value()), expected);
  }
}

TEST(Merge, ContradictionsNameBothRanksAndTheField) {
  const auto against = [](const auto& change) {
    Topology other = machine();
    change(other);
    return error({{3, "h", machine()}, {4, "h", machine()}, {7, "h", other}});
  };
  EXPECT_THAT(against([](Topology& t) { node(t, "l3:0").size_bytes = 99; }),
              HasSubstr("ranks 3 and 7 are both on host h, but size_bytes of l3:0 is "));
  EXPECT_THAT(against([](Topology& t) { node(t, "numa:1").kind = NodeKind::kGpu; }),
              HasSubstr("kind of numa:1 is numa on one and gpu on the other"));
  EXPECT_THAT(against([](Topology& t) { t.edges.back().bandwidth_gbps.declared = 21; }),
              HasSubstr("bandwidth_gbps of numa:0 → numa:1 (interconnect) is 20 on one and 21"));
  EXPECT_THAT(against([](Topology& t) {
                for (TopologyEdge& e : t.edges) {
                  if (e.to == "core:1") e.from = "l3:2";
                }
              }),
              HasSubstr("place in the tree of core:1 is l3:0 on one and l3:2 on the other"));
  EXPECT_EQ(against([](Topology& t) { node(t, "numa:1").size_bytes = 99; }), "")
      << "memory may have been plugged in";
  const Status status = merge_topologies({{0, "h", machine()},
                                          {1, "h",
                                           [] {
                                             Topology t = machine();
                                             node(t, "l3:0").level = 2;
                                             return t;
                                           }()}})
                            .status();
  EXPECT_EQ(status.cause(), Cause::kMismatch);
  EXPECT_EQ(status.culprits(), (std::vector{0, 1}));
}

TEST(Merge, CyclesThatPartsMakeTogetherAreRefused) {
  Topology down;
  down.nodes = {{"x", NodeKind::kSwitch}, {"y", NodeKind::kSwitch}};
  down.edges.push_back({"x", "y", "pci", {}, {}});
  Topology up = down;
  up.edges[0] = {"y", "x", "pci", {}, {}};
  EXPECT_THAT(error({{0, "h", down}, {1, "h", up}}), HasSubstr("a cycle"));
}

TEST(Merge, NotesStayWithinWhatTheFormatAllows) {
  Topology t = machine();
  for (int i = 0; i < 1500; ++i) t.notes.push_back(std::to_string(i));
  const auto merged = merge_topologies({{0, "h", t}});
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ(merged->notes.back(), "502 more notes are left out");
}

}  // namespace
}  // namespace topocoll
