#include "probe/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "probe/measure.h"

namespace topocoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
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

/// Two NUMA nodes, and ports of an RDMA device and of none.
Topology machine_with_ports() {
  Topology t = machine("pack:2 numa:1 core:2 pu:1");
  const auto port = [&](const char* id, const char* device, const char* number, const char* state) {
    TopologyNode node{id, NodeKind::kNicPort, device};
    node.attributes = {{"rdma", device}, {"port", number}, {"state", state}};
    t.nodes.push_back(node);
    t.edges.push_back({"host", id, "contains", {}, {}});
  };
  port("port:a/1", "a", "1", "ACTIVE");
  port("port:a/2", "a", "2", "DOWN");
  port("port:b/1", "b", "256", "ACTIVE");
  port("port:b/2", "b", "2x", "ACTIVE");
  port("port:c/3", "c", "3", "ACTIVE");
  t.nodes.push_back({"port:eth0", NodeKind::kNicPort, "eth0"});
  t.edges.push_back({"host", "port:eth0", "contains", {}, {}});
  return t;
}

TEST(ChooseNicReads, TakesActivePortsAndMemoryWithCpus) {
  Topology t = machine_with_ports();
  std::mt19937_64 random(1);
  const auto reads = choose_nic_reads(t, random);
  ASSERT_EQ(reads.size(), 4u);
  EXPECT_EQ(reads[1].from, "numa:1");
  EXPECT_EQ(reads[1].node, 1);
  EXPECT_EQ(reads[1].to, "port:a/1");
  EXPECT_EQ(reads[1].device, "a");
  EXPECT_THAT(reads[1].cpu, ::testing::AnyOf(2, 3)) << "near the memory";
  EXPECT_EQ(reads[2].to, "port:c/3");
  EXPECT_EQ(reads[2].port, 3);
  for (TopologyNode& node : t.nodes) {
    if (node.id == "numa:0") node.cpus.clear();
  }
  EXPECT_EQ(choose_nic_reads(t, random).size(), 2u);
}

TEST(ChooseNicReads, OneReadTellsWhetherAKeptResultHoldsAndPortsWithoutAnyAreTried) {
  const Topology t = machine_with_ports();
  Topology kept = t;
  const auto ports = [](const std::vector<ProbeTask>& tasks) {
    std::vector<std::string> found;
    for (const ProbeTask& task : tasks) {
      if (const auto* read = std::get_if<NicRead>(&task))
        found.push_back(read->from + " " + read->to);
    }
    return found;
  };
  EXPECT_THAT(ports(sentinel_tasks(kept, t)), IsEmpty());
  EXPECT_THAT(ports(unmeasured_ports(kept, t)), ElementsAre("numa:0 port:a/1", "numa:0 port:c/3"));
  kept.edges.push_back({"numa:1", "port:a/1", "transfer", {}, {{}, 1520.0}});
  EXPECT_THAT(ports(sentinel_tasks(kept, t)), ElementsAre("numa:1 port:a/1"));
  EXPECT_THAT(ports(unmeasured_ports(kept, t)), ElementsAre("numa:0 port:c/3"));
  Topology fresh = t;
  fresh.edges.push_back({"numa:0", "port:c/3", "transfer", {}, {{}, 1520.0}});
  EXPECT_EQ(lost_ports(kept, fresh), 1u) << "another port makes up for none";
  fresh.edges.push_back(kept.edges.back());
  EXPECT_EQ(lost_ports(kept, fresh), 0u);
  Topology down = t;
  for (TopologyNode& node : down.nodes) {
    if (node.id == "port:a/1") node.attributes["state"] = "DOWN";
  }
  EXPECT_THAT(ports(sentinel_tasks(kept, down)), IsEmpty());
  std::mt19937_64 random(1);
  EXPECT_THAT(ports(probe_tasks(t, random)),
              UnorderedElementsAre("numa:0 port:a/1", "numa:1 port:a/1", "numa:0 port:c/3",
                                   "numa:1 port:c/3"));
}

}  // namespace
}  // namespace topocoll
