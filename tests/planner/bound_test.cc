#include "planner/bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "planner/graphs.h"
#include "planner/max_flow.h"

namespace topocoll {
namespace {

using testing::fixture_names;
using testing::fixture_text;
using testing::load_fixture;
using testing::random_graph;

TEST(MaxFlow, FindsFlowAndCut) {
  MaxFlow network(4);
  network.add_arc(0, 1, 3);
  network.add_arc(0, 2, 2);
  network.add_arc(1, 2, 5);
  network.add_arc(1, 3, 2);
  const int last = network.add_arc(2, 3, 2);
  EXPECT_EQ(network.run(0, 3), 4);
  EXPECT_EQ(network.source_side(), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(network.run(0, 3, 1), 1);
  network.set_capacity(last, 9);
  EXPECT_EQ(network.run(0, 3), 5);
  EXPECT_EQ(network.run(3, 0), 0);
}

TEST(Bound, EqualsEveryFixtureExactly) {
  for (const std::string& name : fixture_names()) {
    const auto [graph, expect] = load_fixture(name);
    const Result<Bound> bound = allgather_bound(graph);
    ASSERT_TRUE(bound.ok()) << name;
    EXPECT_EQ(bound->algbw.to_string(), expect["allgather_algbw"].get<std::string>()) << name;
    const auto rate = bound->rank_rate.times(graph.unit);
    EXPECT_EQ(rate->to_string(), expect["allgather_rate_per_gpu"].get<std::string>()) << name;
    EXPECT_TRUE(bound->exact);
    // The cut proves the value: |S| blocks leave S, which has a rank outside.
    std::vector<bool> inside(graph.nodes.size(), false);
    int count = 0;
    for (const int node : bound->cut) {
      inside[static_cast<std::size_t>(node)] = true;
      count += graph.is_rank(node) ? 1 : 0;
    }
    EXPECT_LT(count, graph.ranks());
    EXPECT_EQ(*Rational::make(leaving_capacity(graph, inside), count), bound->rank_rate) << name;
  }
}

TEST(Bound, BroadcastRatesOfEveryFixture) {
  for (const std::string& name : fixture_names()) {
    const auto [graph, expect] = load_fixture(name);
    for (int r = 0; r < graph.ranks(); ++r) {
      const auto wanted = expect["broadcast_rate_by_root"][graph.rank_id(r)].get<double>();
      EXPECT_DOUBLE_EQ(graph.gbps(static_cast<double>(broadcast_rate(graph, r))), wanted)
          << name << " " << graph.rank_id(r);
    }
  }
}

TEST(Bound, AllReduceBoundsEncloseTheBestTrees) {
  for (const std::string& name : fixture_names()) {
    const auto [graph, expect] = load_fixture(name);
    const Result<AllReduceBound> bound = allreduce_bound(graph);
    ASSERT_TRUE(bound.ok()) << name;
    const double half = expect["rs_ag_allreduce_algbw"];
    EXPECT_LE(bound->reduce_scatter_allgather, bound->upper) << name;
    // The fixture halves the all-gather; one-way links make reduce-scatter differ.
    EXPECT_NEAR(bound->reduce_scatter_allgather.to_double(), half, 1e-4 * half) << name;
    if (!expect.contains("allreduce_algbw_lp") || expect["allreduce_algbw_lp"].is_null()) continue;
    EXPECT_GE(bound->upper.to_double(), expect["allreduce_algbw_lp"].get<double>() * 0.9999)
        << name;
  }
}

/// The part of a graph that `ranks` span, with links counted one each.
Graph subset(const Graph& graph, const std::vector<int>& ranks) {
  GraphDescription d;
  std::vector<bool> kept(graph.nodes.size(), false);
  for (const int r : ranks) {
    kept[static_cast<std::size_t>(graph.rank_nodes[static_cast<std::size_t>(r)])] = true;
    d.nodes.push_back({graph.rank_id(r), true, "nodes"});
  }
  for (const GraphLink& link : graph.links) {
    if (!kept[static_cast<std::size_t>(link.from)] || !kept[static_cast<std::size_t>(link.to)])
      continue;
    d.links.push_back({graph.nodes[static_cast<std::size_t>(link.from)].id,
                       graph.nodes[static_cast<std::size_t>(link.to)].id,
                       static_cast<double>(link.capacity), false, std::nullopt, "edges"});
  }
  Result<Graph> result = make_graph(d, "subset");
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return *result;
}

TEST(Bound, PartialAllocationsOfDgx1) {
  std::istringstream file(fixture_text("blink_dgx1_subsets.csv"));
  std::string line;
  std::getline(file, line);
  int rows = 0;
  while (std::getline(file, line)) {
    std::vector<std::string> fields;
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) fields.push_back(cell);
    const bool is_v = fields[0] == "DGX-1V";
    const Graph whole = load_fixture(is_v ? "dgx1v_8xV100" : "dgx1p_8xP100").graph;
    std::vector<int> ranks;
    std::istringstream gpus(fields[2]);
    for (int gpu = 0; gpus >> gpu;) ranks.push_back(gpu);
    const Graph graph = subset(whole, ranks);
    EXPECT_EQ(allgather_bound(graph)->algbw.to_string(), fields[5]) << line;
    std::vector<std::int64_t> rates;
    for (int r = 0; r < graph.ranks(); ++r) {
      const Rational rate = *Rational(broadcast_rate(graph, r)).times(graph.unit);
      EXPECT_EQ(rate.den(), 1);
      rates.push_back(rate.num());
    }
    EXPECT_EQ(std::to_string(*std::min_element(rates.begin(), rates.end())), fields[6]) << line;
    EXPECT_EQ(std::to_string(*std::max_element(rates.begin(), rates.end())), fields[7]) << line;
    ++rows;
  }
  EXPECT_GE(rows, 29);
}

/// The same by trying all sets.
Rational brute_force(const Graph& graph) {
  const std::size_t n = graph.nodes.size();
  std::optional<Rational> best;
  for (std::uint32_t set = 1; set < (1U << n); ++set) {
    std::vector<bool> inside(n);
    int count = 0;
    for (std::size_t i = 0; i < n; ++i) {
      inside[i] = ((set >> i) & 1) != 0;
      count += inside[i] && graph.is_rank(static_cast<int>(i)) ? 1 : 0;
    }
    if (count == 0 || count == graph.ranks()) continue;
    const Rational ratio = *Rational::make(leaving_capacity(graph, inside), count);
    if (!best || ratio < *best) best = ratio;
  }
  return *best;
}

TEST(Bound, EqualsAllCutsOnRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Graph graph = random_graph(seed, seed % 2 == 0);
    ASSERT_EQ(allgather_bound(graph)->rank_rate, brute_force(graph));
    ASSERT_EQ(reduce_scatter_bound(graph)->rank_rate, brute_force(reversed(graph)));
    const Result<AllReduceBound> both = allreduce_bound(graph);
    ASSERT_LE(both->reduce_scatter_allgather, both->upper);
  }
}

TEST(Bound, SharedGroupsLowerIt) {
  GraphDescription d;
  for (const char* id : {"a", "b", "c", "d"}) d.nodes.push_back({id, true, "nodes"});
  const auto both = [&](const char* a, const char* b, double gbps) {
    d.links.push_back({a, b, gbps, false, std::nullopt, "edges"});
    d.links.push_back({b, a, gbps, false, std::nullopt, "edges"});
  };
  both("a", "b", 100);
  both("c", "d", 100);
  both("b", "c", 12);
  EXPECT_EQ(allgather_bound(*make_graph(d, "bridge"))->algbw, Rational(24));
  // The bridge is half duplex: four blocks cross it one way or the other.
  d.groups = {{"bridge", {4, 5}, 12, false, "shared[0]"}};
  const Result<Bound> bound = allgather_bound(*make_graph(d, "bridge"));
  EXPECT_EQ(bound->algbw, Rational(12));
  EXPECT_FALSE(bound->exact);
  EXPECT_EQ(bound->cut.size(), 2U);
}

/// Hosts of 8 ranks on a switch each, all on one fabric, every link of a bandwidth of its own.
Graph cluster(int hosts) {
  testing::Random random(11);
  GraphDescription d;
  d.nodes.push_back({"fabric", false, "nodes"});
  const auto both = [&](const std::string& a, const std::string& b, double gbps) {
    const double here = gbps * (0.9 + 0.001 * random.below(100));
    d.links.push_back({a, b, here, true, std::nullopt, "edges"});
    d.links.push_back({b, a, here, true, std::nullopt, "edges"});
  };
  for (int h = 0; h < hosts; ++h) {
    const std::string nvs = "nvs" + std::to_string(h);
    d.nodes.push_back({nvs, false, "nodes"});
    for (int g = 0; g < 8; ++g) {
      const std::string gpu = "g" + std::to_string(8 * h + g);
      d.nodes.push_back({gpu, true, "nodes"});
      both(gpu, nvs, 450);
      both(gpu, "fabric", 50);
    }
  }
  Result<Graph> graph = make_graph(d, "cluster");
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return *graph;
}

TEST(Bound, ServesFiveHundredRanks) {
  const Graph graph = cluster(64);
  ASSERT_EQ(graph.ranks(), 512);
  const Result<Bound> bound = allgather_bound(graph);
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  std::vector<bool> inside(graph.nodes.size(), false);
  int count = 0;
  for (const int node : bound->cut) {
    inside[static_cast<std::size_t>(node)] = true;
    count += graph.is_rank(node) ? 1 : 0;
  }
  EXPECT_EQ(*Rational::make(leaving_capacity(graph, inside), count), bound->rank_rate);
  // What one host takes in from the fabric: eight links of 45 to 50 GB/s.
  EXPECT_GT(bound->algbw.to_double(), 8 * 45 * 512.0 / 504);
  EXPECT_LT(bound->algbw.to_double(), 8 * 50 * 512.0 / 504);
}

}  // namespace
}  // namespace topocoll
