#include "planner/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "planner/make_graphs.h"

namespace topocoll::testing {
namespace {

std::vector<std::string> ids(const Graph& graph, const RankRoute& route) {
  std::vector<std::string> result;
  for (int node : route.nodes) result.push_back(graph.nodes[static_cast<std::size_t>(node)].id);
  return result;
}

TEST(Routes, TakeTheFewestLinksThroughSwitches) {
  GraphMaker maker(3);
  maker.node("a").node("b").node("c");
  maker.both("g0", "a", 10, 100).both("a", "b", 5, 70).both("b", "g1", 10, 100);
  maker.both("a", "c", 8, 30).both("c", "b", 8, 30).both("g2", "c", 10);
  const Graph graph = maker.make();
  const Routes routes(graph);
  EXPECT_THAT(ids(graph, *routes.find(0, 1)), ::testing::ElementsAre("g0", "a", "b", "g1"));
  EXPECT_NEAR(graph.gbps(routes.find(0, 1)->rate), 5, 1e-9);
  EXPECT_DOUBLE_EQ(*routes.find(0, 1)->latency_ns, 270);
  EXPECT_THAT(ids(graph, *routes.find(0, 2)), ::testing::ElementsAre("g0", "a", "c", "g2"));
  EXPECT_FALSE(routes.find(0, 2)->latency_ns.has_value());
  EXPECT_DOUBLE_EQ(routes.latency_or_worst(0, 2), 270);
  EXPECT_EQ(routes.find(1, 1), nullptr);
}

TEST(Routes, PreferTheWiderThenTheQuickerOfEquals) {
  GraphMaker maker(2);
  maker.node("narrow").node("slow").node("quick");
  for (const auto& [id, gbps, ns] : {std::tuple{"narrow", 5.0, 1.0}, std::tuple{"slow", 10.0, 50.0},
                                     std::tuple{"quick", 10.0, 20.0}}) {
    maker.both("g0", id, gbps, ns).both(id, "g1", gbps, ns);
  }
  const Graph graph = maker.make();
  EXPECT_THAT(ids(graph, *Routes(graph).find(0, 1)), ::testing::ElementsAre("g0", "quick", "g1"));
}

TEST(Routes, NeverPassThroughARank) {
  GraphMaker maker(3);
  maker.both("g0", "g1", 10).both("g1", "g2", 10);
  const Routes routes(maker.make());
  EXPECT_EQ(routes.find(0, 2), nullptr);
  EXPECT_NE(routes.find(0, 1), nullptr);
  EXPECT_EQ(routes.rate(std::vector<int>{0, 1, 2}), 0);
  EXPECT_TRUE(routes.ring_loads(std::vector<int>{0, 1, 2}).empty());
}

TEST(Routes, ParallelLinksAreOneTrunk) {
  GraphMaker maker(2);
  maker.link("g0", "g1", 10, 90).link("g0", "g1", 30, 40).link("g1", "g0", 5);
  const Graph graph = maker.group("port", {1, 2}, 32).make();
  const Routes routes(graph);
  const RankRoute& route = *routes.find(0, 1);
  ASSERT_EQ(route.loads.size(), 2U);
  EXPECT_DOUBLE_EQ(*route.latency_ns, 40);
  // Three quarters of the bytes take the link that is in the group.
  EXPECT_DOUBLE_EQ(route.loads[1].load, 0.75);
  EXPECT_EQ(routes.resource_name(route.loads[0].resource), "g0 -> g1");
  EXPECT_EQ(routes.resource_name(route.loads[1].resource), "group port");
  EXPECT_NEAR(graph.gbps(route.rate), 40, 1e-9);
  EXPECT_NEAR(graph.gbps(routes.degree_capacity()), 5, 1e-9);
}

TEST(Routes, FollowGivenNodes) {
  const Graph graph = star(3, 10);
  const Routes routes(graph);
  const auto route = routes.along(routes.find(0, 2)->nodes);
  ASSERT_TRUE(route.has_value());
  EXPECT_EQ(route->loads.size(), 2U);
  EXPECT_FALSE(
      routes.along(std::vector<int>{graph.rank_nodes[0], graph.rank_nodes[1]}).has_value());
  EXPECT_FALSE(routes.along(std::vector<int>{graph.rank_nodes[0]}).has_value());
}

TEST(Routes, KnowWhetherHopsAreIndependent) {
  EXPECT_TRUE(Routes(full_mesh(4, 10)).hops_are_independent());
  EXPECT_TRUE(Routes(star(4, 10)).hops_are_independent());
  EXPECT_TRUE(Routes(load_fixture("hgxh100_x2_rail8").graph).hops_are_independent());
  EXPECT_FALSE(Routes(load_fixture("pcie_8gpu_4plx_2socket").graph).hops_are_independent());
}

}  // namespace
}  // namespace topocoll::testing
