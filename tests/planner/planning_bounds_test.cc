#include "planner/planning_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/make_graphs.h"

namespace topocoll::testing {
namespace {

using Kind = CollectiveKind;
using ::testing::AnyOf;

TEST(PlanningBounds, TheCutIsNamedByItsSmallerSide) {
  const Graph dgx = load_fixture("dgx1v_degraded_03half_67dead").graph;
  EXPECT_EQ(bound_of(dgx, Kind::kAllGather, 0)->bottleneck, "what passes between g6 and the rest");
  const auto pairs = bound_of(load_fixture("nca100v4_4gpu_pairs").graph, Kind::kAllGather, 0);
  EXPECT_THAT(pairs->bottleneck, AnyOf("what passes between {g2, g3} and the rest",
                                       "what passes between {g0, g1} and the rest"));
}

TEST(PlanningBounds, AnAllReduceNamesWhatLimitsItAndNotItsAllGather) {
  // 8 GPUs with 150 GB/s each take in 1200 GB/s; each element is taken in 14 times.
  const Graph dgx = load_fixture("dgx1v_8xV100").graph;
  const auto bound = bound_of(dgx, Kind::kAllReduce, 0);
  EXPECT_EQ(bound->algbw.to_string(), "600/7");
  EXPECT_EQ(bound->bottleneck, "what all ranks take in together");
  EXPECT_TRUE(smaller_part(dgx, bound->parts).empty());
  // So every link helps, also one that g0 knows nothing of.
  std::size_t without_g0 = 0;
  for (const PlanningWish& wish : wishes(dgx, *bound, {Kind::kAllReduce})) {
    if (wish.from != "g0" && wish.to != "g0") ++without_g0;
  }
  EXPECT_GT(without_g0, 0u);
}

TEST(PlanningBounds, AThinLinkIsACutForAnAllReduceToo) {
  const Graph pair = GraphMaker(2).both("g0", "g1", 8).make();
  const auto bound = bound_of(pair, Kind::kAllReduce, 0);
  EXPECT_EQ(bound->bottleneck, "what passes between g0 and the rest");
  EXPECT_EQ(smaller_part(pair, bound->parts), std::vector<std::string>{"g0"});
}

TEST(PlanningBounds, ALinkThatIsNarrowBothWaysIsWishedWiderBothWays) {
  const Graph slot = load_fixture("pcie_8gpu_g5_at_x8").graph;
  const auto bound = bound_of(slot, Kind::kAllReduce, 0);
  const auto wished = wishes(slot, *bound, {Kind::kAllReduce});
  ASSERT_EQ(wished.size(), 1u);
  EXPECT_TRUE(wished[0].both_ways);
  EXPECT_TRUE(wished[0].from == "g5" || wished[0].to == "g5");
  EXPECT_DOUBLE_EQ(wished[0].bound_gbps, 48.0 / 7);
}

TEST(PlanningBounds, WhatOneDirectionReachesIsWishedOfThatOneOnly) {
  const Graph slot = load_fixture("pcie_8gpu_g5_at_x8").graph;
  const auto bound = bound_of(slot, Kind::kAllGather, 0);
  const auto wished = wishes(slot, *bound, {Kind::kAllGather});
  ASSERT_FALSE(wished.empty());
  for (const PlanningWish& wish : wished) EXPECT_FALSE(wish.both_ways);
}

}  // namespace
}  // namespace topocoll::testing
