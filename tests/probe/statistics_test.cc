#include "probe/statistics.h"

#include <gtest/gtest.h>

#include "support/fault_os.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::FaultOs;
using Ranks = std::pair<int, int>;

TEST(Statistics, RanksOfTheMedianAreThoseOfTheTables) {
  EXPECT_EQ(median_ranks(6), Ranks(1, 6));
  EXPECT_EQ(median_ranks(9), Ranks(2, 8));
  EXPECT_EQ(median_ranks(20), Ranks(6, 15));
  EXPECT_EQ(median_ranks(99), Ranks(40, 60));
  EXPECT_EQ(median_ranks(1), Ranks(1, 1));
  EXPECT_EQ(median_ranks(5), Ranks(1, 5));
}

TEST(Statistics, TheFigureIsTheMedianWithItsInterval) {
  const Figure odd = summarize({9, 1, 8, 2, 7, 3, 6, 4, 5}, Better::kLower);
  EXPECT_EQ(odd.measured, 5);
  EXPECT_EQ(odd.spread, (Spread{2, 8, 1, 9}));
  EXPECT_FALSE(odd.declared.has_value());
  const Figure even = summarize({4, 1, 3, 2}, Better::kHigher);
  EXPECT_EQ(even.measured, 2.5);
  EXPECT_EQ(even.spread, (Spread{1, 4, 4, 4}));
  EXPECT_EQ(summarize({}, Better::kLower), Figure());
}

TEST(Sampler, EndsWhenTheIntervalIsNarrow) {
  FaultOs os;
  os.set_clock(TimePoint{});
  Sampler steady(os, {});
  int samples = 0;
  for (; !steady.done(); ++samples) steady.add(100);
  EXPECT_EQ(samples, 9);
  EXPECT_EQ(steady.take(Better::kLower).measured, 100);
}

TEST(Sampler, EndsAtTheMostSamples) {
  FaultOs os;
  os.set_clock(TimePoint{});
  Sampler wild(os, {});
  int samples = 0;
  for (; !wild.done(); ++samples) wild.add(samples % 2 == 0 ? 1 : 100);
  EXPECT_EQ(samples, 99);
}

TEST(Sampler, EndsWhenItsTimeIsOverButNotWithoutASample) {
  FaultOs os;
  os.set_clock(TimePoint{});
  Sampler slow(os, {});
  os.advance(1h);  // nobody has asked yet
  EXPECT_FALSE(slow.done());
  os.advance(50ms);
  EXPECT_FALSE(slow.done());
  slow.add(1);
  EXPECT_TRUE(slow.done());
}

}  // namespace
}  // namespace topocoll
