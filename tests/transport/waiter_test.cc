#include "transport/shm/waiter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/fault_os.h"
#include "support/group.h"

namespace topocoll::shm {
namespace {

using namespace std::chrono_literals;
using topocoll::testing::Child;
using topocoll::testing::eventually;
using topocoll::testing::FaultOs;
using topocoll::testing::ShmGroup;

constexpr auto kNever = [] { return false; };

TEST(Waiter, WhatIsReadyCostsNoCallOfTheKernel) {
  ShmGroup group(2);
  FaultOs os;
  Deadline deadline(0ms);
  int looks = 0;
  const Waiter waiter(os, group[0], 0, {.spin = 100, .yields = 10});
  EXPECT_TRUE(waiter.until(1, deadline, [&] { return ++looks == 100; }).ready());
  EXPECT_EQ(looks, 100);
  for (const char* call : {"now", "yield", "futex_wait"}) EXPECT_EQ(os.calls(call), 0) << call;
}

TEST(Waiter, SpinsThenYieldsThenSleeps) {
  ShmGroup group(2);
  FaultOs os;
  os.set_clock(TimePoint{} + 1h);
  Deadline deadline(1s);
  os.before("futex_wait", [&] { os.advance(2s); });
  const Waiter waiter(os, group[0], 0, {.spin = 5, .yields = 7});
  EXPECT_EQ(waiter.until(1, deadline, kNever).wake, Wake::kTimeout);
  EXPECT_EQ(os.calls("yield"), 7);
  EXPECT_EQ(os.calls("futex_wait"), 1);
  EXPECT_EQ(group[0].header().sleepers.load(), 0u) << "nobody is left registered as asleep";
  EXPECT_EQ(group[0].block(0).sleeping.load(), 0u);
}

TEST(Waiter, TheDeadlineCountsFromTheFirstLongWait) {
  FaultOs os;
  os.set_clock(TimePoint{} + 1h);
  Deadline deadline(500ms);
  os.advance(10s);
  const TimePoint at = deadline.at(os);
  EXPECT_EQ(at, TimePoint{} + 1h + 10s + 500ms);
  os.advance(10s);
  EXPECT_EQ(deadline.at(os), at);
}

TEST(Waiter, APublicationWakesASleeper) {
  ShmGroup group(2);
  std::atomic<bool> word{false};
  WaitResult result;
  std::thread sleeper([&] {
    Deadline deadline(30s);
    result = Waiter(Os::real(), group[0], 0, {.spin = 0, .yields = 0}).until(1, deadline, [&] {
      return word.load();
    });
  });
  EXPECT_TRUE(eventually([&] { return group[1].header().sleepers.load() == 1; }));
  word.store(true);
  ring(Os::real(), group[1]);
  sleeper.join();
  EXPECT_TRUE(result.ready());
}

TEST(Waiter, APublicationIsNotMissedBetweenTheLookAndTheSleep) {
  ShmGroup group(2);
  FaultOs os;
  // The sleep would last for ever if the doorbell had been read after the publication.
  std::atomic<bool> word{false};
  os.before("futex_wait", [&] {
    word.store(true);
    ring(Os::real(), group[1]);
  });
  Deadline deadline(30s);
  const TimePoint start = Clock::now();
  const Waiter waiter(os, group[0], 0, {.spin = 0, .yields = 0});
  EXPECT_TRUE(waiter.until(1, deadline, [&] { return word.load(); }).ready());
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_EQ(os.calls("futex_wait"), 1);
}

TEST(Waiter, AFaultEndsAWait) {
  for (const Waiter::Policy policy :
       {Waiter::Policy{.spin = 1, .yields = 1000000}, Waiter::Policy{.spin = 0, .yields = 0}}) {
    ShmGroup group(2);
    FaultOs os;
    std::atomic<bool> waits{false};
    os.before(policy.yields == 0 ? "futex_wait" : "yield", [&] { waits.store(true); });
    WaitResult result;
    std::thread waiting([&] {
      Deadline deadline(30s);
      result = Waiter(os, group[0], 0, policy).until(1, deadline, kNever);
    });
    EXPECT_TRUE(eventually([&] { return waits.load(); }));
    Gate gate(group[1]);
    gate.raise({Cause::kAborted, 1, 1});
    gate.freeze(Os::real());
    waiting.join();
    EXPECT_EQ(result.wake, Wake::kFault);
  }
}

TEST(Waiter, TheDeathOfAPeerEndsAWait) {
  for (const std::uint32_t yields : {0u, 100000000u}) {
    ShmGroup group(3);
    Child child([&] {
      if (!hold_alive_lock(group[2].block(2)).ok()) ::_exit(1);
    });
    FaultOs os;
    std::atomic<bool> waits{false};
    os.before(yields == 0 ? "futex_wait" : "yield", [&] { waits.store(true); });
    WaitResult result;
    std::thread waiting([&] {
      Deadline deadline(30s);
      result = Waiter(os, group[0], 0, {.spin = 0, .yields = yields}).until(1, deadline, kNever);
    });
    EXPECT_TRUE(eventually([&] { return waits.load(); }));
    child.kill();
    waiting.join();
    EXPECT_EQ(result.wake, Wake::kDead);
    EXPECT_EQ(result.rank, 2);
  }
}

TEST(Waiter, WhatIsReadyCountsEvenIfAPeerHasDied) {
  ShmGroup group(2);
  {
    Child child([&] {
      if (!hold_alive_lock(group[1].block(1)).ok()) ::_exit(1);
    });
  }
  int looks = 0;
  Deadline deadline(30s);
  const Waiter waiter(Os::real(), group[0], 0, {.spin = 0, .yields = 0});
  // Ready from the second look on: the one that follows the notice of the death.
  EXPECT_TRUE(waiter.until(1, deadline, [&] { return ++looks >= 2; }).ready());
  EXPECT_EQ(waiter.until(1, deadline, kNever).wake, Wake::kDead);
}

TEST(Waiter, WhatIsReadyCountsEvenIfAFaultCameWithIt) {
  for (int last = 1; last <= 12; ++last) {
    ShmGroup group(2);
    FaultOs os;
    Deadline deadline(1h);
    int looks = 0;
    const Waiter waiter(os, group[0], 0, {.spin = 2, .yields = 6});
    // Both become true between two looks.
    const auto ready = [&] {
      if (++looks == last) Gate(group[1]).raise({Cause::kAborted, 1, 2});
      return looks > last;
    };
    EXPECT_TRUE(waiter.until(1, deadline, ready).ready()) << last;
  }
}

TEST(Waiter, ARankThatIsNotJoinedIsNotMissed) {
  ShmGroup group(2);
  {
    Child child([&] {
      if (!hold_alive_lock(group[1].block(1)).ok()) ::_exit(1);
    });
  }
  group[0].block(1).state.store(RankState::kAbsent);
  Deadline deadline(1ms);
  const Waiter waiter(Os::real(), group[0], 0, {.spin = 0, .yields = 0});
  EXPECT_EQ(waiter.until(1, deadline, kNever).wake, Wake::kTimeout);
}

TEST(Waiter, APeerThatLeftEndsOnlyWaitsForWhatItDidNotEnter) {
  ShmGroup group(3);
  Gate gate(group[1]);
  ASSERT_TRUE(gate.enter(1, 1, 1));
  ASSERT_TRUE(gate.enter(1, 2, 2));
  group[1].block(1).state.store(RankState::kLeft);
  const Waiter waiter(Os::real(), group[0], 0, {.spin = 0, .yields = 0});
  const auto wait = [&](std::uint64_t seq) {
    Deadline deadline(1ms);
    return waiter.until(seq, deadline, kNever);
  };
  EXPECT_EQ(wait(2).wake, Wake::kTimeout) << "it took part in operation 2";
  EXPECT_EQ(wait(0).wake, Wake::kTimeout) << "no operation is concerned";
  EXPECT_EQ(wait(3).wake, Wake::kLeft);
  EXPECT_EQ(wait(3).rank, 1);
}

TEST(Waiter, RealTimeoutsComeInTime) {
  ShmGroup group(2);
  Deadline deadline(60ms);
  const TimePoint start = Clock::now();
  const Waiter waiter(Os::real(), group[0], 0, {.spin = 10, .yields = 10});
  EXPECT_EQ(waiter.until(1, deadline, kNever).wake, Wake::kTimeout);
  EXPECT_GE(Clock::now() - start, 60ms);
  EXPECT_LT(Clock::now() - start, 5s);
}

}  // namespace
}  // namespace topocoll::shm
