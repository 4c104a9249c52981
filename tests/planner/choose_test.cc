#include "planner/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/emit.h"
#include "planner/graphs.h"
#include "planner/make_graphs.h"

namespace topocoll::testing {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

PlanTable table_for(CollectiveKind kind, const Graph& graph) {
  const Routes routes(graph);
  const auto candidates = make_candidates(kind, graph, routes, {});
  EXPECT_TRUE(candidates.ok()) << candidates.status().to_string();
  ChooseOptions options;
  options.max_windows = 8;
  const auto table = choose(candidates->plans, graph, routes, CostModel::declared(), options);
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return table.ok() ? *table : PlanTable();
}

TEST(Choose, CoversEverySizeOnceForEveryKind) {
  const Graph graph = full_mesh(4, 25);
  for (CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
        CollectiveKind::kBroadcast, CollectiveKind::kReduce, CollectiveKind::kAllToAll}) {
    const PlanTable table = table_for(kind, graph);
    ASSERT_FALSE(table.bands.empty());
    EXPECT_EQ(table.bands.back().max_bytes, kMax);
    for (std::size_t i = 0; i < table.bands.size(); ++i) {
      const PlanBand& band = table.bands[i];
      EXPECT_EQ(band.plan.kind, kind);
      EXPECT_EQ(band.plan.min_bytes, band.min_bytes);
      EXPECT_EQ(band.plan.max_bytes, band.max_bytes);
      EXPECT_TRUE(verify(band.plan).ok());
      if (kind != CollectiveKind::kAllToAll) {
        ASSERT_TRUE(band.runner_up);
        EXPECT_NE(band.runner_up->algorithm, band.plan.algorithm);
      }
      EXPECT_EQ(band.min_bytes, i == 0 ? 0 : table.bands[i - 1].max_bytes + 1);
      EXPECT_EQ(table.find(band.min_bytes), &band);
      EXPECT_EQ(table.find(band.max_bytes), &band);
    }
  }
}

TEST(Choose, TakesFewStepsForSmallAndFullLinksForLargeMessages) {
  const Fixture fixture = load_fixture("mi300x_8_full_mesh");
  const PlanTable table = table_for(CollectiveKind::kAllReduce, fixture.graph);
  EXPECT_EQ(table.find(256)->plan.algorithm, "one_shot");
  EXPECT_NE(table.find(1 << 30)->plan.algorithm, "one_shot");
  EXPECT_NE(table.find(1 << 30)->plan.algorithm, "ring");
}

TEST(Choose, UsesRingsWhereLinksAreFew) {
  const Fixture fixture = load_fixture("dgx1v_8xV100");
  const Routes routes(fixture.graph);
  const auto candidates = make_candidates(CollectiveKind::kAllReduce, fixture.graph, routes, {});
  ASSERT_TRUE(candidates.ok());
  // Direct plans need links between all pairs, which this machine lacks.
  ASSERT_GE(candidates->skipped.size(), 2U);
  EXPECT_THAT(candidates->skipped[0], ::testing::HasSubstr("one_shot: rank 0 has no way to rank"));
  const PlanTable table = table_for(CollectiveKind::kAllReduce, fixture.graph);
  EXPECT_NE(table.find(1 << 30)->plan.algorithm, "ring");
  EXPECT_GT(table.bands.back().predicted_gbps, 80);
  EXPECT_LE(table.bands.back().predicted_gbps, 85.72);
}

TEST(Choose, TakesFewerChunksWhereTheyAreWorthMoreThanTheLastPerCents) {
  const Graph graph = load_fixture("dgxa100_x2").graph;
  const Routes routes(graph);
  const auto candidates = make_candidates(CollectiveKind::kAllGather, graph, routes, {0, 1});
  ASSERT_TRUE(candidates.ok()) << candidates.status().to_string();
  std::vector<Plan> trees;
  for (const Plan& plan : candidates->plans) {
    if (plan.algorithm == "trees") trees.push_back(plan);
  }
  ASSERT_GE(trees.size(), 2u);
  ChooseOptions options;
  options.min_bytes = options.max_bytes = 1 << 28;
  const auto fine = choose({trees[0]}, graph, routes, CostModel::declared(), options);
  const auto best = choose(trees, graph, routes, CostModel::declared(), options);
  ASSERT_TRUE(fine.ok() && best.ok());
  EXPECT_LT(best->bands[0].plan.chunks, trees[0].chunks);
  EXPECT_GT(best->bands[0].predicted_gbps, 1.15 * fine->bands[0].predicted_gbps);
}

TEST(Choose, GivesPathsChannelsByWeightWhereFairSharesOfLinksHoldTreesUp) {
  const Graph graph = random_graph(840, true);
  const Routes routes(graph);
  const auto candidates = make_candidates(CollectiveKind::kAllGather, graph, routes, {0, 1});
  ASSERT_TRUE(candidates.ok()) << candidates.status().to_string();
  const Result<Packing> packing = pack_allgather(graph);
  ASSERT_TRUE(packing.ok());
  const auto one = plan_from_packing(CollectiveKind::kAllGather, graph, *packing);
  ASSERT_TRUE(one.ok());
  ChooseOptions options;
  options.min_bytes = options.max_bytes = 1 << 29;
  const auto before = choose({one->plan}, graph, routes, CostModel::declared(), options);
  const auto best = choose(candidates->plans, graph, routes, CostModel::declared(), options);
  ASSERT_TRUE(before.ok() && best.ok());
  EXPECT_GT(best->bands[0].plan.channels, one->plan.channels);
  EXPECT_GT(best->bands[0].predicted_gbps, 1.08 * before->bands[0].predicted_gbps);
}

