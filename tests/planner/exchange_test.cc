// all_to_all: bounds against all cuts and closed forms, ways within capacity, plans that verify.
#include "planner/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/bound.h"
#include "planner/emit.h"
#include "planner/make_graphs.h"
#include "planner/make_topology.h"
#include "planner/plans.h"
#include "support/sanitized.h"
#include "topocoll/planning.h"

namespace topocoll::testing {
namespace {

constexpr CollectiveKind kKind = CollectiveKind::kAllToAll;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// What the ways put on links and groups, with `algbw` GB/s of every rank's message, against
/// capacity.
void expect_within_capacity(const Graph& graph, const Exchange& exchange) {
  const double each = exchange.algbw / graph.ranks();
  std::vector<double> load(graph.links.size(), 0);
  std::map<std::pair<int, int>, double> shares;
  for (const ExchangeWay& way : exchange.ways) {
    int at = way.way.root;
    for (const Hop& hop : way.way.hops) {
      ASSERT_EQ(hop.from, at);
      int node = graph.rank_nodes[index(at)];
      for (const int l : hop.path) {
        ASSERT_EQ(graph.links[index(l)].from, node);
        node = graph.links[index(l)].to;
        load[index(l)] += each * way.share;
      }
      at = hop.to;
      ASSERT_EQ(node, graph.rank_nodes[index(at)]);
    }
    ASSERT_EQ(at, way.to);
    shares[{way.way.root, way.to}] += way.share;
  }
  EXPECT_EQ(shares.size(), index(graph.ranks() * (graph.ranks() - 1)));
  for (const auto& [pair, share] : shares) EXPECT_NEAR(share, 1, 1e-9);
  for (std::size_t l = 0; l < load.size(); ++l) {
    EXPECT_LE(load[l], graph.gbps(static_cast<double>(graph.links[l].capacity)) * (1 + 1e-6));
  }
  for (const SharedGroup& group : graph.groups) {
    double sum = 0;
    for (const int l : group.links) sum += load[index(l)];
    EXPECT_LE(sum, graph.gbps(static_cast<double>(group.capacity)) * (1 + 1e-6));
  }
}

/// The least that any cut allows.
double best_cut(const Graph& graph) {
  double best = 1e300;
  const int nodes = static_cast<int>(graph.nodes.size());
  for (int set = 1; set < (1 << nodes); ++set) {
    std::vector<bool> inside;
    int ranks = 0;
    for (int i = 0; i < nodes; ++i) {
      inside.push_back((set >> i & 1) != 0);
      if (inside.back() && graph.is_rank(i)) ++ranks;
    }
    if (ranks == 0 || ranks == graph.ranks()) continue;
    const double pairs = ranks * (graph.ranks() - ranks);
    best = std::min(best, graph.gbps(static_cast<double>(leaving_capacity(graph, inside))) *
                              graph.ranks() / pairs);
  }
  return best;
}

TEST(Exchange, TakesItsClosedForms) {
  const auto mesh = pack_exchange(full_mesh(8, 64));
  ASSERT_TRUE(mesh.ok()) << mesh.status().to_string();
  EXPECT_EQ(mesh->bound.to_string(), "512");  // a link for each pair
  EXPECT_TRUE(mesh->reached);
  const auto one_switch = pack_exchange(star(8, 300));
  ASSERT_TRUE(one_switch.ok());
  EXPECT_EQ(one_switch->bound.to_string(), "2400/7");  // 7 blocks leave every rank
  EXPECT_TRUE(one_switch->reached);
  EXPECT_EQ(one_switch->cut.size(), 1u);
  // Two threes, all links between them: 3 ranks at distance 1 and 2 at 2, so that 42 hops share 18
  // links.
  GraphMaker threes(6);
  for (int a = 0; a < 3; ++a) {
    for (int b = 3; b < 6; ++b) threes.both(rank_name(a), rank_name(b), 7);
  }
  const auto relayed = pack_exchange(threes.make());
  ASSERT_TRUE(relayed.ok());
  EXPECT_EQ(relayed->bound.to_string(), "18");
  EXPECT_TRUE(relayed->reached);
  EXPECT_TRUE(relayed->cut.empty());
  EXPECT_NEAR(best_cut(threes.make()), 21, 1e-9) << "cuts alone would promise too much";
}

TEST(Exchange, SharedGroupsLimitIt) {
  const Graph graph = two_islands(16);
  const auto exchange = pack_exchange(graph);
  ASSERT_TRUE(exchange.ok());
  EXPECT_EQ(exchange->bound.to_string(),
            "8");  // 8 blocks of a quarter of the message share 16 GB/s
  EXPECT_TRUE(exchange->reached);
  expect_within_capacity(graph, *exchange);
}

TEST(Exchange, IsBoundedAndReachedOnRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 20 : 200); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_graph(seed, seed % 2 == 0);
    const auto exchange = pack_exchange(graph);
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    const double bound = exchange->bound.to_double();
    EXPECT_LE(bound, best_cut(graph) * (1 + 1e-9));
    EXPECT_LE(exchange->algbw, bound * (1 + 1e-6));
    EXPECT_GE(exchange->algbw, bound * 0.995);
    expect_within_capacity(graph, *exchange);
    if (!exchange->cut.empty()) {
      EXPECT_NEAR(best_cut(graph), bound, 1e-9 * bound);
    }
    const auto made = plan_from_exchange(graph, *exchange);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const Status proof = verify(made->plan);
    ASSERT_TRUE(proof.ok()) << proof.to_string();
    EXPECT_TRUE(computes_right(made->plan));
    EXPECT_TRUE(check_routes(made->plan, graph).ok())
        << check_routes(made->plan, graph).to_string();
    EXPECT_LE(made->algbw, exchange->algbw * (1 + 1e-9));
  }
}

