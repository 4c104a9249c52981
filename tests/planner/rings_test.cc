#include "planner/rings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "planner/make_graphs.h"
#include "planner/rational.h"
#include "planner/routes.h"

namespace topocoll::testing {
namespace {

double number(const nlohmann::json& value) {
  return Rational::parse(value.get<std::string>())->to_double();
}

TEST(Rings, EveryFixtureHasTheOrdersThatItShould) {
  int compared = 0;
  for (const std::string& name : fixture_names()) {
    const Fixture fixture = load_fixture(name);
    const nlohmann::json ring = fixture.expect.value("single_ring", nlohmann::json::object());
    if (ring.empty()) continue;
    ++compared;
    const Routes routes(fixture.graph);
    std::vector<double> rates;
    for_each_order(routes.ranks(), [&](const std::vector<int>& order) {
      rates.push_back(fixture.graph.gbps(routes.rate(order)));
    });
    EXPECT_NEAR(rates.front(), number(ring["identity_rate"]), 1e-9) << name;
    std::sort(rates.begin(), rates.end());
    const double best = number(ring["best_rate"]);
    EXPECT_NEAR(rates.back(), best, 1e-9) << name;
    EXPECT_NEAR(rates[rates.size() / 2], number(ring["median_rate"]), 1e-9) << name;
    EXPECT_NEAR(rates.front(), number(ring["worst_rate"]), 1e-9) << name;
    EXPECT_EQ(rates.size(), ring["orders_total"].get<std::size_t>()) << name;
    EXPECT_EQ(
        std::count_if(rates.begin(), rates.end(), [best](double r) { return r > best - 1e-9; }),
        ring["orders_at_best"].get<int>())
        << name;
    const auto found = best_ring(routes);
    ASSERT_TRUE(found.ok()) << name << ": " << found.status().to_string();
    EXPECT_NEAR(fixture.graph.gbps(found->cost.rate), best, 1e-9) << name;
    EXPECT_EQ(found->proof, RingProof::kExact) << name;
    EXPECT_NEAR(found->upper_bound, found->cost.rate, 1e-9) << name;
  }
  EXPECT_GE(compared, 9);
}

TEST(Rings, FindsOneOfTheTwoFastOrdersOfADgx1) {
  const Fixture fixture = load_fixture("dgx1v_8xV100");
  const auto ring = best_ring(Routes(fixture.graph));
  ASSERT_TRUE(ring.ok());
  const std::vector<int> order = {0, 3, 2, 1, 5, 6, 7, 4};
  std::vector<int> reversed(order.rbegin(), order.rend());
  std::rotate(reversed.begin(), reversed.end() - 1, reversed.end());
  EXPECT_THAT(ring->order, ::testing::AnyOf(order, reversed));
}

TEST(Rings, NamesOfDevicesDoNotChangeTheRate) {
  for (const std::string& name : fixture_names()) {
    const Fixture fixture = load_fixture(name);
    if (fixture.graph.ranks() > 16) continue;
    const auto ring = best_ring(Routes(fixture.graph));
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const Graph other = shuffled(fixture.graph, seed);
      const auto again = best_ring(Routes(other));
      ASSERT_EQ(ring.ok(), again.ok()) << name << ", seed " << seed;
      if (!ring.ok()) continue;
      EXPECT_NEAR(other.gbps(again->cost.rate), fixture.graph.gbps(ring->cost.rate), 1e-9)
          << name << ", seed " << seed;
    }
  }
}

/// A mesh with a few classes of bandwidth and random latencies; some links are missing.
Graph random_mesh(std::uint64_t seed, int ranks, int missing_percent) {
  Random random(seed);
  GraphMaker maker(ranks);
  for (int a = 0; a < ranks; ++a) {
    for (int b = 0; b < ranks; ++b) {
      if (a == b) continue;
      const double gbps = 25.0 * (1 + random.below(3));
      const double latency = 100 + 50.0 * random.below(8);
      // The ring 0, 1, 2, ... always exists.
      if (b == (a + 1) % ranks || random.below(100) >= missing_percent) {
        maker.link(rank_name(a), rank_name(b), gbps, latency);
      }
    }
  }
  return maker.make();
}

/// Ranks on switches of a random tree, so that hops share links.
Graph random_tree(std::uint64_t seed, int ranks) {
  Random random(seed);
  GraphMaker maker(ranks);
  const int switches = 2 + random.below(3);
  for (int s = 0; s < switches; ++s) maker.node("s" + std::to_string(s));
  for (int s = 1; s < switches; ++s) {
    maker.both("s" + std::to_string(random.below(s)), "s" + std::to_string(s),
               4.0 * (1 + random.below(4)), 100.0 * (1 + random.below(3)));
  }
  for (int r = 0; r < ranks; ++r) {
    maker.both(rank_name(r), "s" + std::to_string(random.below(switches)), 12,
               50.0 * (1 + random.below(4)));
  }
  return maker.make();
}

void expect_no_better_order(const Graph& graph, const std::string& what) {
  const Routes routes(graph);
  const auto ring = best_ring(routes);
  ASSERT_TRUE(ring.ok()) << what << ": " << ring.status().to_string();
  EXPECT_EQ(ring->proof, RingProof::kExact) << what;
  EXPECT_EQ(ring->order.front(), 0);
  for_each_order(graph.ranks(), [&](const std::vector<int>& order) {
    const RingCost cost = ring_cost(routes, order);
    // Latencies are rounded where hops are independent.
    RingCost finer = ring->cost;
    finer.sum_latency_ns *= 1 - 1e-4;
    finer.latency_variance = 0;
    EXPECT_FALSE(better(cost, finer) && cost.rate > 0) << what;
    EXPECT_FALSE(better(cost, ring->cost) && cost.sum_latency_ns == ring->cost.sum_latency_ns &&
                 cost.latency_variance < ring->cost.latency_variance * 0.99)
        << what << ": variance";
  });
}

TEST(Rings, NoOrderIsFasterOrLessSkewedInRandomMeshes) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    expect_no_better_order(random_mesh(seed, 3 + static_cast<int>(seed % 5), 30),
                           "mesh, seed " + std::to_string(seed));
  }
}

