// MethodChooser against a machine whose speeds the test sets.
#include "collectives/cpu/method.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

namespace topocoll {
namespace {

using Kind = CollectiveKind;

constexpr std::size_t kSize = 64 << 10;
const std::vector<CopyKind> kCopies{CopyKind::kMemcpy, CopyKind::kString, CopyKind::kStream};

class MethodTest : public ::testing::Test {
 protected:
  MethodTest() {
    tuning_.small_copy_bytes = 4096;
    tuning_.slot_copy = static_cast<std::uint8_t>(CopyKind::kStream);
    tuning_.two_shot_bytes = std::size_t(1) << 40;
  }

  MethodChooser chooser(std::size_t two_shot_min_bytes = 0, std::size_t ring_min_bytes = 0) {
    return MethodChooser(*header_, tuning_, {kCopies, 32 << 10, two_shot_min_bytes, ring_min_bytes});
  }
  [[nodiscard]] Method now(std::size_t bytes) const { return current_method(*header_, tuning_, bytes); }

  /// `operations` of a machine on which method m takes cost(m) ns per byte.
  void run(MethodChooser& c, int operations, std::size_t bytes, const std::function<double(Method)>& cost,
           Kind kind = Kind::kAllReduce) {
    for (int i = 0; i < operations; ++i) {
      if (!c.begin(kind, bytes)) continue;
      ++timed_;
      c.report(bytes, cost(now(bytes)) * static_cast<double>(bytes));
    }
  }

