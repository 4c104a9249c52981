#include "planner/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "planner/allreduce.h"
#include "planner/emit.h"
#include "planner/make_graphs.h"
#include "planner/plans.h"
#include "planner/rational.h"
#include "planner/ring_packing.h"
#include "planner/ring_plans.h"
#include "planner/rings.h"
#include "planner/trees.h"
#include "planner/uniform_cost.h"

namespace topocoll::testing {
namespace {

constexpr double kAlpha = 1700;  // ns
constexpr double kBeta = 25;     // bytes per ns

std::vector<int> identity(int n) {
  std::vector<int> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

SimulationResult run(const Plan& plan, const Graph& graph, const CostModel& model,
                     const SimulationOptions& options) {
  const auto result = simulate(plan, graph, Routes(graph), model, options);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *result : SimulationResult();
}

TEST(Simulator, RingAllReduceTakesItsClosedForm) {
  for (int n : {2, 3, 4, 8, 13}) {
    const Plan plan = *make_ring_plan(CollectiveKind::kAllReduce, {identity(n)}, 0);
    const double gamma = 0.002;
    for (double bytes : {0.0, 1024.0, 1e6, 1e9}) {
      const auto r = run(plan, full_mesh(n, kBeta), uniform_cost(kAlpha, gamma), {bytes});
      const double hop = kAlpha + bytes / n / kBeta;
      EXPECT_NEAR(r.time_ns, 2 * (n - 1) * hop + (n - 1) * gamma * bytes / n, 1e-9 * r.time_ns)
          << n;
      EXPECT_NEAR(r.spread_ns, 0, 1e-9 * r.time_ns);
      EXPECT_EQ(r.messages, 2 * n * (n - 1));
    }
  }
}

TEST(Simulator, LatencyOfRoutesAddsToAlpha) {
  const Plan plan = *make_ring_plan(CollectiveKind::kAllGather, {identity(4)}, 0);
  const auto r = run(plan, full_mesh(4, kBeta, 300), uniform_cost(kAlpha), {4e6});
  EXPECT_NEAR(r.time_ns, 3 * (kAlpha + 300 + 1e6 / kBeta), 1e-6);
}

TEST(Simulator, ChainBroadcastTakesItsClosedForm) {
  const double bytes = 64e6;
  for (int n : {2, 5, 8}) {
    const Plan plan = *make_ring_plan(CollectiveKind::kBroadcast, {identity(n)}, 0);
    for (int windows : {1, 2, 16}) {
      const auto r = run(plan, full_mesh(n, kBeta), uniform_cost(kAlpha), {bytes, windows});
      const double piece = kAlpha + bytes / windows / kBeta;
      EXPECT_NEAR(r.time_ns, (n - 2 + windows) * piece, 1e-9 * r.time_ns) << n << " " << windows;
    }
  }
}

TEST(Simulator, BinomialTreeTakesItsClosedForm) {
  const double bytes = 1e6;
  const double gamma = 0.003;
  for (int levels = 1; levels <= 4; ++levels) {
    const int n = 1 << levels;
    const auto r =
        run(tree_all_reduce(n), full_mesh(n, kBeta), uniform_cost(kAlpha, gamma), {bytes});
    const double hop = kAlpha + bytes / kBeta;
    EXPECT_NEAR(r.time_ns, levels * (2 * hop + gamma * bytes), 1e-9 * r.time_ns);
  }
}

TEST(Simulator, StarSharesTheRootsLink) {
  const double bytes = 8e6;
  for (int n : {2, 4, 9}) {
    const Plan plan = *make_direct_plan(CollectiveKind::kBroadcast, "one_shot", n, 1);
    const auto r = run(plan, star(n, kBeta), uniform_cost(kAlpha), {bytes});
    EXPECT_NEAR(r.time_ns, kAlpha + (n - 1) * bytes / kBeta, 1e-9 * r.time_ns);
    ASSERT_GE(r.bottleneck, 0);
    if (n > 2) {
      EXPECT_EQ(Routes(star(n, kBeta)).resource_name(r.bottleneck), "g1 -> sw");
    }
    EXPECT_NEAR(r.bottleneck_share, 1 - kAlpha / r.time_ns, 1e-9);
    // On a mesh each copy has its own link.
    const auto mesh = run(plan, full_mesh(n, kBeta), uniform_cost(kAlpha), {bytes});
    EXPECT_NEAR(mesh.time_ns, kAlpha + bytes / kBeta, 1e-9 * r.time_ns);
  }
}

TEST(Simulator, FlowsOfOneLinkShareIt) {
  // k pairs of ranks, all crossing one link between two switches.
  for (int k : {1, 2, 5}) {
    GraphMaker maker(2 * k);
    maker.node("left").node("right").both("left", "right", kBeta);
    Plan plan = empty_plan(CollectiveKind::kAllToAll, 2 * k, 1, 1);
    for (int i = 0; i < k; ++i) {
      maker.both(rank_name(i), "left", 100).both(rank_name(k + i), "right", 100);
      plan.steps[static_cast<std::size_t>(i)].push_back(send(k + i, in(0)));
      plan.steps[static_cast<std::size_t>(k + i)].push_back(recv(i, tmp(0)));
    }
    const double bytes = 1e6;
    const auto r = run(plan, maker.make(), uniform_cost(kAlpha), {bytes * 2 * k});
    EXPECT_NEAR(r.time_ns, kAlpha + bytes * k / kBeta, 1e-6);
  }
}

TEST(Simulator, SharedGroupsLimitTheirMembers) {
  const Plan plan = *make_direct_plan(CollectiveKind::kAllGather, "one_shot", 2, 0);
  GraphMaker maker(2);
  maker.both("g0", "g1", 20);
  const auto free = run(plan, maker.make(), uniform_cost(0), {2e6});
  EXPECT_NEAR(free.time_ns, 1e6 / 20, 1e-6);
  const auto half =
      run(plan, maker.group("half duplex", {0, 1}, 20).make(), uniform_cost(0), {2e6});
  EXPECT_NEAR(half.time_ns, 2e6 / 20, 1e-6);
}

TEST(Simulator, StragglersHoldUpThoseWhoNeedThem) {
  const Plan plan = *make_ring_plan(CollectiveKind::kBroadcast, {identity(4)}, 0);
  const double hop = kAlpha + 1e6 / kBeta;
  SimulationOptions options{1e6};
  options.start_ns = {0, 0, 1e6, 0};
  const auto r = run(plan, full_mesh(4, kBeta), uniform_cost(kAlpha), options);
  EXPECT_NEAR(r.finish_ns[1], hop, 1e-6);
  EXPECT_NEAR(r.finish_ns[2], 1e6, 1e-6);
  EXPECT_NEAR(r.finish_ns[3], 1e6 + hop, 1e-6);
  EXPECT_NEAR(r.spread_ns, 1e6 + hop, 1e-6);  // the root ends at once
}

TEST(Simulator, OverheadOfAProtocolTakesBandwidth) {
  const Plan plan = *make_ring_plan(CollectiveKind::kAllGather, {identity(4)}, 0);
  CostModel model = uniform_cost(0);
  model.protocols[0].efficiency = 0.5;
  const auto r = run(plan, full_mesh(4, kBeta), model, {4e6});
  EXPECT_NEAR(r.time_ns, 3 * 2e6 / kBeta, 1e-6);
  EXPECT_NEAR(std::accumulate(r.resource_bytes.begin(), r.resource_bytes.end(), 0.0), 12e6, 1);
}

TEST(Simulator, ReachesTheRatesOfRingsOnEveryFixture) {
  const double bytes = 1 << 30;
  for (const std::string& name : fixture_names()) {
    const Fixture fixture = load_fixture(name);
    if (fixture.graph.ranks() > 16) continue;
    const Routes routes(fixture.graph);
    const auto rings = round_rings(routes, 8);
    if (!rings.ok()) continue;
    const int n = fixture.graph.ranks();
    const Plan plan = *make_ring_plan(CollectiveKind::kAllReduce, rings->orders, 0);
    const auto r = run(plan, fixture.graph, uniform_cost(500), {bytes});
    const double rate = fixture.graph.gbps(rings->rate());
    EXPECT_NEAR(r.algbw_gbps(bytes), rate * n / (2 * (n - 1)), 0.01 * rate) << name;
  }
}

TEST(Simulator, NothingBeatsTheBound) {
  const double bytes = 256e6;
  for (const std::string& name : fixture_names()) {
    const Fixture fixture = load_fixture(name);
    const Graph& graph = fixture.graph;
    const Routes routes(graph);
    const double gather =
        Rational::parse(fixture.expect["allgather_algbw"].get<std::string>())->to_double();
    const double broadcast =
        fixture.expect["broadcast_rate_by_root"][graph.rank_id(0)].get<double>();
    const auto algbw = [&](const Result<Plan>& plan, int windows) {
      const auto r = simulate(*plan, graph, routes, uniform_cost(0), {bytes, windows});
      return r.ok() ? r->algbw_gbps(bytes) : 0;
    };
    const int n = graph.ranks();
    for (int windows : {1, 8}) {
      for (const char* algorithm : {"one_shot"}) {
        EXPECT_LE(algbw(make_direct_plan(CollectiveKind::kAllGather, algorithm, n, 0), windows),
                  gather * (1 + 1e-6))
            << name;
        EXPECT_LE(algbw(make_direct_plan(CollectiveKind::kReduceScatter, algorithm, n, 0), windows),
                  gather * (1 + 1e-6))
            << name;
        EXPECT_LE(algbw(make_direct_plan(CollectiveKind::kBroadcast, algorithm, n, 0), windows),
                  broadcast * (1 + 1e-6))
            << name;
      }
      EXPECT_LE(algbw(make_direct_plan(CollectiveKind::kBroadcast, "two_shot", n, 0), windows),
                broadcast * (1 + 1e-6))
          << name;
      EXPECT_LE(algbw(make_direct_plan(CollectiveKind::kAllReduce, "two_shot", n, 0), windows),
                gather * (1 + 1e-6))
          << name;
      const auto ring = best_ring(routes);
      if (!ring.ok()) continue;
      std::vector<int> back(ring->order.rbegin(), ring->order.rend());
      EXPECT_LE(algbw(make_ring_plan(CollectiveKind::kAllGather, {ring->order, back}, 0), windows),
                gather * (1 + 1e-6))
          << name;
      EXPECT_LE(algbw(make_ring_plan(CollectiveKind::kBroadcast, {ring->order}, 0), windows),
                broadcast * (1 + 1e-6))
          << name;
    }
  }
}

/// What the plan's sends put on each resource.
std::vector<double> scheduled_bytes(const Plan& plan, const Routes& routes, double bytes) {
  std::vector<double> result(routes.capacities().size(), 0);
  for (int r = 0; r < plan.ranks; ++r) {
    for (const Step& step : plan.steps[static_cast<std::size_t>(r)]) {
      if (step.kind != StepKind::kSend) continue;
      for (const Load& l : routes.find(r, step.peer)->loads) {
        result[static_cast<std::size_t>(l.resource)] += l.load * chunk_bytes(plan, bytes);
      }
    }
  }
  return result;
}

TEST(Simulator, LosesAndInventsNoBytes) {
  int simulated = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Random random(seed);
    const Graph graph = random_graph(seed, seed % 2 == 0);
    const Routes routes(graph);
    const int n = graph.ranks();
    const auto ring = best_ring(routes);
    const Result<Plan> plan = ring.ok() && seed % 3 != 0
                                  ? make_ring_plan(CollectiveKind::kAllReduce, {ring->order}, 0)
                                  : make_direct_plan(CollectiveKind::kAllReduce,
                                                     seed % 2 == 0 ? "one_shot" : "two_shot", n, 0);
    ASSERT_TRUE(verify(*plan).ok()) << "seed " << seed;
    SimulationOptions options{1.0 * (1 + random.below(1 << 24)), 1 + random.below(4)};
    options.slots = 1 + random.below(3);
    for (int r = 0; r < n; ++r) options.start_ns.push_back(random.below(10000));
    const auto r = simulate(*plan, graph, routes, uniform_cost(100, 0.001), options);
    if (!r.ok()) {
      EXPECT_EQ(r.status().cause(), Cause::kUnsupported) << "seed " << seed;
      continue;
    }
    ++simulated;
    const auto wanted = scheduled_bytes(*plan, routes, options.bytes);
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      EXPECT_NEAR(r->resource_bytes[k], wanted[k], 1e-6 * (1 + wanted[k])) << "seed " << seed;
      const double capacity = graph.gbps(routes.capacities()[k]);
      EXPECT_LE(wanted[k], capacity * r->time_ns * (1 + 1e-9)) << "seed " << seed;
    }
    for (int k = 0; k < n; ++k) {
      EXPECT_GE(r->finish_ns[static_cast<std::size_t>(k)],
                options.start_ns[static_cast<std::size_t>(k)]);
    }
    const auto again = simulate(*plan, graph, routes, uniform_cost(100, 0.001), options);
    EXPECT_EQ(again->finish_ns, r->finish_ns) << "seed " << seed;
  }
  EXPECT_GE(simulated, 200);
}

TEST(Simulator, ChannelsTakeThePathsOfThePlan) {
  GraphMaker maker(2);
  maker.node("wide").node("thin");
  maker.both("g0", "wide", 20).both("wide", "g1", 20).both("g0", "thin", 5).both("thin", "g1", 5);
  const Graph graph = maker.make();
  Plan plan = *make_direct_plan(CollectiveKind::kBroadcast, "one_shot", 2, 0);
  EXPECT_NEAR(run(plan, graph, uniform_cost(0), {1e6}).time_ns, 1e6 / 20, 1e-6);
  plan.routes = {{0, 1, 0, {"g0", "thin", "g1"}, 5}};
  EXPECT_NEAR(run(plan, graph, uniform_cost(0), {1e6}).time_ns, 1e6 / 5, 1e-6);
  const auto text = [&](std::vector<std::string> path) {
    plan.routes[0].path = std::move(path);
    return simulate(plan, graph, Routes(graph), uniform_cost(0), {1e6}).status().text();
  };
  EXPECT_THAT(text({"g0", "gone", "g1"}), ::testing::HasSubstr("routes[0] passes gone"));
  EXPECT_THAT(text({"g0", "g1"}),
              ::testing::HasSubstr("no path of the graph from rank 0 to rank 1"));
  EXPECT_THAT(text({"g1", "thin", "g0"}), ::testing::HasSubstr("no path of the graph"));
}

TEST(Simulator, TreePlansComeCloseToTheirRate) {
  const double bytes = 1 << 30;
  for (const std::string name : {"dgx1v_8xV100", "pcie_8gpu_4plx_2socket"}) {
    const Fixture fixture = load_fixture(name);
    const auto packing = pack_allgather(fixture.graph);
    ASSERT_TRUE(packing.ok());
    const auto made = plan_from_packing(CollectiveKind::kAllGather, fixture.graph, *packing);
    ASSERT_TRUE(made.ok());
    const auto r = run(made->plan, fixture.graph, uniform_cost(0), {bytes, 4});
    EXPECT_LE(r.algbw_gbps(bytes), packing->algbw.to_double() * (1 + 1e-6)) << name;
    EXPECT_GE(r.algbw_gbps(bytes), packing->algbw.to_double() / 2) << name;
  }
}

TEST(Simulator, WindowsMayOvertakeLaterMessagesOfEarlierOnes) {
  // Trees share channels here: window 1's first chunk may be sent before window 0's last.
  const Fixture fixture = load_fixture("pcie_8gpu_4plx_2socket");
  const auto trees = pack_allreduce(fixture.graph);
  ASSERT_TRUE(trees.ok()) << trees.status().to_string();
  const auto made = plan_from_pairs(fixture.graph, trees->pairs);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  ASSERT_TRUE(verify(made->plan).ok());
  for (int windows : {1, 2, 8}) {
    const double bytes = 64e6;
    const auto r = run(made->plan, fixture.graph, uniform_cost(100), {bytes, windows});
    EXPECT_GT(r.time_ns, 0) << windows;
    EXPECT_LE(r.algbw_gbps(bytes), trees->upper * (1 + 1e-6)) << windows;
  }
}

TEST(Simulator, NamesWhatIsWrong) {
  const Graph graph = full_mesh(4, 10);
  const Routes routes(graph);
  const CostModel model = uniform_cost(1);
  const Plan plan = *make_direct_plan(CollectiveKind::kAllReduce, "one_shot", 4, 0);
  const auto text = [&](const Plan& p, SimulationOptions options) {
    const auto r = simulate(p, graph, routes, model, options);
    EXPECT_FALSE(r.ok());
    return r.status().text();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(text(*make_direct_plan(CollectiveKind::kAllReduce, "one_shot", 3, 0), {1}),
              HasSubstr("the plan has 3 ranks, the graph 4"));
  EXPECT_THAT(text(plan, {-1}), HasSubstr("a message of -1 bytes"));
  EXPECT_THAT(text(plan, {1, 0}), HasSubstr("0 windows"));
  EXPECT_THAT(text(plan, {1, 1 << 20}), HasSubstr("1 to 65536 windows"));
  EXPECT_THAT(text(plan, {1, 1, 0}), HasSubstr("at least 1 slot"));
  EXPECT_THAT(text(plan, {1, 1, 1, {0, 0}}), HasSubstr("2 starting times for 4 ranks"));
  EXPECT_THAT(text(plan, {1, 1, 1, {0, 0, -5, 0}}), HasSubstr("rank 2 starts at -5 ns"));
  Plan stuck = empty_plan(CollectiveKind::kAllReduce, 4, 1, 1);
  stuck.steps[2].push_back(recv(0, tmp(0)));
  EXPECT_THAT(text(stuck, {1}), HasSubstr("rank 2 waits for ever"));
  Plan broken = plan;
  broken.steps[1].push_back(send(7, in(0)));
  EXPECT_THAT(text(broken, {1}), HasSubstr("peer 7"));

  GraphMaker chain(4);
  for (int r = 0; r < 3; ++r) chain.both(rank_name(r), rank_name(r + 1), 10);
  const Graph line = chain.make();
  const auto r = simulate(plan, line, Routes(line), model, {1});
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.status().text(), HasSubstr("from rank 0 to rank 2"));
}

}  // namespace
}  // namespace topocoll::testing
