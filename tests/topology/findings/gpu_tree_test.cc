// Measured ways against the declared tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/findings.h"
#include "support/measured_gpus.h"

namespace topocoll {
namespace {

using testing::add_nvlinks;
using testing::bridge_id;
using ::testing::ElementsAre;
using testing::findings_of;
using testing::gpu_id;
using ::testing::HasSubstr;
using testing::measured_figure;
using testing::measured_gpus;

void link(Topology& t, const std::string& below, const std::string& above, double up, double down) {
  t.edges.push_back({below, above, "link", measured_figure(up), {}});
  t.edges.push_back({above, below, "link", measured_figure(down), {}});
}

/// A switch that only measurements show, above these.
std::string infer_switch(Topology& t, const std::vector<std::string>& below,
                         const std::string& above, double up, double down) {
  TopologyNode node;
  node.kind = NodeKind::kSwitch;
  node.id = "switch:inferred:" + std::to_string(t.of_kind(NodeKind::kSwitch).size());
  node.attributes["inferred_from"] = "contention";
  t.nodes.push_back(node);
  t.edges.push_back({"host", node.id, "contains", {}, {}});
  for (const std::string& child : below) link(t, child, node.id, 50, 52);
  link(t, node.id, above, up, down);
  return node.id;
}

/// GPUs directly below the host's NUMA nodes, as in virtual machines.
Topology flat() {
  Topology t = measured_gpus();
  for (TopologyEdge& edge : t.edges) {
    if (edge.kind == "pci" && edge.to.front() == 'g') edge.from = "numa:0";
  }
  std::erase_if(t.edges, [](const TopologyEdge& e) { return e.to.starts_with("bridge"); });
  std::erase_if(t.nodes, [](const auto& n) { return n.kind == NodeKind::kPciBridge; });
  for (TopologyNode& node : t.nodes) node.attributes.erase("numa_node");
  return t;
}

TEST(FlatTree, MeasuringFillsTheGap) {
  Topology t = flat();
  EXPECT_EQ(findings_of(t, "flat-tree").at(0).severity, Severity::kWarning);
  EXPECT_THAT(findings_of(t, "flat-tree").at(0).fix, HasSubstr("topocoll topo probe"));
  Topology apart = t;
  for (TopologyEdge& edge : apart.edges) {
    if (edge.kind == "pci") edge.bandwidth_gbps.measured = 52;
  }
  EXPECT_EQ(findings_of(apart, "flat-tree").at(0).severity, Severity::kInfo);
  EXPECT_THAT(findings_of(apart, "flat-tree").at(0).text,
              HasSubstr("measured: no two GPUs share a link"));
  infer_switch(t, {gpu_id(0), gpu_id(1)}, "host", 50, 53);
  infer_switch(t, {gpu_id(2), gpu_id(3)}, "host", 50, 54);
  const auto shared = findings_of(t, "flat-tree");
  EXPECT_EQ(shared.at(0).severity, Severity::kInfo);
  EXPECT_THAT(shared[0].text,
              HasSubstr("measured: " + gpu_id(0) + ", " + gpu_id(1) +
                        " share 50 GB/s to the host and 53 GB/s from it; " + gpu_id(2) + ", "));
  EXPECT_EQ(shared[0].nodes.size(), 8u);
}

TEST(FlatTree, GpusWithLinksOfTheirOwnToACpuHideNothing) {
  Topology t = flat();
  for (const TopologyNode* gpu : t.of_kind(NodeKind::kGpu)) {
    t.edges.push_back({gpu->id, "numa:0", "c2c", {}, {}});
    t.edges.push_back({"numa:0", gpu->id, "c2c", {}, {}});
  }
  EXPECT_TRUE(findings_of(t, "flat-tree").empty());
}

TEST(TreeDiffers, WhatAHiddenTreeSharesIsWorthKnowing) {
  Topology t = flat();
  infer_switch(t, {gpu_id(0), gpu_id(1)}, "host", 50, 53);
  const auto found = findings_of(t, "tree-differs");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::kInfo);
  EXPECT_THAT(found[0].nodes, ElementsAre(gpu_id(0), gpu_id(1)));
  EXPECT_EQ(found[0].evidence,
            "switch:inferred:0: together 50 GB/s to the host and 53 GB/s from it, measured; no "
            "bridge is declared above them");
}

TEST(TreeDiffers, ATreeThatIsWrongIsAWarning) {
  Topology t = measured_gpus();
  infer_switch(t, {gpu_id(0), gpu_id(2)}, "switch:inferred:1", 50, 53);
  infer_switch(t, {gpu_id(4)}, "host", 60, 61);
  const auto found = findings_of(t, "tree-differs");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].severity, Severity::kWarning);
  EXPECT_THAT(found[0].nodes, ElementsAre(gpu_id(0), gpu_id(2))) << "the inner one";
  EXPECT_THAT(found[0].evidence, HasSubstr("no declared bridge is above all of them"));
  EXPECT_THAT(found[1].nodes, ElementsAre(gpu_id(0), gpu_id(2), gpu_id(4)));
  EXPECT_THAT(found[1].evidence, HasSubstr("together 60 GB/s to the host and 61 GB/s from it"));
  EXPECT_THAT(found[1].text, HasSubstr("share one way to the host"));
}

