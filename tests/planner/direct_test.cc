#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "planner/plans.h"
#include "topocoll/plan.h"

namespace topocoll::testing {
namespace {

std::vector<std::pair<CollectiveKind, std::string>> direct_plans() {
  std::vector<std::pair<CollectiveKind, std::string>> result;
  for (int k = 0; k < kNumCollectiveKinds; ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    if (kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv) continue;
    result.emplace_back(kind, "one_shot");
    if (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
        kind == CollectiveKind::kBroadcast) {
      result.emplace_back(kind, "two_shot");
    }
  }
  return result;
}

std::string rank_order(int ranks) {
  std::string order = "0";
  for (int r = 1; r < ranks; ++r) order = "(" + order + "+" + std::to_string(r) + ")";
  return order;
}

TEST(DirectPlan, EveryKindVerifiesAndComputes) {
  for (const auto& [kind, algorithm] : direct_plans()) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (int root = 0; root < (has_root(kind) ? ranks : 1); ++root) {
        const auto plan = make_direct_plan(kind, algorithm, ranks, root);
        ASSERT_TRUE(plan.ok()) << plan.status().to_string();
        const std::string what = std::string(name(kind)) + " " + algorithm + " " +
                                 std::to_string(ranks) + " ranks, root " + std::to_string(root);
        const Status status = verify(*plan);
        EXPECT_TRUE(status.ok()) << what << ": " << status.to_string();
        EXPECT_TRUE(computes_right(*plan)) << what;
        EXPECT_EQ(plan->kind, kind);
        EXPECT_EQ(plan->algorithm, algorithm);
      }
    }
  }
}

TEST(DirectPlan, SixtyFourRanksVerify) {
  for (const auto& [kind, algorithm] : direct_plans()) {
    const auto plan = make_direct_plan(kind, algorithm, 64, 17);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Status status = verify(*plan);
    EXPECT_TRUE(status.ok()) << name(kind) << " " << algorithm << ": " << status.to_string();
  }
}

TEST(DirectPlan, ReducesInRankOrderOnEveryRankAndChunk) {
  for (const auto& [kind, algorithm] : direct_plans()) {
    if (!reduces(kind)) continue;
    for (int ranks : {1, 2, 5, 8}) {
      const auto plan = make_direct_plan(kind, algorithm, ranks, ranks - 1);
      ASSERT_TRUE(plan.ok());
      for (int r = 0; r < ranks; ++r) {
        for (int c = 0; c < output_chunks(*plan, r); ++c) {
          const auto order = evaluation_order(*plan, r, c);
          ASSERT_TRUE(order.ok()) << order.status().to_string();
          EXPECT_EQ(*order, rank_order(ranks)) << name(kind) << " " << algorithm;
        }
      }
    }
  }
}

TEST(DirectPlan, ChunkCountsFollowTheTable) {
  const auto counts = [](CollectiveKind kind, const char* algorithm, int rank) {
    const Plan plan = make_direct_plan(kind, algorithm, 4, 2).value();
    return std::pair(input_chunks(plan, rank), output_chunks(plan, rank));
  };
  using Counts = std::pair<int, int>;
  EXPECT_EQ(counts(CollectiveKind::kAllReduce, "one_shot", 0), Counts(1, 1));
  EXPECT_EQ(counts(CollectiveKind::kAllReduce, "two_shot", 0), Counts(4, 4));
  EXPECT_EQ(counts(CollectiveKind::kBroadcast, "two_shot", 2), Counts(4, 4));
  EXPECT_EQ(counts(CollectiveKind::kBroadcast, "two_shot", 0), Counts(0, 4));
  EXPECT_EQ(counts(CollectiveKind::kReduce, "two_shot", 2), Counts(4, 4));
  EXPECT_EQ(counts(CollectiveKind::kReduce, "two_shot", 1), Counts(4, 0));
  EXPECT_EQ(counts(CollectiveKind::kAllGather, "one_shot", 1), Counts(1, 4));
  EXPECT_EQ(counts(CollectiveKind::kReduceScatter, "one_shot", 1), Counts(4, 1));
  EXPECT_EQ(counts(CollectiveKind::kAllToAll, "one_shot", 1), Counts(4, 4));
  EXPECT_EQ(counts(CollectiveKind::kGather, "one_shot", 2), Counts(1, 4));
  EXPECT_EQ(counts(CollectiveKind::kGather, "one_shot", 1), Counts(1, 0));
  EXPECT_EQ(counts(CollectiveKind::kScatter, "one_shot", 2), Counts(4, 1));
  EXPECT_EQ(counts(CollectiveKind::kScatter, "one_shot", 1), Counts(0, 1));
  EXPECT_EQ(counts(CollectiveKind::kBarrier, "one_shot", 1), Counts(0, 0));
}

