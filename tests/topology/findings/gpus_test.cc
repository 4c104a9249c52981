#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topocoll/findings.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;

/// A GPU with 12 NVLinks and these attributes.
Topology gpu(const std::map<std::string, std::string>& attributes, int links = 12) {
  Topology t = synthetic_topology("numa:1 core:1 pu:1").value();
  TopologyNode node;
  node.id = "gpu:0000:01:00.0";
  node.kind = NodeKind::kGpu;
  node.bdf = "0000:01:00.0";
  node.attributes = attributes;
  t.nodes.push_back(node);
  t.edges.push_back({"numa:0", node.id, "pci", {}, {}});
  t.nodes.push_back({"nvswitch:hidden", NodeKind::kNvSwitch, "", {}, {}, {}, {}, {}});
  if (links == 0) return t;
  t.edges.push_back({node.id, "nvswitch:hidden", "nvlink", {}, {}});
  t.edges.back().count = links;
  return t;
}

/// The only finding of this code; its text is empty if there is none.
Finding only(const Topology& t, const std::string& code) {
  std::vector<Finding> found = check_topology(t);
  std::erase_if(found, [&](const Finding& f) { return f.code != code; });
  EXPECT_LE(found.size(), 1u);
  return found.empty() ? Finding() : found.front();
}

TEST(GpuHealth, LostDataIsAnError) {
  const Finding lost = only(gpu({{"ecc_uncorrected", "3"}}), "gpu-ecc");
  EXPECT_EQ(lost.severity, Severity::kError);
  EXPECT_THAT(lost.evidence, HasSubstr("3 uncorrected ECC errors"));
  EXPECT_THAT(lost.fix, HasSubstr("0000:01:00.0"));
  EXPECT_EQ(only(gpu({{"ecc_uncorrected", "0"}, {"ecc_corrected", "9"}}), "gpu-ecc").text, "");
}

TEST(GpuHealth, HeatIsAWarningAndAPowerCapIsNot) {
  const Finding hot =
      only(gpu({{"throttled_by", "hw_thermal"}, {"temperature_c", "93"}}), "gpu-throttled");
  EXPECT_EQ(hot.severity, Severity::kWarning);
  EXPECT_THAT(hot.evidence, HasSubstr("93 °C"));
  EXPECT_EQ(only(gpu({{"throttled_by", "sw_thermal"}}), "gpu-throttled").severity,
            Severity::kWarning);
  EXPECT_EQ(only(gpu({{"throttled_by", "sw_power_cap"}}), "gpu-throttled").severity,
            Severity::kInfo);
  EXPECT_EQ(only(gpu({{"temperature_c", "93"}}), "gpu-throttled").text, "");
}

TEST(GpuHealth, LinksThatAreDownAreCounted) {
  const Finding down = only(gpu({{"nvlinks_down", "6"}, {"nvlink_errors", "0"}}), "nvlink-down");
  EXPECT_EQ(down.text, "6 of 18 NVLinks of gpu:0000:01:00.0 are down");
  EXPECT_NEAR(down.loss_percent.value_or(0), 100.0 / 3, 1e-9);
  EXPECT_EQ(only(gpu({{"nvlinks_down", "0"}}), "nvlink-down").text, "");
  EXPECT_EQ(only(gpu({{"nvlinks_down", "12"}}, 0), "nvlink-down").text, "") << "there is no bridge";
}

TEST(GpuHealth, ErrorsOfLinksAreWorthKnowing) {
  EXPECT_EQ(only(gpu({{"nvlink_errors", "5"}}), "nvlink-errors").severity, Severity::kInfo);
  EXPECT_THAT(only(gpu({{"nvlink_errors", "5"}}), "nvlink-errors").evidence,
              HasSubstr("5 replays"));
  EXPECT_EQ(only(gpu({{"nvlink_errors", "0"}}), "nvlink-errors").text, "");
}

}  // namespace
}  // namespace topocoll
