// A plan over the picture of its machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "planner/make_topology.h"
#include "topocoll/planning.h"

namespace topocoll::testing {
namespace {

using ::testing::HasSubstr;

PlanningReport planned(const std::string& fixture, CollectiveKind kind) {
  const auto report = plan_collective(topology_of(load_fixture(fixture).graph), {kind, 0, 16});
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return *report;
}

TEST(PlanningPicture, RingsCloseAndAreTold) {
  const PlanningReport report = planned("dgx1v_8xV100", CollectiveKind::kAllGather);
  const PictureOverlay overlay = picture_of(report);
  ASSERT_EQ(overlay.lines.size(), report.rings.size());
  for (const PictureLine& line : overlay.lines) {
    std::set<std::string> from;
    std::set<std::string> into;
    for (const auto& [a, b] : line.arrows) from.insert(a), into.insert(b);
    EXPECT_EQ(from.size(), 8u);
    EXPECT_EQ(into, from);
  }
  EXPECT_THAT(overlay.title, HasSubstr("all_gather by rings: 171.4 of 171.4 GB/s"));
  EXPECT_EQ(overlay.marked, std::set<std::string>{"g0"});
  EXPECT_THAT(overlay.legend.at(0), HasSubstr("bottleneck: what passes between g0 and the rest"));
}

TEST(PlanningPicture, TreesLeadFromRankToRankPastSwitches) {
  const PlanningReport report = planned("pcie_8gpu_4plx_2socket", CollectiveKind::kAllReduce);
  ASSERT_FALSE(report.trees.empty());
  const PictureOverlay overlay = picture_of(report);
  ASSERT_FALSE(overlay.lines.empty());
  const std::set<std::string> ranks(report.ranks.begin(), report.ranks.end());
  for (const PictureLine& line : overlay.lines) {
    std::set<std::string> met;
    for (const auto& [from, to] : line.arrows) met.insert(from), met.insert(to);
    EXPECT_EQ(line.arrows.size(), 7u);
    EXPECT_EQ(met, ranks);
  }
}

TEST(PlanningPicture, ManyTreesAreCutAndCounted) {
  const PlanningReport report = planned("mi250_1x16", CollectiveKind::kAllGather);
  const PictureOverlay overlay = picture_of(report);
  std::size_t arrows = 0;
  for (const PictureLine& line : overlay.lines) arrows += line.arrows.size();
  EXPECT_LE(arrows, 64u);
  EXPECT_THAT(
      overlay.legend.back(),
      HasSubstr("and " + std::to_string(report.trees.size() - overlay.lines.size()) + " more"));
}

}  // namespace
}  // namespace topocoll::testing
