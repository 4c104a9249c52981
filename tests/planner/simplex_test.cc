#include "planner/simplex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace topocoll::testing {
namespace {

/// One program at once.
Result<LpSolution> solve_lp(std::vector<double> rhs, std::span<const LpColumn> columns) {
  LinearProgram lp(std::move(rhs));
  for (const LpColumn& column : columns) lp.add_column(column.objective, column.entries);
  return lp.solve();
}

/// Primal and dual feasibility, complementary slackness and equal objectives prove an optimum.
void expect_optimal(const std::vector<double>& rhs, const std::vector<LpColumn>& columns,
                    const LpSolution& s, const std::string& what) {
  std::vector<double> used(rhs.size(), 0);
  double value = 0;
  for (std::size_t j = 0; j < columns.size(); ++j) {
    ASSERT_GE(s.x[j], 0) << what;
    value += columns[j].objective * s.x[j];
    double price = 0;
    for (const LpEntry& e : columns[j].entries) {
      used[static_cast<std::size_t>(e.row)] += e.value * s.x[j];
      price += e.value * s.dual[static_cast<std::size_t>(e.row)];
    }
    EXPECT_GE(price, columns[j].objective - 1e-7) << what << ": column " << j << " would gain";
  }
  double bound = 0;
  for (std::size_t i = 0; i < rhs.size(); ++i) {
    EXPECT_LE(used[i], rhs[i] + 1e-7 * (1 + rhs[i])) << what << ": row " << i;
    EXPECT_GE(s.dual[i], 0) << what;
    bound += rhs[i] * s.dual[i];
  }
  EXPECT_NEAR(value, s.objective, 1e-7 * (1 + std::abs(value))) << what;
  EXPECT_NEAR(bound, s.objective, 1e-7 * (1 + std::abs(value))) << what;
}

TEST(Simplex, SolvesTheTextbookExample) {
  // max 3x + 5y, x <= 4, 2y <= 12, 3x + 2y <= 18: x = 2, y = 6.
  const std::vector<LpColumn> columns = {{3, {{0, 1}, {2, 3}}}, {5, {{1, 2}, {2, 2}}}};
  const auto s = solve_lp({4, 12, 18}, columns);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_NEAR(s->objective, 36, 1e-9);
  EXPECT_NEAR(s->x[0], 2, 1e-9);
  EXPECT_NEAR(s->x[1], 6, 1e-9);
  EXPECT_NEAR(s->dual[0], 0, 1e-9);
  EXPECT_NEAR(s->dual[1], 1.5, 1e-9);
  EXPECT_NEAR(s->dual[2], 1, 1e-9);
}

TEST(Simplex, EndsWhereTheLargestReducedCostCycles) {
  // Beale's example (1955): without care the method returns to its first basis for ever.
  const std::vector<LpColumn> columns = {{0.75, {{0, 0.25}, {1, 0.5}}},
                                         {-150, {{0, -60}, {1, -90}}},
                                         {0.02, {{0, -0.04}, {1, -0.02}, {2, 1}}},
                                         {-6, {{0, 9}, {1, 3}}}};
  const auto s = solve_lp({0, 0, 1}, columns);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_NEAR(s->objective, 0.05, 1e-9);
  expect_optimal({0, 0, 1}, columns, *s, "Beale");
}

TEST(Simplex, HandlesEmptyPrograms) {
  const auto nothing = solve_lp({}, {});
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->objective, 0);
  const std::vector<LpColumn> useless = {{-1, {{0, 1}}}, {0, {}}};
  const auto s = solve_lp({5}, useless);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_EQ(s->objective, 0);
  EXPECT_EQ(s->x, (std::vector<double>{0, 0}));
}

TEST(Simplex, NamesWhatIsWrong) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto text = [](std::vector<double> rhs, std::vector<LpColumn> columns) {
    const auto s = solve_lp(std::move(rhs), columns);
    EXPECT_FALSE(s.ok());
    EXPECT_EQ(s.status().cause(), Cause::kInvalidArgument);
    return s.status().text();
  };
  EXPECT_THAT(text({1, -1}, {}), ::testing::HasSubstr("row 1 is -1"));
  EXPECT_THAT(text({nan}, {}), ::testing::HasSubstr("row 0 is nan"));
  EXPECT_THAT(text({1}, {{1, {{0, 1}}}, {1, {{1, 1}}}}),
              ::testing::HasSubstr("column 1: row 1 does not exist, there are 1"));
  EXPECT_THAT(text({1}, {{1, {{0, 1}, {0, 2}}}}), ::testing::HasSubstr("column 0: row 0 twice"));
  EXPECT_THAT(text({1}, {{nan, {{0, 1}}}}), ::testing::HasSubstr("its cost is nan"));
  EXPECT_THAT(text({1}, {{1, {{0, nan}}}}), ::testing::HasSubstr("row 0 holds nan"));
  EXPECT_THAT(text({1}, {{1, {{0, 1}}}, {2, {{0, -1}}}}),
              ::testing::HasSubstr("unbounded: column 1 can grow without limit"));
  EXPECT_THAT(text({1}, {{1, {}}}), ::testing::HasSubstr("unbounded"));
}