  std::unique_ptr<shm::SegmentHeader> header_ = std::make_unique<shm::SegmentHeader>();
  shm::Tuning tuning_;
  int timed_ = 0;
};

double string_wins(Method m) { return m.copy == CopyKind::kString ? 1.0 : 2.0; }
double stream_wins(Method m) { return m.copy == CopyKind::kStream ? 1.0 : 2.0; }

TEST_F(MethodTest, ClassesArePowersOfTwo) {
  EXPECT_EQ(method_class(512), 0);
  EXPECT_EQ(method_class(1023), 0);
  EXPECT_EQ(method_class(1024), 1);
  EXPECT_EQ(method_class(~std::size_t(0)), shm::kMethodClasses - 1);
  for (int k = 0; k < shm::kMethodClasses; ++k) EXPECT_EQ(method_class(method_class_bytes(k)), k);
}

TEST_F(MethodTest, PackedFormIsTheMethodAndNeverZero) {
  for (int copy = 0; copy < kNumCopyKinds; ++copy) {
    for (const bool two : {false, true}) {
      for (const bool ring : {false, true}) {
        const Method m{static_cast<CopyKind>(copy), two, ring};
        EXPECT_NE(m.packed(), 0);
        EXPECT_EQ(Method::unpack(m.packed()), m);
      }
    }
  }
}

TEST_F(MethodTest, StartsWithTheProbesAdvice) {
  EXPECT_EQ(now(2048).copy, CopyKind::kMemcpy);
  EXPECT_EQ(now(4096).copy, CopyKind::kStream);
  EXPECT_EQ(now(8), Method{});
}

TEST_F(MethodTest, FindsTheFastestAndFollowsTheMachine) {
  MethodChooser c = chooser();
  run(c, 100, kSize, string_wins);
  EXPECT_EQ(now(kSize).copy, CopyKind::kString);
  run(c, 4000, kSize, stream_wins);
  EXPECT_EQ(now(kSize).copy, CopyKind::kStream);
  run(c, 4000, kSize, string_wins);
  EXPECT_EQ(now(kSize).copy, CopyKind::kString);
}

TEST_F(MethodTest, AChangeOfTimesIsNoticedSoon) {
  MethodChooser c = chooser();
  run(c, 20'000, kSize, string_wins);  // the rounds have become rare
  // The machine changes: what was good takes three times as long.
  run(c, 300, kSize, [](Method m) { return m.copy == CopyKind::kStream ? 1.5 : 3.0; });
  EXPECT_EQ(now(kSize).copy, CopyKind::kStream);
}

TEST_F(MethodTest, TrialsAreAFewPerCentOfTheOperations) {
  MethodChooser c = chooser();
  int trials = 0;
  run(c, 100'000, kSize, [&](Method m) {
    trials += m.copy != CopyKind::kStream;
    return stream_wins(m);
  });
  EXPECT_LT(trials, 1000);
  EXPECT_GT(trials, 100);
  EXPECT_EQ(now(kSize).copy, CopyKind::kStream);
}

TEST_F(MethodTest, ASmallAdvantageMustShowTwice) {
  MethodChooser c = chooser();
  int rounds = 0;
  // 10 % better, but only while the first round lasts.
  run(c, 5000, kSize, [&](Method m) {
    ++rounds;
    return m.copy == CopyKind::kString && rounds <= 6 ? 0.9 : 1.0;
  });
  EXPECT_EQ(now(kSize).copy, CopyKind::kStream);
  run(c, 5000, kSize, [](Method m) { return m.copy == CopyKind::kString ? 0.9 : 1.0; });
  EXPECT_EQ(now(kSize).copy, CopyKind::kString);
}

TEST_F(MethodTest, NoiseChangesNothing) {
  MethodChooser c = chooser();
  run(c, 5000, kSize, [](Method m) { return m.copy == CopyKind::kString ? 0.97 : 1.0; });
  EXPECT_EQ(now(kSize).copy, CopyKind::kStream);
}

TEST_F(MethodTest, PlanChangesOnlyWhereItMay) {
  const auto two_shot_wins = [](Method m) { return m.two_shot ? 1.0 : 2.0; };
  MethodChooser c = chooser(1 << 20);
  run(c, 200, kSize, two_shot_wins);
  EXPECT_FALSE(now(kSize).two_shot);
  run(c, 200, 2 << 20, two_shot_wins, Kind::kAllGather);
  EXPECT_FALSE(now(2 << 20).two_shot);
  run(c, 1000, 2 << 20, two_shot_wins);
  EXPECT_TRUE(now(2 << 20).two_shot);
}

TEST_F(MethodTest, TheRingIsTriedOnlyWhereASlotWouldDo) {
  const auto ring_wins = [](Method m) { return m.ring ? 1.0 : 2.0; };
  tuning_.ring_from_bytes = (32 << 10) + 1;
  MethodChooser c = chooser(0, 8 << 10);
  run(c, 4000, 4 << 10, ring_wins);
  EXPECT_FALSE(now(4 << 10).ring);
  run(c, 4000, 8 << 10, ring_wins, Kind::kBroadcast);
  EXPECT_FALSE(now(8 << 10).ring) << "ranks of other collectives do not all do the same";
  for (const std::size_t bytes : {8 << 10, 20'000, 32 << 10}) {
    run(c, 4000, bytes, ring_wins);
    EXPECT_TRUE(now(bytes).ring) << bytes;
    run(c, 10'000, bytes, [](Method m) { return m.ring ? 1.0 : 0.87; });
    EXPECT_FALSE(now(bytes).ring) << bytes;
  }
  MethodChooser poor(*header_, tuning_, {kCopies, 32 << 10, 0, 8 << 10, [] { return false; }});
  run(poor, 4000, 16 << 10, ring_wins);
  EXPECT_FALSE(now(16 << 10).ring) << "there is no memory for it";
  MethodChooser told = chooser();
  run(told, 4000, 16 << 10, ring_wins);
  EXPECT_FALSE(now(16 << 10).ring);
}

TEST_F(MethodTest, TheRingIsUsedAtOnceWhereTheProbeAdvisesItAndThereIsMemory) {
  const auto even = [](Method) { return 1.0; };
  tuning_.ring_from_bytes = 16 << 10;
  int asked = 0;
  MethodChooser poor(*header_, tuning_, {kCopies, 32 << 10, 0, 8 << 10, [&] { return ++asked == 0; }});
  run(poor, 1, 16 << 10, even);
  EXPECT_FALSE(now(16 << 10).ring);
  run(poor, 4000, 32 << 10, even);
  EXPECT_EQ(asked, 1) << "who asked in vain does not ask again";
  MethodChooser c = chooser(0, 8 << 10);
  run(c, 1, 8 << 10, even);
  EXPECT_FALSE(now(8 << 10).ring);
  run(c, 1, 16 << 10, even);
  EXPECT_TRUE(now(16 << 10).ring);
}

/// The first operations the other way are cheap: lines that were left alone are nobody else's.
TEST_F(MethodTest, TheRingIsJudgedByWhatItTakesInTheLongRun) {
  tuning_.ring_from_bytes = (32 << 10) + 1;
  MethodChooser c = chooser(0, 8 << 10);
  const std::size_t bytes = 16 << 10;
  int in_a_row = 0;
  int rings = 0;
  for (int i = 0; i < 40'000; ++i) {
    const bool timed = c.begin(Kind::kAllReduce, bytes);
    in_a_row = now(bytes).ring ? in_a_row + 1 : 0;
    rings += now(bytes).ring;
    const double cost = in_a_row == 0 ? 1.0 : in_a_row < 40 ? 0.5 : 1.2;
    if (timed) c.report(bytes, cost * static_cast<double>(bytes));
  }
  EXPECT_FALSE(now(bytes).ring);
  EXPECT_GT(rings, 200) << "it is tried";
  EXPECT_LT(rings, 2000) << "and costs little";
}

TEST_F(MethodTest, ARoundStaysWithOneKind) {
  MethodChooser c = chooser();
  run(c, 6, kSize, stream_wins);  // within the first round
  const int before = timed_;
  // Were these counted, string would win the round.
  run(c, 50, kSize, string_wins, Kind::kBroadcast);
  EXPECT_EQ(timed_, before);
}

TEST_F(MethodTest, AChangePromptsOtherSizesButNotForEver) {
  MethodChooser c = chooser();
  // One size is better off with string, the other with stream.
  run(c, 200, kSize, string_wins);
  run(c, 200, kSize * 4, stream_wins);
  ASSERT_EQ(now(kSize).copy, CopyKind::kString);
  ASSERT_EQ(now(kSize * 4).copy, CopyKind::kStream);
  int losing = 0;
  const auto counted = [&](double cost) {
    losing += cost > 1.0;
    return cost;
  };
  for (int i = 0; i < 20'000; ++i) {
    run(c, 1, kSize, [&](Method m) { return counted(string_wins(m)); });
    run(c, 1, kSize * 4, [&](Method m) { return counted(stream_wins(m)); });
  }
  EXPECT_LT(losing, 600);
  // A change of one size is tried at the other size at once.
  run(c, 4000, kSize, stream_wins);
  ASSERT_EQ(now(kSize).copy, CopyKind::kStream);
  run(c, 30, kSize * 4, string_wins);
  EXPECT_EQ(now(kSize * 4).copy, CopyKind::kString);
}

TEST_F(MethodTest, NothingToChooseMeansNoTrials) {
  MethodChooser c(*header_, tuning_, {{}, 32 << 10, 0, 0});
  run(c, 2000, kSize, string_wins);
  EXPECT_EQ(timed_, 0);
  EXPECT_EQ(now(kSize).copy, CopyKind::kStream);
}

}  // namespace
}  // namespace topocoll
