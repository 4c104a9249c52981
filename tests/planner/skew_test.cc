// Among rings of one rate the least skewed is planned, and what explain() says of it is what the
// simulator finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/make_graphs.h"
#include "planner/make_topology.h"
#include "planner/ring_plans.h"
#include "planner/simulator.h"
#include "planner/uniform_cost.h"
#include "topocoll/planning.h"

namespace topocoll::testing {
namespace {

/// One switch, equal bandwidths, and latencies of ports with which all hops of this one ring take
/// 900 ns; every other order has slower ones.
const std::vector<int> kEven = {0, 5, 2, 7, 4, 1, 6, 3};

Graph uneven_ports() {
  GraphMaker maker(8);
  maker.node("sw");
  for (int i = 0; i < 8; ++i) {
    const double up = 100.0 * (i + 1);
    maker.link(rank_name(kEven[static_cast<std::size_t>(i)]), "sw", 100, up);
    maker.link("sw", rank_name(kEven[static_cast<std::size_t>(i + 1) % 8]), 100, 900 - up);
  }
  return maker.make();
}

SimulationResult small_ring(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<int> order;
  for (const std::string& name : names) order.push_back(std::stoi(name.substr(1)));
  const auto plan = make_ring_plan(CollectiveKind::kAllGather, {order}, 0);
  EXPECT_TRUE(plan.ok());
  const auto run = simulate(*plan, graph, Routes(graph), uniform_cost(0), {1e-6});
  EXPECT_TRUE(run.ok()) << run.status().to_string();
  return *run;
}

TEST(Skew, TheLeastSkewedOfEquallyFastRingsIsPlanned) {
  const Graph graph = uneven_ports();
  const auto report = plan_collective(topology_of(graph), {CollectiveKind::kAllGather, 0, 1});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->algorithm, "ring");
  const PlannedRing& ring = report->rings.at(0);
  std::vector<std::string> even;
  for (const int r : kEven) even.push_back(rank_name(r));
  EXPECT_EQ(ring.order, even);
  ASSERT_TRUE(ring.slowest_hop_ns && report->listed_ring && report->listed_ring->slowest_hop_ns);
  EXPECT_DOUBLE_EQ(*ring.slowest_hop_ns, 900);
  EXPECT_DOUBLE_EQ(*ring.turn_ns, 7200);
  EXPECT_DOUBLE_EQ(report->listed_ring->gbps, ring.gbps);

  const SimulationResult chosen = small_ring(graph, ring.order);
  const SimulationResult listed = small_ring(graph, report->listed_ring->order);
  // A rank passes on 7 blocks, one after the other, over the slowest hop.
  EXPECT_NEAR(chosen.time_ns, 7 * *ring.slowest_hop_ns, 1e-3);
  EXPECT_NEAR(listed.time_ns, 7 * *report->listed_ring->slowest_hop_ns, 1e-3);
  EXPECT_NEAR(chosen.spread_ns, 0, 1e-3);
  EXPECT_GT(listed.spread_ns, 100);
  EXPECT_LT(chosen.time_ns, listed.time_ns);

  const std::string words = explain(*report);
  EXPECT_THAT(words, ::testing::HasSubstr("g3 -> g0; slowest hop 900 ns, a turn 7200 ns"));
  EXPECT_THAT(words, ::testing::HasSubstr("in the order in which the machine lists its GPUs"));
}

TEST(Skew, UnknownLatenciesAreNotMadeUp) {
  GraphMaker maker(4);
  maker.node("sw");
  for (int r = 0; r < 4; ++r) maker.link(rank_name(r), "sw", 10, 200).link("sw", rank_name(r), 10);
  const auto report =
      plan_collective(topology_of(maker.make()), {CollectiveKind::kAllGather, 0, 1});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->rings.size(), 1u);
  EXPECT_FALSE(report->rings[0].slowest_hop_ns || report->rings[0].turn_ns);
  EXPECT_EQ(explain(*report).find("slowest hop"), std::string::npos);
}

}  // namespace
}  // namespace topocoll::testing