TEST(Simplex, StopsAtTheLimitOfPivots) {
  LinearProgram lp({1, 1});
  lp.add_column(1, std::vector<LpEntry>{{0, 1}});
  lp.add_column(1, std::vector<LpEntry>{{1, 1}});
  const auto s = lp.solve(1);
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.status().text(), ::testing::HasSubstr("no optimum after 1 pivots"));
}

std::vector<LpColumn> random_columns(std::mt19937_64& random, int rows, int columns, bool integer) {
  std::vector<LpColumn> result;
  for (int j = 0; j < columns; ++j) {
    LpColumn column;
    const auto pick = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
    column.objective = integer ? pick(4) : 0.01 * pick(1000) - 2;
    for (int i = 0; i < rows; ++i) {
      if (pick(100) < 30) column.entries.push_back({i, integer ? 1.0 : 0.01 * pick(1000) + 0.01});
    }
    if (column.entries.empty())
      column.entries.push_back({pick(static_cast<std::uint64_t>(rows)), 1});
    result.push_back(std::move(column));
  }
  return result;
}

TEST(Simplex, ProvesItsOptimumOnRandomPrograms) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const int rows = 1 + static_cast<int>(random() % 30);
    const bool integer = seed % 2 == 0;  // equal capacities: degenerate
    std::vector<double> rhs;
    for (int i = 0; i < rows; ++i) {
      rhs.push_back(integer ? 1 + static_cast<double>(random() % 2)
                            : static_cast<double>(random() % 5) * std::pow(10, random() % 4));
    }
    const auto columns = random_columns(random, rows, 1 + static_cast<int>(random() % 60), integer);
    const auto s = solve_lp(rhs, columns);
    ASSERT_TRUE(s.ok()) << "seed " << seed << ": " << s.status().to_string();
    expect_optimal(rhs, columns, *s, "seed " + std::to_string(seed));
  }
}

TEST(Simplex, GoesOnFromTheLastBasisAsColumnsAreAdded) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<double> rhs(40, 2.0);
    const auto columns = random_columns(random, 40, 200, true);
    LinearProgram lp(rhs);
    std::int64_t pivots = 0;
    for (std::size_t j = 0; j < columns.size(); ++j) {
      lp.add_column(columns[j].objective, columns[j].entries);
      if (j % 10 != 9) continue;
      const auto s = lp.solve();
      ASSERT_TRUE(s.ok()) << "seed " << seed << ": " << s.status().to_string();
      expect_optimal(rhs, {columns.begin(), columns.begin() + static_cast<std::ptrdiff_t>(j) + 1},
                     *s, "seed " + std::to_string(seed) + ", columns " + std::to_string(j + 1));
      pivots = s->pivots;
    }
    const auto again = lp.solve();
    ASSERT_TRUE(again.ok());
    EXPECT_LE(again->pivots, pivots) << "a second solve starts over";
    const auto cold = solve_lp(rhs, columns);
    ASSERT_TRUE(cold.ok());
    EXPECT_NEAR(cold->objective, again->objective, 1e-7);
  }
}

TEST(Simplex, SolvesLargeDegeneratePrograms) {
  // Paths of one to six of 200 equal links, worth 1 each.
  std::mt19937_64 random(7);
  const std::vector<double> rhs(200, 25.0);
  std::vector<LpColumn> columns;
  for (int j = 0; j < 1500; ++j) {
    LpColumn column{1, {}};
    int row = static_cast<int>(random() % 200);
    for (std::uint64_t k = 0; k <= random() % 6; ++k) {
      column.entries.push_back({row, 1});
      row = (row + 1 + static_cast<int>(random() % 50)) % 200;
    }
    std::sort(column.entries.begin(), column.entries.end(),
              [](const LpEntry& a, const LpEntry& b) { return a.row < b.row; });
    column.entries.erase(
        std::unique(column.entries.begin(), column.entries.end(),
                    [](const LpEntry& a, const LpEntry& b) { return a.row == b.row; }),
        column.entries.end());
    columns.push_back(std::move(column));
  }
  const auto s = solve_lp(rhs, columns);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  expect_optimal(rhs, columns, *s, "large");
}

TEST(Simplex, GivesTheSameBitsTwice) {
  std::mt19937_64 random(3);
  const auto columns = random_columns(random, 30, 100, true);
  const std::vector<double> rhs(30, 3.0);
  const auto a = solve_lp(rhs, columns);
  const auto b = solve_lp(rhs, columns);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->x, b->x);
  EXPECT_EQ(a->dual, b->dual);
}

}  // namespace
}  // namespace topocoll::testing
