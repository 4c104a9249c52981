#include "planner/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/bound.h"
#include "planner/graphs.h"
#include "planner/plans.h"

namespace topocoll {
namespace {

using testing::computes_right;
using ::testing::HasSubstr;
using testing::load_fixture;
using testing::random_graph;

Result<Packing> pack(CollectiveKind kind, const Graph& graph, int root) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return pack_allgather(graph);
    case CollectiveKind::kReduceScatter:
      return pack_reduce_scatter(graph);
    case CollectiveKind::kBroadcast:
      return pack_broadcast(graph, root);
    default:
      return pack_reduce(graph, root);
  }
}

constexpr CollectiveKind kTreeKinds[] = {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                         CollectiveKind::kBroadcast, CollectiveKind::kReduce};

TEST(Emit, PlansOfMachinesVerifyAndKeepTheRate) {
  for (const char* name :
       {"dgx1v_8xV100", "dgx1v_degraded_03half_67dead", "dgxa100_x2", "mi250_1x16",
        "pcie_8gpu_4plx_2socket", "nca100v4_4gpu_pairs", "rccl_rome_model_66"}) {
    const Graph graph = load_fixture(name).graph;
    for (const CollectiveKind kind : kTreeKinds) {
      SCOPED_TRACE(std::string(name) + " " + std::string(topocoll::name(kind)));
      const Result<Packing> packing = pack(kind, graph, 1);
      ASSERT_TRUE(packing.ok()) << packing.status().to_string();
      const Result<TreePlan> made = plan_from_packing(kind, graph, *packing);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_TRUE(verify(made->plan).ok()) << verify(made->plan).to_string();
      EXPECT_TRUE(check_routes(made->plan, graph).ok())
          << check_routes(made->plan, graph).to_string();
      EXPECT_GE(made->algbw, 0.99 * packing->algbw.to_double());
      EXPECT_LE(made->algbw, packing->algbw.to_double() * (1 + 1e-9));
      EXPECT_LE(made->plan.chunks, 128);
      const Result<Plan> read = plan_from_json(to_json(made->plan));
      ASSERT_TRUE(read.ok()) << read.status().to_string();
      EXPECT_EQ(*read, made->plan);
    }
  }
}

TEST(Emit, PlansOfRandomGraphsComputeRight) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Graph graph = random_graph(seed, seed % 3 == 0);
    for (const CollectiveKind kind : kTreeKinds) {
      const int root = static_cast<int>(seed) % graph.ranks();
      const Result<Packing> packing = pack(kind, graph, root);
      ASSERT_TRUE(packing.ok()) << packing.status().to_string();
      const Result<TreePlan> made = plan_from_packing(kind, graph, *packing, {16, 32, 0.99});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      ASSERT_TRUE(verify(made->plan).ok()) << verify(made->plan).to_string();
      ASSERT_TRUE(check_routes(made->plan, graph).ok())
          << check_routes(made->plan, graph).to_string();
      if (seed % 4 != 0) continue;
      ASSERT_TRUE(computes_right(made->plan));
    }
  }
}

TEST(Emit, RefusesTheWrongCollective) {
  const Graph graph = load_fixture("rccl_rome_model_80").graph;
  const Result<Packing> packing = pack_allgather(graph);
  for (const CollectiveKind kind : {CollectiveKind::kReduceScatter, CollectiveKind::kBarrier,
                                    CollectiveKind::kAllReduce, CollectiveKind::kGather}) {
    EXPECT_THAT(plan_from_packing(kind, graph, *packing).status().text(), HasSubstr("serves no"));
  }
}

TEST(Emit, RoutesAreCheckedAgainstTheGraph) {
  const Graph graph = load_fixture("dgxa100_x1").graph;
  const Plan good =
      plan_from_packing(CollectiveKind::kAllGather, graph, *pack_allgather(graph))->plan;
  const auto text = [&](auto change) {
    Plan bad = good;
    change(bad.routes[0]);
    return check_routes(bad, graph).text();
  };
  EXPECT_EQ(text([](Route&) {}), "");
  EXPECT_THAT(text([](Route& r) { r.gbps += 1; }), HasSubstr("has 300 GB/s and is to carry"));
  EXPECT_THAT(text([](Route& r) { r.path.erase(r.path.begin() + 1); }),
              HasSubstr("no link leads from"));
  EXPECT_THAT(text([](Route& r) { r.path.back() = "n0g7"; }), HasSubstr("does not lead from"));
  EXPECT_THAT(text([](Route& r) { r.path[1] = "elsewhere"; }), HasSubstr("no link leads from"));
  EXPECT_THAT(check_routes(good, load_fixture("dgxa100_x2").graph).text(), HasSubstr("8 ranks"));
}

TEST(Rounding, FindsFewChunksThatAreGoodEnough) {
  // Weights 2:1 over two resources of capacity 2 and 1.
  const std::vector<Share> shares = {{0, 2, {{0, 1}}}, {0, 1, {{1, 1}}}};
  Rounding r = round_shares(shares, {2, 1}, {64, 32, 0.99});
  EXPECT_EQ(r.chunks, 3);
  EXPECT_EQ(r.count, (std::vector<int>{2, 1}));
  EXPECT_DOUBLE_EQ(r.exact_rate, 3);
  EXPECT_DOUBLE_EQ(r.rate, 3);
  // With two chunks at most one has to go the slow way.
  r = round_shares(shares, {2, 1}, {2, 32, 0.99});
  EXPECT_DOUBLE_EQ(r.rate, 2);
}

TEST(Rounding, NeverExceedsTheExactRateOfGoodWeights) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    testing::Random random(seed);
    std::vector<Share> shares;
    std::vector<double> capacity(4, 0);
    for (int i = 0; i < 6; ++i) {
      Share share{i % 2, 1.0 + random.below(50), {{random.below(4), 1 + random.below(2)}}};
      capacity[static_cast<std::size_t>(share.loads[0].first)] += 10;
      shares.push_back(share);
    }
    for (double& c : capacity) c += 1;
    const Rounding r = round_shares(shares, capacity, {96, 32, 0.99});
    int sum[2] = {0, 0};
    for (std::size_t i = 0; i < shares.size(); ++i) sum[shares[i].group] += r.count[i];
    ASSERT_EQ(sum[0], r.chunks) << seed;
    ASSERT_EQ(sum[1], r.chunks) << seed;
    ASSERT_GT(r.rate, 0.9 * r.exact_rate) << seed;
  }
}

}  // namespace
}  // namespace topocoll
