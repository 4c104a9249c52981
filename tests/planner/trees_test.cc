#include "planner/trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "planner/bound.h"
#include "planner/graphs.h"

namespace topocoll {
namespace {

using testing::fixture_names;
using ::testing::HasSubstr;
using testing::load_fixture;
using testing::random_graph;

TEST(Trees, ReachTheBoundOnEveryFixture) {
  for (const std::string& name : fixture_names()) {
    SCOPED_TRACE(name);
    const auto [graph, expect] = load_fixture(name);
    const Result<Packing> packing = pack_allgather(graph);
    ASSERT_TRUE(packing.ok()) << packing.status().to_string();
    EXPECT_EQ(packing->algbw.to_string(), expect["allgather_algbw"].get<std::string>());
    EXPECT_TRUE(check_packing(graph, *packing).ok()) << check_packing(graph, *packing).to_string();
    const Result<Packing> back = pack_reduce_scatter(graph);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(back->algbw, reduce_scatter_bound(graph)->algbw);
    EXPECT_TRUE(check_packing(graph, *back).ok()) << check_packing(graph, *back).to_string();
  }
}

TEST(Trees, WeightsAreTheWholeRate) {
  for (const std::string& name : fixture_names()) {
    const Graph graph = load_fixture(name).graph;
    const Result<Packing> packing = pack_allgather(graph);
    std::vector<std::int64_t> sum(static_cast<std::size_t>(graph.ranks()), 0);
    for (const Tree& tree : packing->trees) sum[static_cast<std::size_t>(tree.root)] += tree.weight;
    for (const std::int64_t weight : sum) {
      EXPECT_EQ(packing->weight_rate.times(Rational(weight))->times(Rational(graph.ranks())),
                packing->algbw)
          << name;
    }
  }
}

TEST(Trees, OneSwitchGivesStars) {
  const Result<Packing> packing = pack_allgather(load_fixture("dgxa100_x1").graph);
  ASSERT_EQ(packing->trees.size(), 8U);
  for (const Tree& tree : packing->trees) {
    for (const Hop& hop : tree.hops) EXPECT_EQ(hop.from, tree.root);
  }
}

TEST(Trees, BroadcastAndReduceReachMaxFlow) {
  for (const char* name : {"dgx1v_8xV100", "mi250_1x16", "dgxa100_x2", "pcie_8gpu_g5_at_x8"}) {
    const Graph graph = load_fixture(name).graph;
    for (int root = 0; root < graph.ranks(); root += 5) {
      const Result<Packing> packing = pack_broadcast(graph, root);
      ASSERT_TRUE(packing.ok()) << packing.status().to_string();
      EXPECT_EQ(packing->algbw, *Rational(broadcast_rate(graph, root)).times(graph.unit)) << name;
      EXPECT_TRUE(check_packing(graph, *packing).ok());
      const Result<Packing> back = pack_reduce(graph, root);
      ASSERT_TRUE(back.ok()) << back.status().to_string();
      EXPECT_EQ(back->algbw, *Rational(broadcast_rate(reversed(graph), root)).times(graph.unit))
          << name;
      EXPECT_TRUE(check_packing(graph, *back).ok());
    }
  }
}

TEST(Trees, EqualTheBoundOnRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Graph graph = random_graph(seed, seed % 3 == 0);
    const Result<Packing> packing = pack_allgather(graph);
    ASSERT_TRUE(packing.ok()) << packing.status().to_string();
    ASSERT_EQ(packing->algbw, allgather_bound(graph)->algbw);
    ASSERT_TRUE(check_packing(graph, *packing).ok()) << check_packing(graph, *packing).to_string();
    if (seed % 4 != 0) continue;
    const Result<Packing> back = pack_reduce_scatter(graph);
    ASSERT_EQ(back->algbw, reduce_scatter_bound(graph)->algbw);
    ASSERT_TRUE(check_packing(graph, *back).ok()) << check_packing(graph, *back).to_string();
  }
}

/// Every direction measured for itself: switches take in other than they give out.
TEST(Trees, MeasuredMachinesComeCloseToTheBound) {
  for (const char* name : {"dgxa100_x1", "dgx2_16xV100_nvswitch", "pcie_8gpu_4plx_2socket"}) {
    const Graph declared = load_fixture(name).graph;
    testing::Random random(7);
    GraphDescription d;
    for (const GraphNode& node : declared.nodes)
      d.nodes.push_back({node.id, node.rank >= 0, "nodes"});
    for (const GraphLink& link : declared.links) {
      const double gbps = declared.gbps(static_cast<double>(link.capacity));
      d.links.push_back({declared.nodes[static_cast<std::size_t>(link.from)].id,
                         declared.nodes[static_cast<std::size_t>(link.to)].id,
                         gbps * (0.8 + 0.001 * random.below(60)), true, std::nullopt, "edges"});
    }
    const Result<Graph> graph = make_graph(d, name);
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const Result<Packing> packing = pack_allgather(*graph);
    ASSERT_TRUE(packing.ok()) << packing.status().to_string();
    EXPECT_TRUE(check_packing(*graph, *packing).ok())
        << check_packing(*graph, *packing).to_string();
    const Rational bound = allgather_bound(*graph)->algbw;
    EXPECT_LE(packing->algbw, bound) << name;
    EXPECT_GE(packing->algbw.to_double(), 0.97 * bound.to_double()) << name;
  }
}

TEST(Trees, SharedGroupsAreKept) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    GraphDescription d = testing::random_description(seed, false);
    // Links come in pairs of both directions: make each third pair half duplex.
    for (std::size_t l = 0; l + 1 < d.links.size(); l += 6) {
      const auto first = static_cast<std::int64_t>(l);
      d.groups.push_back({"half duplex", {first, first + 1}, d.links[l].gbps, false, "shared"});
    }
    const Result<Graph> graph = make_graph(d, "random");
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const Result<Packing> packing = pack_allgather(*graph);
    ASSERT_TRUE(packing.ok()) << packing.status().to_string();
    ASSERT_TRUE(check_packing(*graph, *packing).ok())
        << check_packing(*graph, *packing).to_string();
    ASSERT_LE(packing->algbw, allgather_bound(*graph)->algbw);
  }
}

