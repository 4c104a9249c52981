#include "planner/allreduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "planner/bound.h"
#include "planner/graphs.h"
#include "planner/min_tree.h"
#include "planner/plans.h"

namespace topocoll {
namespace {

using testing::fixture_names;
using testing::load_fixture;
using testing::Random;
using testing::random_graph;

double tree_cost(const std::vector<int>& parent, const std::vector<double>& cost) {
  double sum = 0;
  for (std::size_t v = 0; v < parent.size(); ++v) {
    if (parent[v] >= 0) sum += cost[static_cast<std::size_t>(parent[v]) * parent.size() + v];
  }
  return sum;
}

/// Tries every choice of parents.
std::optional<double> cheapest_by_force(const std::vector<double>& cost, int n, int root) {
  std::optional<double> best;
  std::vector<int> parent(static_cast<std::size_t>(n), 0);
  for (;;) {
    bool is_tree = true;
    for (int v = 0; v < n && is_tree; ++v) {
      int at = v;
      for (int k = 0; k < n && at != root; ++k) at = parent[static_cast<std::size_t>(at)];
      is_tree = at == root && (v == root || parent[static_cast<std::size_t>(v)] != v);
    }
    if (is_tree) {
      parent[static_cast<std::size_t>(root)] = -1;
      const double c = tree_cost(parent, cost);
      parent[static_cast<std::size_t>(root)] = 0;
      if (c < kNoArc && (!best || c < *best)) best = c;
    }
    int v = 0;
    for (; v < n; ++v) {
      if (v == root) continue;
      if (++parent[static_cast<std::size_t>(v)] < n) break;
      parent[static_cast<std::size_t>(v)] = 0;
    }
    if (v == n) return best;
  }
}

TEST(CheapestTree, EqualsAllTrees) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    const int n = 2 + random.below(4);
    std::vector<double> cost(static_cast<std::size_t>(n * n), kNoArc);
    for (double& c : cost) {
      if (random.below(4) > 0) c = random.below(12);
    }
    const int root = random.below(n);
    const std::optional<double> best = cheapest_by_force(cost, n, root);
    const std::vector<int> parent = cheapest_tree(cost, n, root);
    ASSERT_EQ(parent.empty(), !best) << "seed " << seed;
    if (!best) continue;
    ASSERT_DOUBLE_EQ(tree_cost(parent, cost), *best) << "seed " << seed;
  }
}

TEST(CheapestPaths, PassSwitchesOnly) {
  const Graph graph = load_fixture("pcie_8gpu_4plx_2socket").graph;
  const RankPaths paths = cheapest_paths(graph, std::vector<double>(graph.links.size(), 1));
  EXPECT_EQ(paths.cost[1], 2);
  EXPECT_EQ(paths.cost[7], 5);
  EXPECT_EQ(paths.path[7].size(), 5U);
}

void expect_good(const Graph& graph, const AllReduceTrees& trees) {
  const Result<TreePlan> made = plan_from_pairs(graph, trees.pairs);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_TRUE(verify(made->plan).ok()) << verify(made->plan).to_string();
  EXPECT_TRUE(check_routes(made->plan, graph).ok()) << check_routes(made->plan, graph).to_string();
  EXPECT_LE(trees.algbw, trees.upper * (1 + 1e-9));
  const Result<AllReduceBound> bound = allreduce_bound(graph);
  EXPECT_LE(trees.algbw, bound->upper.to_double() * (1 + 1e-9));
  EXPECT_GE(trees.algbw, bound->reduce_scatter_allgather.to_double() * (1 - 1e-6));
}

TEST(AllReduce, ReachesTheBestTreesOfEveryFixture) {
  for (const std::string& name : fixture_names()) {
    SCOPED_TRACE(name);
    const auto [graph, expect] = load_fixture(name);
    if (!expect.contains("allreduce_algbw_lp") || expect["allreduce_algbw_lp"].is_null()) continue;
    const Result<AllReduceTrees> trees = pack_allreduce(graph);
    ASSERT_TRUE(trees.ok()) << trees.status().to_string();
    EXPECT_GE(trees->algbw, 0.99 * expect["allreduce_algbw_lp"].get<double>());
    expect_good(graph, *trees);
  }
}

TEST(AllReduce, PlansOfRandomGraphsVerify) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Graph graph = random_graph(seed, seed % 3 == 0);
    const Result<AllReduceTrees> trees = pack_allreduce(graph);
    ASSERT_TRUE(trees.ok()) << trees.status().to_string();
    expect_good(graph, *trees);
    EXPECT_GE(trees->algbw, 0.99 * trees->upper);
    if (seed % 5 != 0) continue;
    const Result<TreePlan> small = plan_from_pairs(graph, trees->pairs, {8, 8, 0.99});
    EXPECT_TRUE(testing::computes_right(small->plan));
  }
}

TEST(AllReduce, SharedGroupsAreRows) {
  GraphDescription d;
  for (const char* id : {"a", "b"}) d.nodes.push_back({id, true, "nodes"});
  d.links = {{"a", "b", 10, false, std::nullopt, "edges[0]"},
             {"b", "a", 10, false, std::nullopt, "edges[1]"}};
  d.groups = {{"half duplex", {0, 1}, 12, false, "shared[0]"}};
  const Result<Graph> graph = make_graph(d, "pair");
  const Result<AllReduceTrees> trees = pack_allreduce(*graph);
  ASSERT_TRUE(trees.ok()) << trees.status().to_string();
  // Each element crosses once each way: 12 GB/s shared by both.
  EXPECT_NEAR(trees->algbw, 6, 1e-6);
  expect_good(*graph, *trees);
}

}  // namespace
}  // namespace topocoll