TEST(Exchange, LargeUnevenMeshesEndEarlyWithAnHonestGap) {
  GraphMaker maker(24);
  for (int a = 0; a < 24; ++a) {
    for (int b = 0; b < 24; ++b) {
      if (a != b) maker.link(rank_name(a), rank_name(b), 10 + (a * 7 + b * 3) % 5);
    }
  }
  const Graph graph = maker.make();
  const auto exchange = pack_exchange(graph);
  ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
  EXPECT_FALSE(exchange->reached);
  EXPECT_GE(exchange->algbw, 0.8 * exchange->bound.to_double());
  expect_within_capacity(graph, *exchange);
}

TEST(Exchange, NoRankIsTheFirstTargetOfTwo) {
  const Graph graph = full_mesh(6, 10);
  const auto exchange = pack_exchange(graph);
  ASSERT_TRUE(exchange.ok());
  const auto made = plan_from_exchange(graph, *exchange);
  ASSERT_TRUE(made.ok());
  std::set<int> targets;
  for (const auto& steps : made->plan.steps) targets.insert(steps.at(0).peer);
  EXPECT_EQ(targets.size(), 6u);
}

TEST(Exchange, MachinesGetDirectPlansWhereAllPairsHaveRoutes) {
  const auto planned = [](const std::string& name) {
    return plan_collective(topology_of(load_fixture(name).graph), {kKind, 0, 16});
  };
  const auto mesh = planned("mi300x_8_full_mesh");
  ASSERT_TRUE(mesh.ok()) << mesh.status().to_string();
  EXPECT_EQ(mesh->algorithm, "direct");
  EXPECT_EQ(mesh->bound, "512");
  EXPECT_NEAR(mesh->plan_gbps, 512, 1e-9);
  const auto pcie = planned("pcie_8gpu_4plx_2socket");
  ASSERT_TRUE(pcie.ok()) << pcie.status().to_string();
  EXPECT_EQ(pcie->algorithm, "direct");
  EXPECT_EQ(pcie->bound, "5");  // 16 blocks cross 10 GB/s each way
  EXPECT_THAT(pcie->bottleneck, ::testing::AnyOf(::testing::HasSubstr("{g0, g1, g2, g3}"), ::testing::HasSubstr("{g4, g5, g6, g7}")));
  EXPECT_NEAR(pcie->plan_gbps, 5, 1e-9);
  const auto cube = planned("dgx1v_8xV100");
  ASSERT_TRUE(cube.ok()) << cube.status().to_string();
  EXPECT_EQ(cube->algorithm, "exchange");
  EXPECT_GE(cube->plan_gbps, 0.9 * cube->bound_gbps);
  EXPECT_THAT(explain(*cube), ::testing::HasSubstr("through other ranks only"));
  for (const auto& report : {mesh, pcie, cube}) {
    EXPECT_LE(report->plan_gbps, report->bound_gbps * (1 + 1e-9));
    EXPECT_TRUE(verify(report->plan).ok());
  }
}

TEST(Exchange, SimulatedPlansStayBelowTheBoundAndComeCloseToIt) {
  for (const std::string& name : fixture_names()) {
    const Fixture fixture = load_fixture(name);
    if (fixture.graph.ranks() > (kSanitized ? 8 : 16)) continue;
    SCOPED_TRACE(name);
    const Topology topology = topology_of(fixture.graph);
    const auto report = plan_collective(topology, {kKind, 0, 16});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->bound_is_reached);
    EXPECT_GE(report->plan_gbps, 0.9 * report->bound_gbps);
    const auto predicted = simulate_plan(topology, report->plan, {1 << 30});
    ASSERT_TRUE(predicted.ok()) << predicted.status().to_string();
    EXPECT_LE(predicted->front().algbw_gbps, report->bound_gbps * (1 + 1e-9));
    EXPECT_GE(predicted->front().algbw_gbps, 0.65 * report->plan_gbps);
  }
}

TEST(Exchange, ChoicesServeAllSizes) {
  const auto choices = choose_plans(topology_of(load_fixture("dgx1v_8xV100").graph), {kKind, 0, 4});
  ASSERT_TRUE(choices.ok()) << choices.status().to_string();
  ASSERT_FALSE(choices->empty());
  EXPECT_EQ(choices->front().min_bytes, 0u);
  EXPECT_EQ(choices->back().max_bytes, ~std::uint64_t(0));
  EXPECT_EQ(choices->back().plan.kind, kKind);
}

}  // namespace
}  // namespace topocoll::testing
