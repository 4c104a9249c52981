// What a probe of GPUs shows: nothing on a machine where nothing is wrong, and each fault by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/findings.h"
#include "support/measured_gpus.h"

namespace topocoll {
namespace {

using testing::add_nvlinks;
using ::testing::ElementsAre;
using testing::findings_of;
using testing::gpu_id;
using ::testing::HasSubstr;
using testing::measured_figure;
using testing::measured_gpus;
using ::testing::Not;
using testing::transfer_between;

Topology with_nvlinks() {
  Topology t = measured_gpus();
  add_nvlinks(t, 380);
  return t;
}

void set_stores(Topology& t, int from, int to, double gbps) {
  transfer_between(t, gpu_id(from), gpu_id(to)).bandwidth_gbps = measured_figure(gbps);
}

void set_memory(Topology& t, int gpu, double gbps, bool down = true) {
  for (const std::string numa : {"numa:0", "numa:1"}) {
    TopologyEdge& edge =
        down ? transfer_between(t, numa, gpu_id(gpu)) : transfer_between(t, gpu_id(gpu), numa);
    edge.bandwidth_gbps = measured_figure(gbps);
    edge.figures[kCopyEngineGbps] = measured_figure(0.9 * gbps);
  }
}

TEST(GpuTransfers, AHealthyMachineHasNoFinding) {
  for (const Topology& t : {measured_gpus(), with_nvlinks()}) {
    EXPECT_EQ(render_text(check_topology(t)), "");
  }
}

TEST(GpuTransfers, AWayThatLiesIsAnErrorOfThePair) {
  Topology t = measured_gpus();
  transfer_between(t, gpu_id(1), gpu_id(6)).fault = "stores: 3 of 4096 words differ";
  transfer_between(t, gpu_id(6), gpu_id(1)).fault = "loads: 1 of 4096 words differs";
  const auto lies = findings_of(t, "p2p-lies");
  ASSERT_EQ(lies.size(), 1u);
  EXPECT_EQ(lies[0].severity, Severity::kError);
  EXPECT_THAT(lies[0].nodes, ElementsAre(gpu_id(1), gpu_id(6)));
  EXPECT_EQ(lies[0].evidence, gpu_id(1) + " → " + gpu_id(6) + ": stores: 3 of 4096 words differ; " +
                                  gpu_id(6) + " → " + gpu_id(1) +
                                  ": loads: 1 of 4096 words differs");
  EXPECT_THAT(lies[0].fix, HasSubstr("NCCL_P2P_DISABLE=1; on bare metal disable ACS"));
  EXPECT_THAT(lies[0].fix, HasSubstr("to confirm: topocoll topo probe --no-cache"));
}

TEST(GpuTransfers, NvlinksThatLieAndMemoryThatDoesHaveFixesOfTheirOwn) {
  Topology t = with_nvlinks();
  transfer_between(t, gpu_id(0), gpu_id(2)).fault = "copies differ";
  transfer_between(t, gpu_id(3), "numa:1").fault = "stores differ";
  const auto lies = findings_of(t, "p2p-lies");
  ASSERT_EQ(lies.size(), 1u);
  EXPECT_THAT(lies[0].fix, HasSubstr("nvidia-smi nvlink --status --errorcounters -i 0000:01:00.0"));
  EXPECT_THAT(lies[0].fix, Not(HasSubstr("ACS")));
  const auto memory = findings_of(t, "gpu-memory-lies");
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_THAT(memory[0].nodes, ElementsAre(gpu_id(3), "numa:1"));
  EXPECT_THAT(memory[0].fix, HasSubstr("-i 0000:04:00.0"));
}

TEST(GpuTransfers, OneSlowPairOfAClassIsFoundOnce) {
  Topology t = with_nvlinks();
  set_stores(t, 2, 5, 300);
  set_stores(t, 5, 2, 330);
  const auto slow = findings_of(t, "gpu-pair-slow");
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].severity, Severity::kWarning);
  EXPECT_THAT(slow[0].nodes, ElementsAre(gpu_id(2), gpu_id(5)));
  EXPECT_EQ(slow[0].evidence, gpu_id(2) + " → " + gpu_id(5) + " 300 GB/s, " + gpu_id(5) + " → " +
                                  gpu_id(2) + " 330 GB/s; equals (NV18) reach 380 GB/s");
  EXPECT_NEAR(slow[0].loss_percent.value_or(0), 100 * (1 - 300.0 / 380), 1e-9);
  EXPECT_THAT(slow[0].fix, HasSubstr("nvidia-smi nvlink"));
  EXPECT_TRUE(findings_of(t, "gpu-port-slow").empty());
}

TEST(GpuTransfers, AGpuThatIsSlowWithAllIsToBlameAndNotItsPairs) {
  Topology t = with_nvlinks();
  for (int peer = 0; peer < 8; ++peer) {
    if (peer != 3) set_stores(t, 3, peer, 190);
  }
  const auto slow = findings_of(t, "gpu-port-slow");
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_THAT(slow[0].nodes, ElementsAre(gpu_id(3)));
  EXPECT_TRUE(findings_of(t, "gpu-pair-slow").empty());
}

