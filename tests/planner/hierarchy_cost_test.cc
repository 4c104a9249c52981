#include "planner/hierarchy_cost.h"

#include <gtest/gtest.h>

#include "planner/cluster_bound.h"
#include "planner/clusters.h"
#include "planner/make_graphs.h"

namespace topocoll {
namespace {

using namespace topocoll::testing;

constexpr std::pair<CollectiveKind, NodeShape> kWays[] = {
    {CollectiveKind::kAllGather, NodeShape::kRing},
    {CollectiveKind::kReduceScatter, NodeShape::kRing},
    {CollectiveKind::kAllReduce, NodeShape::kRing},
    {CollectiveKind::kAllReduce, NodeShape::kDoubleTree},
    {CollectiveKind::kBroadcast, NodeShape::kChain},
    {CollectiveKind::kBroadcast, NodeShape::kBinaryTree},
    {CollectiveKind::kReduce, NodeShape::kBinaryTree},
};

TEST(HierarchyCost, WhatIsExtendedAgreesWithTheWholeSimulation) {
  Fabric fabric = per_gpu(10, 4);
  fabric.latency_ns = 1500;
  const Cluster cluster = cluster_of(full_mesh(4, 40, 500), fabric, 31);
  for (const auto& [kind, shape] : kWays) {
    const auto plan = plan_hierarchy(cluster, {kind, shape, 0, 0, {}});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto extended = HierarchyCost::make(*plan);
    const auto whole = HierarchyCost::make(*plan, cluster.nodes);
    ASSERT_TRUE(extended.ok() && whole.ok());
    for (const std::uint64_t bytes :
         {std::uint64_t{1} << 12, std::uint64_t{1} << 20, std::uint64_t{1} << 26}) {
      const auto guess = extended->predict(bytes);
      const auto simulated = whole->predict(bytes);
      ASSERT_TRUE(guess.ok() && simulated.ok());
      EXPECT_NEAR(guess->time_us / simulated->time_us, 1, 0.15)
          << name(kind) << " by " << name(shape) << ", " << bytes << " bytes: " << guess->time_us
          << " and " << simulated->time_us;
    }
  }
}

TEST(HierarchyCost, LatencyCountsForSmallMessagesAndNothingBeatsTheBound) {
  const Cluster cluster =
      cluster_of(node_of("hgxh100_x2_rail8"), below_leaves(per_gpu(50, 8), 32, 4), 2048);
  for (const auto& [kind, shape] : kWays) {
    const auto plan = plan_hierarchy(cluster, {kind, shape, 0, 0, {}});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto cost = HierarchyCost::make(*plan);
    ASSERT_TRUE(cost.ok()) << cost.status().to_string();
    const double bound = cluster_bound(cluster, kind, 0)->algbw.to_double();
    const auto small = cost->predict(1024);
    const auto large = cost->predict(std::uint64_t{1} << 40);
    ASSERT_TRUE(small.ok() && large.ok());
    EXPECT_LT(small->time_us, large->time_us);
    EXPECT_LE(large->algbw_gbps, bound * (1 + 1e-9)) << name(kind) << " by " << name(shape);
    EXPECT_GE(large->algbw_gbps, 0.8 * plan->algbw()->to_double())
        << name(kind) << " by " << name(shape);
  }
}

TEST(HierarchyCost, TreesWinWhereStepsCostMoreThanBytes) {
  const Cluster cluster = cluster_of(node_of("hgxh100_x2_rail8"), per_gpu(50, 8), 512);
  const auto ring =
      plan_hierarchy(cluster, {CollectiveKind::kAllReduce, NodeShape::kRing, 0, 0, {}});
  const auto tree =
      plan_hierarchy(cluster, {CollectiveKind::kAllReduce, NodeShape::kDoubleTree, 0, 0, {}});
  ASSERT_TRUE(ring.ok() && tree.ok());
  const auto ring_cost = HierarchyCost::make(*ring);
  const auto tree_cost = HierarchyCost::make(*tree);
  ASSERT_TRUE(ring_cost.ok() && tree_cost.ok());
  EXPECT_LT(tree_cost->predict(1 << 16)->time_us, ring_cost->predict(1 << 16)->time_us / 10);
}

TEST(HierarchyCost, SpinesAddTheirLatency) {
  Fabric near = below_leaves(per_gpu(50, 8), 4);
  near.latency_ns = 1000;
  near.spine_latency_ns = 0;
  Fabric far = near;
  far.spine_latency_ns = 8000;
  const auto time_of = [](const Fabric& fabric) {
    const Cluster cluster = cluster_of(node_of("hgxh100_x2_rail8"), fabric, 64);
    const auto plan =
        plan_hierarchy(cluster, {CollectiveKind::kAllGather, NodeShape::kRing, 0, 0, {}});
    return HierarchyCost::make(*plan)->predict(1 << 10)->time_us;
  };
  // Every fourth of the 63 hops passes a spine.
  EXPECT_NEAR(time_of(far) - time_of(near), 8.0 * 63 / 4, 8);
}

}  // namespace
}  // namespace topocoll