TEST(Rings, NoOrderIsFasterOrLessSkewedInRandomTrees) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    expect_no_better_order(random_tree(seed, 3 + static_cast<int>(seed % 5)),
                           "tree, seed " + std::to_string(seed));
  }
}

TEST(Rings, ChoosesTheLeastSkewAmongEquals) {
  // Equal bandwidths; the ring 0 5 2 7 4 1 6 3 alone has hops of 300 ns or less.
  const std::vector<int> planted = {0, 5, 2, 7, 4, 1, 6, 3};
  GraphMaker maker(8);
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      if (a == b) continue;
      const auto from = std::find(planted.begin(), planted.end(), a) - planted.begin();
      const bool on_ring = planted[static_cast<std::size_t>((from + 1) % 8)] == b;
      maker.link(rank_name(a), rank_name(b), 50, on_ring ? 300 : 301 + 7 * ((a * 3 + b) % 5));
    }
  }
  const auto ring = best_ring(Routes(maker.make()));
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(ring->order, planted);
  EXPECT_DOUBLE_EQ(ring->cost.max_latency_ns, 300);
  EXPECT_DOUBLE_EQ(ring->cost.latency_variance, 0);
}

TEST(Rings, ChoosesTheLeastSkewUnderOneSwitch) {
  // Latency belongs to ports here: every order has the same hops in sum, not in their largest.
  GraphMaker maker(4);
  maker.node("sw");
  for (int r = 0; r < 4; ++r) {
    maker.link(rank_name(r), "sw", 100, 100.0 * (r + 1));
    maker.link("sw", rank_name(r), 100, 100.0 * ((r + 1) % 4 + 1));
  }
  const Graph graph = maker.make();
  const Routes routes(graph);
  EXPECT_TRUE(routes.hops_are_independent());
  expect_no_better_order(graph, "switch");
}

TEST(Rings, EvensHopsOutWhereMaximumAndSumAreEqual) {
  // Two rings, both of maximum 400 and sum 1200.
  GraphMaker maker(4);
  const std::map<std::pair<int, int>, double> latency = {
      {{0, 1}, 400}, {{1, 2}, 400}, {{2, 3}, 200}, {{3, 0}, 200},
      {{0, 2}, 400}, {{2, 1}, 300}, {{1, 3}, 300}};
  for (const auto& [ends, ns] : latency) {
    maker.link(rank_name(ends.first), rank_name(ends.second), 10, ns);
  }
  const auto ring = best_ring(Routes(maker.make()));
  ASSERT_TRUE(ring.ok()) << ring.status().to_string();
  EXPECT_EQ(ring->order, (std::vector<int>{0, 2, 1, 3}));
}