TEST(GpuTransfers, PairsOfOtherPathsAreNoEquals) {
  Topology t = measured_gpus();
  for (int a = 0; a < 4; ++a) {  // between the NUMA nodes everything is slow
    for (int b = 4; b < 8; ++b) set_stores(t, a, b, 10), set_stores(t, b, a, 10);
  }
  EXPECT_TRUE(findings_of(t, "gpu-pair-slow").empty());
  set_stores(t, 0, 4, 8);
  EXPECT_EQ(findings_of(t, "gpu-pair-slow").size(), 1u);
}

TEST(GpuTransfers, WhatIsUncertainOrHasNoEqualsIsNoFinding) {
  Topology t = with_nvlinks();
  set_stores(t, 2, 5, 330);
  transfer_between(t, gpu_id(2), gpu_id(5)).bandwidth_gbps.spread->high = 379;
  EXPECT_TRUE(findings_of(t, "gpu-pair-slow").empty()) << "it may be 379";
  set_stores(t, 2, 5, 345);
  EXPECT_TRUE(findings_of(t, "gpu-pair-slow").empty()) << "91 %";
  set_stores(t, 2, 5, 100);
  transfer_between(t, gpu_id(2), gpu_id(5)).fault = "wrong";
  EXPECT_TRUE(findings_of(t, "gpu-pair-slow").empty()) << "it is worse than slow";
  Topology two = with_nvlinks();
  std::erase_if(two.edges, [](const TopologyEdge& e) {
    return e.kind == "transfer" && !(e.from == gpu_id(0) && e.to == gpu_id(1)) &&
           !(e.from == gpu_id(1) && e.to == gpu_id(0));
  });
  set_stores(two, 0, 1, 100);
  EXPECT_TRUE(findings_of(two, "gpu-pair-slow").empty());
}

TEST(GpuMemory, OneThatReachesLessThanItsEqualsIsFoundByDirection) {
  Topology t = measured_gpus();
  for (TopologyNode& node : t.nodes) node.attributes.erase("link_state");
  set_memory(t, 4, 25);
  const auto slow = findings_of(t, "gpu-memory-link-slow");
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_THAT(slow[0].nodes, ElementsAre(gpu_id(4)));
  EXPECT_EQ(slow[0].text, "numa:0 → " + gpu_id(4) +
                              " reaches 45 % of what it should: its equals reach 55 GB/s, the "
                              "median of 8");
  EXPECT_EQ(slow[0].evidence, "25 GB/s measured");
  EXPECT_THAT(slow[0].fix, HasSubstr("lspci -vv -s 0000:05:00.0"));
}

TEST(GpuMemory, WhatTheLinkUnderLoadCarriesIsTheMeasure) {
  Topology t = measured_gpus();
  for (int g = 0; g < 8; ++g) set_memory(t, g, 30, false);  // all alike
  const auto slow = findings_of(t, "gpu-memory-link-slow");
  ASSERT_EQ(slow.size(), 8u);
  EXPECT_THAT(slow[0].text, HasSubstr("reaches 48 % of what it should: its link of 32 GT/s x16 "
                                      "carries 63 GB/s"));
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kGpu) node.attributes["link_state"] = "idle";
  }
  EXPECT_TRUE(findings_of(t, "gpu-memory-link-slow").empty()) << "an idle link says little";
}

TEST(GpuMemory, OneWayThatIsFastIsEnough) {
  Topology t = measured_gpus();
  set_memory(t, 0, 20);
  transfer_between(t, "numa:1", gpu_id(0)).figures[kCopyEngineGbps] = measured_figure(54);
  EXPECT_TRUE(findings_of(t, "gpu-memory-link-slow").empty());
}

TEST(PcieSpeed, AGpuThatIsSlowUnderLoadIsAWarning) {
  Topology t = measured_gpus();
  TopologyNode* gpu = nullptr;
  for (TopologyNode& node : t.nodes) {
    if (node.id == gpu_id(2)) gpu = &node;
  }
  gpu->pci_link.speed_gts = 16;
  gpu->attributes["idle_link"] = "2.5 GT/s x16";
  auto slow = findings_of(t, "pcie-speed");
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].severity, Severity::kWarning);
  EXPECT_EQ(slow[0].text, gpu_id(2) + " runs at 16 of 32 GT/s under load");
  EXPECT_THAT(slow[0].evidence, HasSubstr("read under load; idle: 2.5 GT/s x16"));
  EXPECT_EQ(slow[0].loss_percent, 50);
  EXPECT_THAT(slow[0].fix, Not(HasSubstr("under load")));
  gpu->attributes["link_state"] = "idle";
  slow = findings_of(t, "pcie-speed");
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].severity, Severity::kInfo);
  EXPECT_THAT(slow[0].text, HasSubstr("look again under load"));
}

}  // namespace
}  // namespace topocoll