TEST(Choose, WeighsPlansInWhichHostsFollowEachOther) {
  const Graph graph = load_fixture("hgxh100_x2_rail8").graph;
  const Routes routes(graph);
  const auto candidates = make_candidates(CollectiveKind::kAllReduce, graph, routes, {0, 1});
  ASSERT_TRUE(candidates.ok()) << candidates.status().to_string();
  ChooseOptions options;
  options.min_bytes = options.max_bytes = 4 << 20;
  const auto best = choose(candidates->plans, graph, routes, CostModel::declared(), options);
  ASSERT_TRUE(best.ok()) << best.status().to_string();
  EXPECT_THAT(best->bands[0].plan.algorithm, ::testing::HasSubstr("hierarchical"));
  std::vector<Plan> flat;
  for (const Plan& plan : candidates->plans) {
    if (plan.algorithm.find("hierarchical") == std::string::npos) flat.push_back(plan);
  }
  const auto without = choose(flat, graph, routes, CostModel::declared(), options);
  ASSERT_TRUE(without.ok());
  EXPECT_GT(best->bands[0].predicted_gbps, 1.3 * without->bands[0].predicted_gbps);
}

TEST(Choose, GivesTheSameTableTwice) {
  const Graph graph = load_fixture("pcie_8gpu_4plx_2socket").graph;
  const PlanTable a = table_for(CollectiveKind::kAllReduce, graph);
  const PlanTable b = table_for(CollectiveKind::kAllReduce, graph);
  ASSERT_EQ(a.bands.size(), b.bands.size());
  for (std::size_t i = 0; i < a.bands.size(); ++i) {
    EXPECT_EQ(a.bands[i].plan, b.bands[i].plan);
    EXPECT_EQ(a.bands[i].windows, b.bands[i].windows);
    EXPECT_EQ(a.bands[i].predicted_gbps, b.bands[i].predicted_gbps);
  }
}

TEST(Rechoose, KeepsPlansThroughNoiseAndLeavesThemForARealGain) {
  const auto mesh = [](double slow) {
    GraphMaker maker(4);
    for (int a = 0; a < 4; ++a) {
      for (int b = 0; b < 4; ++b) {
        if (a != b) maker.link(rank_name(a), rank_name(b), b == (a + 1) % 4 ? slow : 25);
      }
    }
    return maker.make();
  };
  const auto ring_plans = [](const Graph& graph) {
    const auto candidates =
        make_candidates(CollectiveKind::kAllReduce, graph, Routes(graph), {0, 1});
    EXPECT_TRUE(candidates.ok());
    std::vector<Plan> rings;
    for (const Plan& plan : candidates->plans) {
      if (plan.algorithm == "ring") rings.push_back(plan);
    }
    return rings;
  };
  const CostModel model = CostModel::declared();  // relative error 0.1
  ChooseOptions options;
  options.min_bytes = options.max_bytes = 1 << 28;
  const Graph before = mesh(26);  // the ring 0 1 2 3 is a little better than others
  const auto table = choose(ring_plans(before), before, Routes(before), model, options);
  ASSERT_TRUE(table.ok()) << table.status().to_string();

  const Graph noisy = mesh(22);  // others are better by 14 %
  const auto kept = rechoose(*table, ring_plans(noisy), noisy, Routes(noisy), model, options);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->bands[0].plan, table->bands[0].plan);

  const Graph broken = mesh(10);
  const auto changed = rechoose(*table, ring_plans(broken), broken, Routes(broken), model, options);
  ASSERT_TRUE(changed.ok());
  EXPECT_NE(changed->bands[0].plan, table->bands[0].plan);
}

TEST(Choose, NamesWhatIsWrong) {
  const Graph graph = full_mesh(4, 25);
  const Routes routes(graph);
  const CostModel model = CostModel::declared();
  EXPECT_THAT(choose({}, graph, routes, model, {}).status().text(),
              ::testing::HasSubstr("no candidate"));
  const std::vector<Plan> mixed = {*make_direct_plan(CollectiveKind::kAllReduce, "one_shot", 4, 0),
                                   *make_direct_plan(CollectiveKind::kReduce, "one_shot", 4, 0)};
  EXPECT_THAT(choose(mixed, graph, routes, model, {}).status().text(),
              ::testing::HasSubstr("one_shot is reduce of 4 from root 0"));
  ChooseOptions options;
  options.min_bytes = 0;
  EXPECT_FALSE(choose({mixed[0]}, graph, routes, model, options).ok());
  EXPECT_TRUE(worth_replacing(100, 79, 0.1));
  EXPECT_FALSE(worth_replacing(100, 81, 0.1));
}

}  // namespace
}  // namespace topocoll::testing
