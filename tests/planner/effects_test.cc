// What findings cost collectives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/make_topology.h"
#include "support/sanitized.h"
#include "topocoll/findings.h"
#include "topocoll/planning.h"
#include "topocoll/topology_formats.h"

namespace topocoll::testing {
namespace {

/// 8 GPUs on 4 PCIe switches and 2 sockets, g5 on half of its lanes, as sysfs would show it.
Topology narrow_gpu() {
  Topology t = topology_of(load_fixture("pcie_8gpu_4plx_2socket").graph);
  for (TopologyNode& node : t.nodes) {
    if (node.kind != NodeKind::kGpu) continue;
    node.bdf = "0000:0" + node.id.substr(1) + ":00.0";
    node.pci_link = {16, 16, 16, 16};
  }
  // Up and down of a PCIe link are one edge of the tree.
  std::vector<TopologyEdge> edges;
  for (TopologyEdge& edge : t.edges) {
    if (edge.from[0] == 'g') continue;
    if (edge.to[0] == 'g') edge.kind = "pci";
    if (edge.to == "g5") edge.bandwidth_gbps.declared = *edge.bandwidth_gbps.declared / 2;
    edges.push_back(edge);
  }
  t.edges = edges;
  std::find_if(t.nodes.begin(), t.nodes.end(), [](const TopologyNode& n) {
    return n.id == "g5";
  })->pci_link.width = 8;
  return t;
}

const Finding* find(const std::vector<Finding>& findings, const std::string& code) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& f) { return f.code == code; });
  return found == findings.end() ? nullptr : &*found;
}

TEST(Effects, AGpuOnHalfItsLanesCostsWhatTheFixturesSay) {
  const Topology topology = narrow_gpu();
  std::vector<Finding> findings = check_topology(topology);
  const Finding* width = find(findings, "pcie-width");
  ASSERT_NE(width, nullptr) << render_text(findings);
  add_effects(topology, findings);
  width = find(findings, "pcie-width");
  ASSERT_EQ(width->effects.size(), 2u) << render_text(findings);
  // The optima of the fixtures with and without the fault.
  EXPECT_EQ(width->effects[0].collective, "all_reduce");
  EXPECT_NEAR(width->effects[0].gbps, 6.0, 0.01);
  EXPECT_NEAR(width->effects[0].mended_gbps, 6.857, 0.01);
  EXPECT_EQ(width->effects[1].collective, "all_gather");
  EXPECT_NEAR(width->effects[1].gbps, 6.857, 1e-3);
  EXPECT_NEAR(width->effects[1].mended_gbps, 13.714, 1e-3);
  EXPECT_THAT(render_text(findings), ::testing::HasSubstr("GB/s (-12."));
  EXPECT_THAT(to_json(findings),
              ::testing::HasSubstr("\"effects\": [{\"collective\": \"all_reduce\", \"gbps\": "));
}

TEST(Effects, ASlowLinkIsMendedToWhatItDeclares) {
  Topology topology = topology_of(load_fixture("mi300x_8_full_mesh").graph);
  for (TopologyEdge& edge : topology.edges)
    edge.bandwidth_gbps.measured = *edge.bandwidth_gbps.declared;
  topology.edges[0].bandwidth_gbps.measured = *topology.edges[0].bandwidth_gbps.declared / 2;
  std::vector<Finding> findings = check_topology(topology);
  ASSERT_NE(find(findings, "link-slow"), nullptr);
  add_effects(topology, findings);
  const Finding* slow = find(findings, "link-slow");
  ASSERT_FALSE(slow->effects.empty());
  for (const FindingEffect& effect : slow->effects)
    EXPECT_GT(effect.mended_gbps, effect.gbps * 1.005);
  EXPECT_NEAR(slow->effects.back().mended_gbps, 512, 6);  // measured figures are on a grid of 1 %
}

TEST(Effects, NothingIsSaidOfWhatCostsNothingOrIsTooLarge) {
  Topology topology = narrow_gpu();
  // A fabric that connects all GPUs is used alone, so the lane width is not in the way.
  for (int a = 0; a < 8; ++a) {
    TopologyEdge edge{"g" + std::to_string(a), "fabric", "nvlink", {}, {}};
    edge.bandwidth_gbps.declared = 300;
    topology.edges.push_back(edge);
    std::swap(edge.from, edge.to);
    topology.edges.push_back(edge);
  }
  topology.nodes.push_back({"fabric", NodeKind::kNvSwitch});
  std::vector<Finding> findings = check_topology(topology);
  ASSERT_NE(find(findings, "pcie-width"), nullptr);
  add_effects(topology, findings);
  EXPECT_TRUE(find(findings, "pcie-width")->effects.empty());

  Topology large = narrow_gpu();
  for (int i = 8; i < 17; ++i) {
    large.nodes.push_back({"g" + std::to_string(i), NodeKind::kGpu});
    TopologyEdge edge{"plx0", "g" + std::to_string(i), "pci", {}, {}};
    edge.bandwidth_gbps.declared = 12;
    large.edges.push_back(edge);
  }
  findings = check_topology(large);
  ASSERT_NE(find(findings, "pcie-width"), nullptr);
  add_effects(large, findings);
  EXPECT_TRUE(find(findings, "pcie-width")->effects.empty());
}

}  // namespace
}  // namespace topocoll::testing
