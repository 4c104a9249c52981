#include "planner/ring_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/emit.h"
#include "planner/graphs.h"
#include "planner/plans.h"
#include "planner/ring_packing.h"
#include "planner/routes.h"
#include "planner/steps.h"

namespace topocoll::testing {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce};

TEST(RingPlans, EveryKindVerifiesAndComputesOnRandomRings) {
  Random random(1);
  for (CollectiveKind kind : kKinds) {
    for (int n = 1; n <= 9; ++n) {
      for (int rings = 1; rings <= 3; ++rings) {
        std::vector<std::vector<int>> orders;
        for (int k = 0; k < rings; ++k) orders.push_back(random_order(random, n));
        const int root = random.below(n);
        const auto plan = make_ring_plan(kind, orders, root);
        ASSERT_TRUE(plan.ok()) << plan.status().to_string();
        const std::string what =
            std::string(name(kind)) + ", " + std::to_string(n) + " ranks, " + std::to_string(rings);
        const Status proof = verify(*plan);
        EXPECT_TRUE(proof.ok()) << what << ": " << proof.to_string();
        EXPECT_TRUE(computes_right(*plan)) << what;
        EXPECT_EQ(plan->channels, rings);
      }
    }
  }
}

TEST(RingPlans, SendsOnlyAlongTheRing) {
  const std::vector<int> order = {2, 0, 3, 1};
  for (CollectiveKind kind : kKinds) {
    const auto plan = make_ring_plan(kind, {order}, 3);
    ASSERT_TRUE(plan.ok());
    int sent = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const Step& step : plan->steps[static_cast<std::size_t>(order[i])]) {
        if (step.kind != StepKind::kSend) continue;
        EXPECT_EQ(step.peer, order[(i + 1) % 4]) << name(kind);
        ++sent;
      }
    }
    const bool chain = has_root(kind);
    EXPECT_EQ(sent, chain ? 3 : kind == CollectiveKind::kAllReduce ? 24 : 12) << name(kind);
  }
}

TEST(RingPlans, EvaluatesAlongTheRing) {
  const auto plan = make_ring_plan(CollectiveKind::kAllReduce, {{0, 2, 1}}, 0);
  ASSERT_TRUE(plan.ok());
  // Chunk r ends its reduction at rank r, having started at r's successor.
  EXPECT_EQ(*evaluation_order(*plan, 1, 0), "((2+1)+0)");
  EXPECT_EQ(*evaluation_order(*plan, 0, 1), "((0+2)+1)");
  EXPECT_EQ(*evaluation_order(*plan, 2, 2), "((1+0)+2)");
}

TEST(RingPlans, RoutesFitTheGraph) {
  for (const std::string& name : fixture_names()) {
    const Graph graph = load_fixture(name).graph;
    if (graph.ranks() > 8) continue;
    const Routes routes(graph);
    const auto rings = round_rings(routes, 8);
    if (!rings.ok()) continue;
    for (CollectiveKind kind : kKinds) {
      Plan plan = *make_ring_plan(kind, rings->orders, 0);
      // A little less than the capacity, for rounding.
      const double gbps = graph.gbps(rings->rate_each) * (1 - 1e-9);
      ASSERT_TRUE(set_routes(plan, graph, routes, gbps).ok()) << name;
      const Status proof = verify(plan);
      EXPECT_TRUE(proof.ok()) << name << ": " << proof.to_string();
      const Status fits = check_routes(plan, graph);
      EXPECT_TRUE(fits.ok()) << name << ": " << fits.to_string();
      EXPECT_EQ(plan_from_json(to_json(plan))->routes, plan.routes);
    }
  }
}

TEST(RingPlans, NamesWhatIsWrong) {
  const auto text = [](CollectiveKind kind, std::vector<std::vector<int>> orders, int root) {
    const auto plan = make_ring_plan(kind, orders, root);
    EXPECT_FALSE(plan.ok());
    return plan.status().text();
  };
  const auto kind = CollectiveKind::kAllReduce;
  EXPECT_THAT(text(kind, {}, 0), ::testing::HasSubstr("0 rings"));
  EXPECT_THAT(text(kind, {{}}, 0), ::testing::HasSubstr("ring 0 has 0 ranks"));
  EXPECT_THAT(text(kind, {{0, 1}, {1, 1}}, 0),
              ::testing::HasSubstr("ring 1: rank 1 is there twice; list each of 0 to 1 once"));
  EXPECT_THAT(text(kind, {{0, 2}}, 0), ::testing::HasSubstr("rank 2 is none of the group"));
  EXPECT_THAT(text(kind, {{0, 1}, {0}}, 0), ::testing::HasSubstr("ring 1 has 1 ranks, ring 0 2"));
  EXPECT_THAT(text(CollectiveKind::kBroadcast, {{0, 1}}, 2), ::testing::HasSubstr("root 2"));
  EXPECT_THAT(text(CollectiveKind::kAllToAll, {{0, 1}}, 0), ::testing::HasSubstr("not all_to_all"));
}

}  // namespace
}  // namespace topocoll::testing
