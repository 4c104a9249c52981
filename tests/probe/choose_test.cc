#include "probe/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace topocoll {
namespace {

using ::testing::UnorderedElementsAre;

Topology machine(const char* description) { return synthetic_topology(description).value(); }

std::map<std::string, int> counts(const std::vector<ChosenPair>& pairs) {
  std::map<std::string, int> of_class;
  for (const ChosenPair& pair : pairs) ++of_class[pair.near];
  return of_class;
}

TEST(ChoosePairs, TakesAllOfASmallMachine) {
  std::mt19937_64 random(1);
  const auto pairs = choose_pairs(machine("pack:2 numa:1 l3:1 core:2 pu:2"), random);
  EXPECT_EQ(pairs.size(), 28u);
  EXPECT_EQ(counts(pairs), (std::map<std::string, int>{{"core", 4}, {"host", 16}, {"l3", 8}}));
  std::set<std::pair<int, int>> different;
  for (const ChosenPair& p : pairs) {
    EXPECT_LT(p.a, p.b);
    different.insert({p.a, p.b});
  }
  EXPECT_EQ(different.size(), 28u);
}

TEST(ChoosePairs, SamplesEachClassOfALargeMachineAndLeadsWithOneOfEach) {
  std::mt19937_64 random(1);
  const auto pairs = choose_pairs(machine("pack:2 numa:4 l3:3 core:8 pu:2"), random);
  const auto of_class = counts(pairs);
  EXPECT_EQ(of_class, (std::map<std::string, int>{
                          {"core", 8}, {"host", 8}, {"l3", 8}, {"numa", 8}, {"package", 8}}));
  std::set<std::string> leading;
  for (std::size_t i = 0; i < of_class.size(); ++i) {
    EXPECT_TRUE(pairs[i].first);
    leading.insert(pairs[i].near);
  }
  EXPECT_EQ(leading.size(), of_class.size());
  std::mt19937_64 other(2);
  const auto others = choose_pairs(machine("pack:2 numa:4 l3:3 core:8 pu:2"), other);
  EXPECT_NE(std::make_pair(pairs[7].a, pairs[7].b), std::make_pair(others[7].a, others[7].b));
}

TEST(ChoosePairs, TellsTypesOfCoresApart) {
  Topology t = machine("l3:1 core:3 pu:1");
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kCore) {
      node.attributes["CoreType"] = node.id == "core:2" ? "IntelAtom" : "IntelCore";
    }
  }
  std::mt19937_64 random(1);
  EXPECT_EQ(counts(choose_pairs(t, random)),
            (std::map<std::string, int>{{"l3, IntelAtom and IntelCore", 2}, {"l3, IntelCore", 1}}));
}

TEST(ChoosePairs, LeavesOutCpusThatMayNotBeUsed) {
  Topology t = machine("core:3 pu:1");
  for (TopologyNode& node : t.nodes) {
    if (node.id == "cpu:1") node.cpus.clear();
  }
  std::mt19937_64 random(1);
  const auto pairs = choose_pairs(t, random);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(std::make_pair(pairs[0].a, pairs[0].b), std::make_pair(0, 2));
  EXPECT_TRUE(choose_pairs(machine("core:1 pu:1"), random).empty());
}

TEST(ChooseMemory, ReadsEveryNodeFromNearAndFar) {
  std::mt19937_64 random(1);
  Topology t = machine("pack:2 numa:1 core:2 pu:1");
  const auto reads = choose_memory(t, random);
  std::set<std::string> edges;
  for (const MemoryRead& r : reads) {
    const std::string to = r.to.substr(0, r.to.find(':'));
    edges.insert(r.from + " " + (to == "cpu" ? to : r.to) + " " + std::to_string(r.cpus.size()));
    EXPECT_EQ(r.local, to != "numa");
  }
  EXPECT_THAT(edges,
              UnorderedElementsAre("numa:0 cpu 1", "numa:0 package:0 2", "numa:1 cpu 1",
                                   "numa:1 package:1 2", "numa:0 numa:1 2", "numa:1 numa:0 2"));
  EXPECT_FALSE(reads.back().local);
}

TEST(ChooseMemory, MemoryWithoutCpusIsReadFromElsewhere) {
  std::mt19937_64 random(1);
  Topology t = machine("pack:2 numa:1 core:1 pu:1");
  for (TopologyNode& node : t.nodes) {
    if (node.id == "numa:1") node.cpus.clear();
  }
  const auto reads = choose_memory(t, random);
  ASSERT_EQ(reads.size(), 3u);
  EXPECT_EQ(reads[2].from, "numa:1");
  EXPECT_EQ(reads[2].to, "numa:0");
}

}  // namespace
}  // namespace topocoll