TEST(TreeDiffers, AGpuAloneHasAWayOfItsOwn) {
  Topology t = measured_gpus();
  infer_switch(t, {gpu_id(5)}, "numa:0", 50, 53);
  const auto found = findings_of(t, "tree-differs");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].text, HasSubstr(gpu_id(5) + " has a way to the host"));
  EXPECT_THAT(found[0].evidence, HasSubstr("declared is " + bridge_id(2) + " above them"));
}

TEST(TreeDiffers, AWayMayEndAtADeclaredBridge) {
  Topology t = measured_gpus();
  infer_switch(t, {gpu_id(0), gpu_id(1)}, bridge_id(0), 50, 53);
  const auto found = findings_of(t, "tree-differs");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].nodes, ElementsAre(gpu_id(0), gpu_id(1)));
  EXPECT_THAT(found[0].evidence, HasSubstr("together 50 GB/s to the host and 53 GB/s from it"));
}

TEST(TreeDiffers, SwitchesOfNetworksAreNotMeant) {
  Topology t = measured_gpus();
  t.nodes.push_back({"switch:1", NodeKind::kSwitch});
  link(t, gpu_id(0), "switch:1", 10, 10);
  link(t, "switch:1", "host", 10, 10);
  EXPECT_TRUE(findings_of(t, "tree-differs").empty());
}

/// What passes below the first bridge.
void set_near(Topology& t, double gbps, double ns) {
  for (const auto& [a, b] : {std::pair(0, 1), {1, 0}}) {
    TopologyEdge& edge = testing::transfer_between(t, gpu_id(a), gpu_id(b));
    edge.bandwidth_gbps = measured_figure(gbps);
    edge.latency_ns = measured_figure(ns);
  }
}

TEST(Detour, ASwitchBelowWhichGpusAreSlowerThanElsewhereIsSuspected) {
  Topology t = measured_gpus();
  set_near(t, 20, 1100);
  const auto found = findings_of(t, "acs-suspected");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].severity, Severity::kWarning);
  EXPECT_THAT(found[0].nodes, ElementsAre(bridge_id(0)));
  EXPECT_EQ(found[0].evidence, "20 GB/s below it, 40 GB/s to other GPUs, measured");
  EXPECT_EQ(found[0].loss_percent, 50);
  EXPECT_THAT(found[0].fix, HasSubstr("setpci -s 0000:01:10.0 ECAP_ACS+0x6.w=0000"));
}

TEST(Detour, AsSlowAndAsLateAsElsewhereIsSuspicious) {
  Topology t = measured_gpus();
  set_near(t, 40, 1500);
  const auto found = findings_of(t, "acs-suspected");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].evidence, HasSubstr("after 1500 and 1500 ns"));
  EXPECT_FALSE(found[0].loss_percent.has_value());
  set_near(t, 40, 1100);
  EXPECT_TRUE(findings_of(t, "acs-suspected").empty()) << "the way is shorter";
  set_near(t, 50, 1500);
  EXPECT_TRUE(findings_of(t, "acs-suspected").empty()) << "it is faster";
}

TEST(Detour, GpusThatStandElsewhereAreNoEvidenceAgainstTheDeclaredSwitch) {
  Topology t = measured_gpus();
  set_near(t, 20, 1100);
  infer_switch(t, {gpu_id(0), gpu_id(2)}, "host", 50, 53);
  EXPECT_TRUE(findings_of(t, "acs-suspected").empty());
}

TEST(Detour, GpusWithNvlinksDoNotUseTheSwitch) {
  Topology t = measured_gpus();
  add_nvlinks(t, 380);
  set_near(t, 20, 3000);
  EXPECT_TRUE(findings_of(t, "acs-suspected").empty());
}

}  // namespace
}  // namespace topocoll