TEST(Rings, UnknownLatencyIsNotTakenForAGoodOne) {
  GraphMaker maker(4);
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      // Hops of the ring 0 1 2 3 are known to be good; others are bad or unknown.
      if (a == b) continue;
      const std::optional<double> other =
          (a + b) % 2 == 0 ? std::optional<double>(900) : std::nullopt;
      maker.link(rank_name(a), rank_name(b), 10,
                 b == (a + 1) % 4 ? std::optional<double>(500) : other);
    }
  }
  const auto ring = best_ring(Routes(maker.make()));
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(ring->order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Rings, SharedGroupsSlowRingsDown) {
  const Graph graph = two_islands(10);
  const Routes routes(graph);
  EXPECT_FALSE(routes.hops_are_independent());
  const auto ring = best_ring(routes);
  ASSERT_TRUE(ring.ok());
  EXPECT_NEAR(graph.gbps(ring->cost.rate), 5, 1e-9);
  EXPECT_NEAR(graph.gbps(routes.rate(std::vector<int>{0, 2, 1, 3})), 2.5, 1e-9);
  EXPECT_EQ(ring->proof, RingProof::kExact);
}

TEST(Rings, SaysWhereThereIsNone) {
  GraphMaker chain(4);
  for (int r = 0; r < 3; ++r) chain.both(rank_name(r), rank_name(r + 1), 10);
  const auto ring = best_ring(Routes(chain.make()));
  ASSERT_FALSE(ring.ok());
  EXPECT_EQ(ring.status().cause(), Cause::kUnsupported);
  EXPECT_THAT(ring.status().text(), ::testing::HasSubstr("no order of the ranks closes a ring"));
}

TEST(Rings, TwoRanksAreARing) {
  const auto ring = best_ring(Routes(full_mesh(2, 10)));
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(ring->order, (std::vector<int>{0, 1}));
}

TEST(Rings, TwentyRanksAreSolvedExactly) {
  const auto ring = best_ring(Routes(random_mesh(5, 20, 60)));
  ASSERT_TRUE(ring.ok()) << ring.status().to_string();
  EXPECT_EQ(ring->proof, RingProof::kExact);
  EXPECT_GT(ring->cost.rate, 0);
}

TEST(Rings, SixteenRanksOnAPcieTreeReachTheirBound) {
  // Two sockets, four switches each, two ranks a switch.
  GraphMaker maker(16);
  maker.node("cpu0").node("cpu1").both("cpu0", "cpu1", 10);
  for (int s = 0; s < 8; ++s) {
    const std::string plx = "plx" + std::to_string(s);
    maker.node(plx).both(plx, "cpu" + std::to_string(s / 4), 12);
    maker.both(rank_name(s), plx, 12).both(rank_name(s + 8), plx, 12);
  }
  const Graph graph = maker.make();
  const auto ring = best_ring(Routes(graph));
  ASSERT_TRUE(ring.ok());
  EXPECT_NEAR(graph.gbps(ring->cost.rate), 10, 1e-9);
}

TEST(Rings, LargeGraphsGetGoodRings) {
  const std::map<std::string, double> wanted = {{"dgxa100_x4", 25}, {"mi250_2x16", 16}};
  for (const auto& [name, gbps] : wanted) {
    const Graph graph = shuffled(load_fixture(name).graph, 1);
    const Routes routes(graph);
    const auto ring = best_ring(routes);
    ASSERT_TRUE(ring.ok()) << name << ": " << ring.status().to_string();
    EXPECT_GE(graph.gbps(ring->cost.rate), gbps - 1e-9) << name;
    EXPECT_LE(ring->cost.rate, ring->upper_bound * (1 + 1e-9)) << name;
    EXPECT_EQ(best_ring(routes)->order, ring->order) << name;
  }
}

}  // namespace
}  // namespace topocoll::testing
