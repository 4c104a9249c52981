#include <gtest/gtest.h>

#include <algorithm>

#include "support/measured_gpus.h"
#include "topocoll/findings.h"

namespace topocoll {
namespace {

TEST(Diff, FiguresAndFaultsOfTransfers) {
  const Topology before = testing::measured_gpus();
  Topology after = before;
  TopologyEdge& edge = testing::transfer_between(after, testing::gpu_id(0), "numa:1");
  edge.fault = "stores: 3 of 4096 words differ";
  *edge.figures[kCopyEngineGbps].measured *= 1.0001;  // the same
  edge.figures[kLoadedLatencyNs].measured = 2000;
  EXPECT_EQ(
      render_text(diff_topologies(before, after)),
      "~ edge gpu:0000:01:00.0 → numa:1 (transfer)  fault: (absent) → stores: 3 of 4096 words "
      "differ\n"
      "~ edge gpu:0000:01:00.0 → numa:1 (transfer)  figures.loaded_latency_ns.measured: "
      "(absent) → 2000\n");
}

std::string difference_of_stores(const Figure& before, const Figure& after) {
  Topology a = testing::measured_gpus();
  Topology b = a;
  testing::transfer_between(a, testing::gpu_id(0), testing::gpu_id(1)).bandwidth_gbps = before;
  testing::transfer_between(b, testing::gpu_id(0), testing::gpu_id(1)).bandwidth_gbps = after;
  return render_text(diff_topologies(a, b));
}

TEST(Diff, MeasuredFiguresDifferOnlyBeyondWhatTwoProbesOfOneMachineDo) {
  const std::string edge = "~ edge gpu:0000:01:00.0 → gpu:0000:02:00.0 (transfer)  bandwidth_gbps.";
  const Figure kept = testing::measured_figure(100);
  EXPECT_EQ(difference_of_stores(kept, testing::measured_figure(96)), "") << "apart, but near";
  EXPECT_EQ(difference_of_stores(kept, {{}, 80, Spread{75, 99, 99, 9}}), "") << "intervals touch";
  EXPECT_EQ(difference_of_stores({{}, 80, Spread{75, 99, 99, 9}}, kept), "");
  EXPECT_EQ(difference_of_stores(kept, testing::measured_figure(94)),
            edge + "measured: 100 → 94\n");
  EXPECT_EQ(difference_of_stores(testing::measured_figure(94), kept),
            edge + "measured: 94 → 100\n");
  EXPECT_EQ(difference_of_stores({{}, 100}, {{}, 96}), "");
  EXPECT_EQ(difference_of_stores(kept, {{}, 94}), edge + "measured: 100 → 94\n");
  EXPECT_EQ(difference_of_stores({100, {}}, {100.05, {}}), "");
  EXPECT_EQ(difference_of_stores({100, {}}, {100.2, {}}), edge + "declared: 100 → 100.2\n");
}

TEST(Diff, WhatVariesByItselfIsNoDifference) {
  Topology before = testing::measured_gpus();
  const auto numa = [](Topology& t) {
    return std::find_if(t.nodes.begin(), t.nodes.end(),
                        [](const TopologyNode& n) { return n.id == "numa:0"; });
  };
  numa(before)->size_bytes = 1000;
  Topology after = before;
  for (const char* name : {"temperature_c", "utilization_percent", "shm_free_bytes", "idle_link"}) {
    before.nodes.back().attributes[name] = "30";
    after.nodes.back().attributes[name] = "31";
  }
  numa(after)->size_bytes = 901;
  EXPECT_EQ(render_text(diff_topologies(before, after)), "");
  numa(after)->size_bytes = 890;
  after.nodes.back().attributes["ecc_corrected"] = "1";
  EXPECT_EQ(render_text(diff_topologies(before, after)),
            "~ node numa:0  size_bytes: 1000 → 890\n"
            "~ node gpu:0000:08:00.0  attributes.ecc_corrected: (absent) → 1\n");
}

TEST(Diff, AttributesThatAreNamedLikeFiguresAreTexts) {
  Topology before = testing::measured_gpus();
  before.nodes[0].attributes["firmware.measured"] = "yes";
  Topology after = before;
  after.nodes[0].attributes["firmware.measured"] = "no";
  EXPECT_EQ(render_text(diff_topologies(before, after)),
            "~ node host  attributes.firmware.measured: yes → no\n");
}

}  // namespace
}  // namespace topocoll