TEST(Trees, TheCheckFindsFaults) {
  const Graph graph = load_fixture("dgxa100_x2").graph;
  const Result<Packing> good = pack_allgather(graph);
  const auto text = [&](auto change) {
    Packing bad = *good;
    change(bad);
    return check_packing(graph, bad).text();
  };
  EXPECT_EQ(text([](Packing&) {}), "");
  EXPECT_THAT(text([](Packing& p) { ++p.trees[3].weight; }), HasSubstr("more than its capacity"));
  EXPECT_THAT(text([](Packing& p) { p.trees[0].hops.pop_back(); }),
              HasSubstr("14 hops for 16 ranks"));
  EXPECT_THAT(text([](Packing& p) { p.trees[0].root = 16; }), HasSubstr("tree 0: root 16"));
  EXPECT_THAT(text([](Packing& p) { p.trees[0].hops[2].path.pop_back(); }),
              HasSubstr("ends elsewhere"));
  EXPECT_THAT(text([](Packing& p) { p.trees[0].hops[2].path[0] = 999; }), HasSubstr("no link 999"));
  EXPECT_THAT(text([](Packing& p) { p.trees[0].hops[1] = p.trees[0].hops[0]; }),
              HasSubstr("out of order"));
  EXPECT_THAT(text([](Packing& p) { p.toward_root = true; }), HasSubstr("out of order"));
}

TEST(Trees, AreTheSameEveryTime) {
  const Graph graph = load_fixture("mi250_2x8").graph;
  EXPECT_EQ(pack_allgather(graph)->trees, pack_allgather(graph)->trees);
}

}  // namespace
}  // namespace topocoll
