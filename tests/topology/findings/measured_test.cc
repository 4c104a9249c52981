#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "topocoll/findings.h"

namespace topocoll {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Topology machine() { return synthetic_topology("pack:2 numa:1 l3:1 core:4 pu:1").value(); }

Figure measured(double value, double spread = 1) {
  return {{}, value, Spread{value - spread, value + spread, value, 9}};
}

void add_pair(Topology& t, int a, int b, double latency, double spread = 1) {
  for (const auto& [from, to] : {std::pair{a, b}, {b, a}}) {
    t.edges.push_back({"cpu:" + std::to_string(from),
                       "cpu:" + std::to_string(to),
                       "coherence",
                       {},
                       measured(latency, spread)});
  }
}

std::vector<Finding> found(const Topology& t, const std::string& code) {
  std::vector<Finding> all = check_topology(t);
  std::erase_if(all, [&](const Finding& f) { return f.code != code; });
  return all;
}

/// Six pairs below one cache, of which one differs, and slower ones between the packages.
Topology pairs(double odd, double spread = 1) {
  Topology t = machine();
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) add_pair(t, a, b, a == 1 && b == 2 ? odd : 50, spread);
    add_pair(t, a, 4 + a, 300);
  }
  return t;
}

TEST(CpuPairs, OneThatIsSlowerThanItsLikeIsFoundOnce) {
  const auto slow = found(pairs(120), "cpu-pair-slow");
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].severity, Severity::kWarning);
  EXPECT_THAT(slow[0].nodes, ElementsAre("cpu:1", "cpu:2"));
  EXPECT_EQ(slow[0].text,
            "flags between cpu:1 and cpu:2 take 2.4 times as long as between their like (l3)");
  EXPECT_EQ(slow[0].evidence, "120 ns measured, 50 ns the median of 6 pairs");
}

TEST(CpuPairs, WhatIsUncertainOrHasNoLikeIsNoFinding) {
  EXPECT_TRUE(found(pairs(70), "cpu-pair-slow").empty());
  EXPECT_TRUE(found(pairs(120, 60), "cpu-pair-slow").empty()) << "it may be 60";
  Topology few = machine();
  add_pair(few, 0, 1, 50);
  add_pair(few, 0, 2, 50);
  add_pair(few, 0, 3, 500);
  EXPECT_TRUE(found(few, "cpu-pair-slow").empty());
}

void add_memory(Topology& t, int node, double gbps, double spread = 1) {
  const std::string number = std::to_string(node);
  t.edges.push_back({"numa:" + number, "package:" + number, "memory", measured(gbps, spread), {}});
}

TEST(Memory, ANodeThatGivesLessThanItsLikeIsFound) {
  Topology t = machine();
  add_memory(t, 0, 200);
  add_memory(t, 1, 100);
  t.edges.push_back(
      {"numa:0", "numa:1", "memory", measured(20), {}});  // far memory is slower anyway
  t.edges.push_back({"numa:0", "cpu:0", "memory", measured(15), {}});
  const auto slow = found(t, "memory-slow");
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_THAT(slow[0].nodes, ElementsAre("numa:1"));
  EXPECT_THAT(slow[0].text, HasSubstr("gives 50 % of what that of numa:0 does"));
  EXPECT_EQ(slow[0].loss_percent, 50);
}

TEST(Memory, LikeNodesAndUncertainOnesAreNoFinding) {
  Topology t = machine();
  add_memory(t, 0, 200);
  add_memory(t, 1, 160);
  EXPECT_TRUE(found(t, "memory-slow").empty());
  t.edges.pop_back();
  add_memory(t, 1, 100, 60);
  EXPECT_TRUE(found(t, "memory-slow").empty()) << "it may be 160";
  t.edges.pop_back();
  add_memory(t, 1, 100);
  for (TopologyNode& node : t.nodes) {
    if (node.id == "numa:1") node.cpus.pop_back();
  }
  EXPECT_TRUE(found(t, "memory-slow").empty()) << "fewer CPUs read it";
}

}  // namespace
}  // namespace topocoll