TEST(DirectPlan, StepsOfOneRankAreAsDocumented) {
  const Plan plan = make_direct_plan(CollectiveKind::kAllReduce, "two_shot", 3, 0).value();
  const std::vector<Step> rank1 = {
      send(2, in(2)),
      send(0, in(0)),
      recv(2, tmp(2)),
      recv(0, tmp(0)),
      reduce({tmp(0), in(1), tmp(2)}, out(1)),
      send(2, out(1)),
      send(0, out(1)),
      recv(2, out(2)),
      recv(0, out(0)),
  };
  EXPECT_EQ(plan.steps[1], rank1);
}

TEST(DirectPlan, NoRankIsTheFirstTargetOfTwo) {
  const Plan plan = make_direct_plan(CollectiveKind::kAllToAll, "one_shot", 8, 0).value();
  for (std::size_t position = 0; position < 7; ++position) {
    std::vector<bool> hit(8, false);
    for (const auto& steps : plan.steps) {
      ASSERT_EQ(steps[position].kind, StepKind::kSend);
      EXPECT_FALSE(hit[static_cast<std::size_t>(steps[position].peer)]);
      hit[static_cast<std::size_t>(steps[position].peer)] = true;
    }
  }
}

TEST(DirectPlan, OneRankOnlyCopies) {
  for (const auto& [kind, algorithm] : direct_plans()) {
    const Plan plan = make_direct_plan(kind, algorithm, 1, 0).value();
    const std::size_t steps = kind == CollectiveKind::kBarrier ? 0 : 1;
    ASSERT_EQ(plan.steps[0].size(), steps) << name(kind);
    if (steps == 1) {
      EXPECT_EQ(plan.steps[0][0], copy(in(0), out(0)));
    }
    EXPECT_EQ(plan.scratch_chunks, 0);
  }
}

TEST(DirectPlan, SenselessRequestsAreRefused) {
  const auto cause = [](CollectiveKind kind, const char* algorithm, int ranks, int root) {
    return make_direct_plan(kind, algorithm, ranks, root).status().cause();
  };
  EXPECT_EQ(cause(CollectiveKind::kAllReduce, "one_shot", 0, 0), Cause::kInvalidArgument);
  EXPECT_EQ(cause(CollectiveKind::kAllReduce, "one_shot", -3, 0), Cause::kInvalidArgument);
  EXPECT_EQ(cause(CollectiveKind::kBroadcast, "one_shot", 4, 4), Cause::kInvalidArgument);
  EXPECT_EQ(cause(CollectiveKind::kBroadcast, "one_shot", 4, -1), Cause::kInvalidArgument);
  EXPECT_EQ(cause(CollectiveKind::kAllReduce, "one_shot", 1 << 20, 0), Cause::kUnsupported);
  EXPECT_EQ(cause(CollectiveKind::kAllReduce, "ring", 4, 0), Cause::kUnsupported);
  EXPECT_EQ(cause(CollectiveKind::kAllReduce, "", 4, 0), Cause::kUnsupported);
  EXPECT_EQ(cause(CollectiveKind::kAllGather, "two_shot", 4, 0), Cause::kUnsupported);
  EXPECT_EQ(cause(CollectiveKind::kSend, "one_shot", 4, 0), Cause::kUnsupported);
  EXPECT_EQ(cause(CollectiveKind::kRecv, "one_shot", 4, 0), Cause::kUnsupported);
  EXPECT_EQ(cause(CollectiveKind::kAllReduce, "one_shot", 4, 99), Cause::kOk);  // no root there
}

}  // namespace
}  // namespace topocoll::testing
