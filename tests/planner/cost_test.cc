#include "planner/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace topocoll::testing {
namespace {

TEST(CostFit, FindsTheLineOfExactPoints) {
  std::vector<ProbePoint> points;
  for (double bytes : {1024.0, 65536.0, 1048576.0, 4194304.0}) {
    points.push_back({bytes, 1500 + bytes / 25});
  }
  const auto fit = fit_line(points);
  ASSERT_TRUE(fit.ok());
  EXPECT_NEAR(fit->alpha_ns, 1500, 1e-6);
  EXPECT_NEAR(fit->ns_per_byte, 0.04, 1e-12);
  EXPECT_LT(fit->median_error, 1e-9);
  ASSERT_EQ(fit->residuals_ns.size(), points.size());
}

TEST(CostFit, IsNotMovedByAFewWildPoints) {
  std::vector<ProbePoint> points;
  for (int i = 1; i <= 20; ++i) points.push_back({1e6 * i, 2000 + 1e6 * i / 50});
  points[3].ns *= 40;
  points[11].ns *= 7;
  points[19].ns += 1e9;
  const auto fit = fit_line(points);
  ASSERT_TRUE(fit.ok());
  EXPECT_NEAR(fit->ns_per_byte, 0.02, 0.02 * 0.02);
  EXPECT_NEAR(fit->alpha_ns, 2000, 2000);
  EXPECT_GT(fit->residuals_ns[19], 0.9e9);
  EXPECT_LT(fit->median_error, 0.02);
}

TEST(CostFit, NeverGivesNegativeCosts) {
  const std::vector<ProbePoint> falling = {{1, 300}, {2, 200}, {3, 100}};
  const auto fit = fit_line(falling);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->ns_per_byte, 0);
  EXPECT_EQ(fit->alpha_ns, 200);
}

TEST(CostFit, NamesWhatIsWrong) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto text = [](std::vector<ProbePoint> points) {
    const auto fit = fit_line(points);
    EXPECT_FALSE(fit.ok());
    return fit.status().text();
  };
  EXPECT_THAT(text({{1, 1}, {1, 2}, {2, 3}}), ::testing::HasSubstr("2 different sizes"));
  EXPECT_THAT(text({}), ::testing::HasSubstr("0 different sizes"));
  EXPECT_THAT(text({{1, 1}, {2, nan}, {3, 1}}),
              ::testing::HasSubstr("point 1 is 2 bytes in nan ns"));
  EXPECT_THAT(text({{-1, 1}}), ::testing::HasSubstr("point 0"));
  EXPECT_THAT(text({{1, 0}}), ::testing::HasSubstr("point 0"));
  EXPECT_THAT(text(std::vector<ProbePoint>(2001, {1, 1})),
              ::testing::HasSubstr("2000 are allowed"));
}

TEST(CostModel, TakesTheQuickestProtocolForEachSize) {
  const CostModel model = CostModel::declared();
  EXPECT_EQ(model.protocol_for(64, 25).name, "word_flags");
  EXPECT_EQ(model.protocol_for(256e3, 25).name, "line_flags");
  EXPECT_EQ(model.protocol_for(64e6, 25).name, "bulk");
  for (const ProtocolCost& p : model.protocols) EXPECT_FALSE(p.measured);
  EXPECT_DOUBLE_EQ(model.relative_error(), 0.1);
  EXPECT_TRUE(check(model).ok());
}

TEST(CostModel, KeepsWhatWasMeasured) {
  std::vector<ProbePoint> points;
  for (int i = 1; i <= 9; ++i) {
    const double noise = 0.01 * ((7 * i) % 5 - 2);
    points.push_back({1e6 * i, (1000 + 1e6 * i / 20) * (1 + noise)});
  }
  const auto fit = fit_line(points);
  ASSERT_TRUE(fit.ok());
  const auto cost = measured_protocol("bulk", *fit, 25);
  ASSERT_TRUE(cost.ok());
  EXPECT_TRUE(cost->measured);
  EXPECT_NEAR(cost->efficiency, 0.8, 0.02);
  CostModel model;
  model.protocols = {*cost};
  EXPECT_GT(model.relative_error(), 0.002);
  EXPECT_LT(model.relative_error(), 0.03);
  EXPECT_FALSE(measured_protocol("bulk", *fit, 0).ok());
}

TEST(CostModel, RefusesNonsense) {
  CostModel model;
  EXPECT_THAT(check(model).text(), ::testing::HasSubstr("no protocol"));
  model = CostModel::uniform(-1);
  EXPECT_THAT(check(model).text(), ::testing::HasSubstr("alpha is -1 ns"));
  model = CostModel::uniform(1);
  model.protocols[0].efficiency = 1.5;
  EXPECT_THAT(check(model).text(), ::testing::HasSubstr("efficiency is 1.5"));
  model = CostModel::uniform(1, -2);
  EXPECT_THAT(check(model).text(), ::testing::HasSubstr("-2 ns per byte"));
}

}  // namespace
}  // namespace topocoll::testing
