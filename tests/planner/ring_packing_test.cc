#include "planner/ring_packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "planner/make_graphs.h"
#include "planner/ring_columns.h"
#include "planner/routes.h"

namespace topocoll::testing {
namespace {

struct WeightedRing {
  std::vector<int> order;
  double rate = 0;
};

/// Rings of any rates, as the linear program has them before they are rounded.
struct RingPacking {
  std::vector<WeightedRing> rings;
  double rate = 0;
  double upper_bound = 0;
};

Result<RingPacking> pack_rings(const Routes& routes) {
  const Result<RingResult> single = best_ring(routes);
  if (!single.ok()) return single.status();
  RingColumns columns(routes);
  columns.add(single->order);
  columns.add_reverse(single->order);
  const Result<RingColumns::Optimum> optimum = columns.solve(routes.capacities());
  if (!optimum.ok()) return optimum.status();
  RingPacking packing{{}, optimum->rate, optimum->upper_bound};
  for (std::size_t k = 0; k < optimum->x.size(); ++k) {
    if (optimum->x[k] > 1e-9 * optimum->rate) {
      packing.rings.push_back({columns.pool()[k], optimum->x[k]});
    }
  }
  return packing;
}

/// The largest use of a resource by weighted rings, as a part of its capacity.
double worst_use(const Routes& routes, const std::vector<WeightedRing>& rings) {
  std::vector<double> used(routes.capacities().size(), 0);
  for (const WeightedRing& ring : rings) {
    const std::vector<double> loads = routes.ring_loads(ring.order);
    EXPECT_FALSE(loads.empty());
    for (std::size_t r = 0; r < loads.size(); ++r) used[r] += ring.rate * loads[r];
  }
  double worst = 0;
  for (std::size_t r = 0; r < used.size(); ++r) {
    worst = std::max(worst, used[r] / routes.capacities()[r]);
  }
  return worst;
}

TEST(RingPacking, ReachesTheOptimumOfEveryFixture) {
  int compared = 0;
  for (const std::string& name : fixture_names()) {
    const Fixture fixture = load_fixture(name);
    if (!fixture.expect.contains("ring_packing_lp_rate")) continue;
    ++compared;
    for (std::uint64_t seed = 0; seed <= 1; ++seed) {
      const Graph graph = seed == 0 ? fixture.graph : shuffled(fixture.graph, seed);
      const Routes routes(graph);
      const auto packing = pack_rings(routes);
      ASSERT_TRUE(packing.ok()) << name << ": " << packing.status().to_string();
      const double wanted = fixture.expect["ring_packing_lp_rate"].get<double>();
      const double rate = graph.gbps(packing->rate);
      EXPECT_NEAR(rate, wanted, 1e-4) << name;
      const int n = graph.ranks();
      EXPECT_NEAR(rate * n / (n - 1), fixture.expect["ring_packing_allgather_algbw"].get<double>(),
                  1e-3)
          << name;
      EXPECT_NEAR(graph.gbps(packing->upper_bound), rate, 1e-5 * rate) << name;
      EXPECT_LE(worst_use(routes, packing->rings), 1 + 1e-7) << name;
      double sum = 0;
      for (const WeightedRing& ring : packing->rings) sum += ring.rate;
      EXPECT_NEAR(sum, packing->rate, 1e-6 * sum) << name;
    }
  }
  EXPECT_GE(compared, 7);
}

TEST(RingPacking, CannotBeatTheCrossingOfSockets) {
  const Fixture fixture = load_fixture("pcie_8gpu_4plx_2socket");
  const auto packing = pack_rings(Routes(fixture.graph));
  ASSERT_TRUE(packing.ok());
  EXPECT_NEAR(fixture.graph.gbps(packing->rate), 10, 1e-6);
}

TEST(RingPacking, IsNeverBelowASingleRing) {
  for (const std::string& name : fixture_names()) {
    const Fixture fixture = load_fixture(name);
    const Routes routes(fixture.graph);
    const auto ring = best_ring(routes);
    const auto packing = pack_rings(routes);
    ASSERT_EQ(ring.ok(), packing.ok()) << name;
    if (!ring.ok()) continue;
    EXPECT_GE(packing->rate, ring->cost.rate * (1 - 1e-6)) << name;
    EXPECT_LE(packing->rate, packing->upper_bound * (1 + 1e-9)) << name;
    EXPECT_LE(worst_use(routes, packing->rings), 1 + 1e-7) << name;
  }
}

TEST(RingPacking, UsesMostOfLargeMachines) {
  // 32 ranks: a ring crosses between boxes at 25 or 16 GB/s; all ranks together at 200 and 256.
  const std::map<std::string, double> wanted = {{"dgxa100_x4", 180}, {"mi250_2x16", 230}};
  for (const auto& [name, gbps] : wanted) {
    const Fixture fixture = load_fixture(name);
    const Routes routes(fixture.graph);
    const auto packing = pack_rings(routes);
    ASSERT_TRUE(packing.ok()) << name << ": " << packing.status().to_string();
    EXPECT_GE(fixture.graph.gbps(packing->rate), gbps) << name;
    EXPECT_LE(worst_use(routes, packing->rings), 1 + 1e-7) << name;
    const auto channels = round_rings(routes, 4);
    ASSERT_TRUE(channels.ok()) << name;
    EXPECT_GE(channels->rate(), 1.9 * best_ring(routes)->cost.rate) << name;
  }
}

TEST(RingChannels, FillsTheLinksOfKnownMachines) {
  // Rates of all channels together: with enough channels the packing's own.
  const std::map<std::string, std::pair<int, double>> wanted = {
      {"dgx1v_8xV100", {8, 150}},       {"dgx1p_8xP100", {8, 80}},
      {"mi300x_8_full_mesh", {8, 448}}, {"rccl_rome_model_80", {8, 384}},
      {"rccl_rome_model_66", {8, 200}}, {"dgx1v_degraded_03half_67dead", {8, 100}}};
  for (const auto& [name, want] : wanted) {
    const Fixture fixture = load_fixture(name);
    const Routes routes(fixture.graph);
    const auto channels = round_rings(routes, want.first);
    ASSERT_TRUE(channels.ok()) << name << ": " << channels.status().to_string();
    EXPECT_NEAR(fixture.graph.gbps(channels->rate()), want.second, 1e-6) << name;
    EXPECT_LE(channels->orders.size(), static_cast<std::size_t>(want.first));
  }
}

TEST(RingChannels, StaysWithinCapacityAndBound) {
  for (const std::string& name : fixture_names()) {
    const Fixture fixture = load_fixture(name);
    if (fixture.graph.ranks() > 16) continue;
    const Routes routes(fixture.graph);
    const auto ring = best_ring(routes);
    if (!ring.ok()) continue;
    double before = 0;
    const auto rounded = round_rings(routes, std::vector<int>{1, 2, 4});
    ASSERT_TRUE(rounded.ok()) << name;
    ASSERT_EQ(rounded->size(), 3U);
    for (const RingChannels& choice : *rounded) {
      const RingChannels* channels = &choice;
      std::vector<WeightedRing> rings;
      for (const auto& order : channels->orders) rings.push_back({order, channels->rate_each});
      EXPECT_LE(worst_use(routes, rings), 1 + 1e-6) << name;
      EXPECT_GE(channels->rate(), ring->cost.rate * (1 - 1e-9)) << name;
      EXPECT_GE(channels->rate(), before * (1 - 1e-9)) << name << ": more channels are slower";
      EXPECT_LE(channels->rate(), channels->upper_bound * (1 + 1e-6)) << name;
      before = channels->rate();
    }
  }
}

/// The best rate of `count` rings of equal rate, by trying all multisets of all rings.
double brute_force(const Routes& routes, int count) {
  std::vector<std::vector<double>> loads;
  for_each_order(routes.ranks(), [&](const std::vector<int>& order) {
    std::vector<double> load = routes.ring_loads(order);
    if (!load.empty()) loads.push_back(std::move(load));
  });
  double best = 0;
  std::vector<double> sum(routes.capacities().size(), 0);
  const auto recurse = [&](const auto& self, std::size_t first, int left) -> void {
    double rate = 1e300;
    for (std::size_t r = 0; r < sum.size(); ++r) {
      if (sum[r] > 0) rate = std::min(rate, routes.capacities()[r] / sum[r]);
    }
    if (left < count) best = std::max(best, rate * (count - left));
    if (left == 0) return;
    for (std::size_t k = first; k < loads.size(); ++k) {
      for (std::size_t r = 0; r < sum.size(); ++r) sum[r] += loads[k][r];
      self(self, k, left - 1);
      for (std::size_t r = 0; r < sum.size(); ++r) sum[r] -= loads[k][r];
    }
  };
  recurse(recurse, 0, count);
  return best;
}

TEST(RingChannels, FindsTheBestChoiceInSmallGraphs) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    const int n = 3 + random.below(3);
    GraphMaker maker(n);
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) {
        if (a != b) maker.link(rank_name(a), rank_name(b), 5.0 * (1 + random.below(4)));
      }
    }
    const Routes routes(maker.make());
    for (int count : {1, 2, 3}) {
      const double wanted = brute_force(routes, count);
      const auto channels = round_rings(routes, count);
      ASSERT_TRUE(channels.ok()) << "seed " << seed;
      EXPECT_LE(channels->rate(), wanted * (1 + 1e-6)) << "seed " << seed << ", " << count;
      EXPECT_GE(channels->upper_bound, wanted * (1 - 1e-6)) << "seed " << seed << ", " << count;
      if (channels->exact) {
        EXPECT_NEAR(channels->rate(), wanted, 1e-6 * wanted) << "seed " << seed << ", " << count;
      }
      EXPECT_GE(channels->rate(), 0.9 * wanted) << "seed " << seed << ", " << count;
    }
  }
}

TEST(RingChannels, RefusesCountsOutOfRange) {
  const Routes routes(full_mesh(4, 10));
  for (int count : {0, -1, 65}) {
    const auto channels = round_rings(routes, count);
    ASSERT_FALSE(channels.ok());
    EXPECT_THAT(channels.status().text(), ::testing::HasSubstr("1 to 64"));
  }
}

}  // namespace
}  // namespace topocoll::testing
