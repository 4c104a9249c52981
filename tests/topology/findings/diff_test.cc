#include <gtest/gtest.h>

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
