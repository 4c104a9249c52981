#include "planner/hamilton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "planner/cycle_search.h"
#include "planner/graphs.h"
#include "planner/make_graphs.h"

namespace topocoll::testing {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::infinity();

std::vector<double> random_costs(std::uint64_t seed, int n, int missing_percent) {
  Random random(seed);
  std::vector<double> cost;
  for (int i = 0; i < n * n; ++i) {
    const double value = random.below(50);
    cost.push_back(random.below(100) < missing_percent ? kAbsent : value);
  }
  return cost;
}

bool is_cycle(const std::vector<int>& order, int n) {
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < n; ++i) {
    if (sorted.size() != static_cast<std::size_t>(n) || sorted[static_cast<std::size_t>(i)] != i) {
      return false;
    }
  }
  return order.front() == 0;
}

TEST(Hamilton, FindsTheCheapestCycleOrThatThereIsNone) {
  int without = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const int n = 2 + static_cast<int>(seed % 6);
    const auto cost = random_costs(seed, n, static_cast<int>(seed % 5) * 15);
    double wanted = kAbsent;
    for_each_order(n, [&](const std::vector<int>& order) {
      wanted = std::min(wanted, cycle_cost(cost, order));
    });
    const auto cycle = cheapest_cycle(cost, n, kAbsent);
    std::vector<std::uint32_t> successors(static_cast<std::size_t>(n), 0);
    for (int i = 0; i < n * n; ++i) {
      if (i / n != i % n && cost[static_cast<std::size_t>(i)] < kAbsent) {
        successors[static_cast<std::size_t>(i / n)] |= 1U << (i % n);
      }
    }
    const auto any = hamiltonian_cycle(successors);
    ASSERT_EQ(any.empty(), wanted == kAbsent) << "seed " << seed;
    ASSERT_EQ(cycle.order.empty(), wanted == kAbsent) << "seed " << seed;
    if (wanted == kAbsent) {
      ++without;
      continue;
    }
    EXPECT_TRUE(is_cycle(cycle.order, n) && is_cycle(any, n)) << "seed " << seed;
    EXPECT_LT(cycle_cost(cost, any), kAbsent) << "seed " << seed;
    EXPECT_EQ(cycle.cost, wanted) << "seed " << seed;
    EXPECT_EQ(cycle_cost(cost, cycle.order), wanted) << "seed " << seed;
  }
  EXPECT_GT(without, 10);
}

TEST(Hamilton, TakesIntegerCostsUpToTheLimit) {
  constexpr std::uint64_t kNone = std::uint64_t{1} << 62;
  const std::vector<std::uint64_t> cost = {
      kNone, std::uint64_t{1} << 60, 5, 7, kNone, std::uint64_t{1} << 61, kNone, 3, kNone};
  const auto cycle = cheapest_cycle(cost, 3, kNone);
  EXPECT_EQ(cycle.order, (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(cycle.cost, 15U);
}

TEST(CycleSearch, EndsAtCyclesCloseToTheCheapest) {
  double sum = 0;
  double best = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const int n = 3 + static_cast<int>(seed % 10);
    const auto cost = random_costs(seed, n, 0);
    const auto exact = cheapest_cycle(cost, n, kAbsent);
    const auto found = cheap_cycle(cost, n, {});
    ASSERT_TRUE(is_cycle(found, n)) << "seed " << seed;
    EXPECT_GE(cycle_cost(cost, found), exact.cost) << "seed " << seed;
    EXPECT_EQ(cheap_cycle(cost, n, {exact.order}).empty(), false);
    EXPECT_EQ(cycle_cost(cost, cheap_cycle(cost, n, {exact.order})), exact.cost) << "seed " << seed;
    sum += cycle_cost(cost, found);
    best += exact.cost;
  }
  EXPECT_LT(sum, 1.5 * best);
}

TEST(CycleSearch, FindsAWayAroundWhatIsMissing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto cost = random_costs(seed, 30, 30);
    const auto found = cheap_cycle(cost, 30, {});
    ASSERT_TRUE(is_cycle(found, 30)) << "seed " << seed;
    EXPECT_LT(cycle_cost(cost, found), kAbsent);
  }
  EXPECT_TRUE(cheap_cycle(std::vector<double>(9, kAbsent), 3, {}).empty());
}

}  // namespace
}  // namespace topocoll::testing
