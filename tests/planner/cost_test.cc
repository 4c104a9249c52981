#include "planner/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/uniform_cost.h"

namespace topocoll::testing {
namespace {

TEST(CostModel, TakesTheQuickestProtocolForEachSize) {
  const CostModel model = CostModel::declared();
  EXPECT_EQ(model.protocol_for(64, 25).name, "word_flags");
  EXPECT_EQ(model.protocol_for(256e3, 25).name, "line_flags");
  EXPECT_EQ(model.protocol_for(64e6, 25).name, "bulk");
  EXPECT_TRUE(check(model).ok());
}

TEST(CostModel, RefusesNonsense) {
  CostModel model;
  EXPECT_THAT(check(model).text(), ::testing::HasSubstr("no protocol"));
  model = uniform_cost(-1);
  EXPECT_THAT(check(model).text(), ::testing::HasSubstr("alpha is -1 ns"));
  model = uniform_cost(1);
  model.protocols[0].efficiency = 1.5;
  EXPECT_THAT(check(model).text(), ::testing::HasSubstr("efficiency is 1.5"));
  model = uniform_cost(1, -2);
  EXPECT_THAT(check(model).text(), ::testing::HasSubstr("-2 ns per byte"));
}

}  // namespace
}  // namespace topocoll::testing
