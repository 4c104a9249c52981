#include "probe/tuning.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "support/cpus.h"
#include "support/fault_os.h"
#include "support/group.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using shm::Deadline;
using shm::Tuning;
using testing::FaultOs;
using testing::run_ranks;
using testing::ShmGroup;
using testing::two_cpus;

void plain_copy(void* target, const void* source, std::size_t bytes) {
  std::memcpy(target, source, bytes);
}
/// A copy that nobody would choose.
void slow_copy(void* target, const void* source, std::size_t bytes) {
  const TimePoint until = Clock::now() + 20us;
  std::memcpy(target, source, bytes);
  while (Clock::now() < until) {
  }
}
constexpr std::array<CopyCandidate, 2> kSlowFirst{
    {{7, slow_copy, "molasses"}, {9, plain_copy, "plain"}}};

std::vector<Tuning> tune_all(ShmGroup& group, const TuningRequest& request) {
  std::vector<Tuning> all(static_cast<std::size_t>(group.ranks()));
  run_ranks(group.ranks(), [&](int r) {
    Deadline deadline(20s);
    auto t = tune(Os::real(), group[r], r, request, deadline);
    ASSERT_TRUE(t.ok()) << t.status().to_string();
    all[static_cast<std::size_t>(r)] = *t;
  });
  return all;
}

void expect_equal(const Tuning& a, const Tuning& b) {
  EXPECT_EQ(a.flag_latency_ns, b.flag_latency_ns);
  EXPECT_EQ(a.eager_bytes, b.eager_bytes);
  EXPECT_EQ(a.ring_from_bytes, b.ring_from_bytes);
  EXPECT_EQ(a.stream_bytes, b.stream_bytes);
  EXPECT_EQ(a.window_bytes, b.window_bytes);
  EXPECT_EQ(a.exchange_bytes, b.exchange_bytes);
  EXPECT_EQ(a.two_shot_bytes, b.two_shot_bytes);
  EXPECT_EQ(a.ring_bytes, b.ring_bytes);
  EXPECT_EQ(a.small_copy_bytes, b.small_copy_bytes);
  EXPECT_EQ(a.spin, b.spin);
  EXPECT_EQ(a.yields, b.yields);
  EXPECT_EQ(a.slot_copy, b.slot_copy);
  EXPECT_EQ(a.meet, b.meet);
  EXPECT_EQ(a.all_reduce, b.all_reduce);
}

TEST(Tuning, AllRanksGetWhatRankZeroChose) {
  const std::array<int, 2> cpus = two_cpus();
  for (int n : {1, 2, 3, 5}) {
    ShmGroup group(n);
    TuningRequest request;
    request.copies = kSlowFirst;
    request.cpus = cpus;
    request.all_reduce = 3;
    const auto all = tune_all(group, request);
    for (const Tuning& t : all) expect_equal(t, all[0]);
    EXPECT_EQ(all[0].all_reduce, 3);
    EXPECT_GT(all[0].spin, 0u);
    EXPECT_GT(all[0].window_bytes, 0u);
    EXPECT_GT(all[0].exchange_bytes, 0u);
    EXPECT_LE(all[0].eager_bytes, group[0].layout().eager_capacity);
  }
}

TEST(Tuning, MeasuresAndChoosesTheFasterCopy) {
  const std::array<int, 2> cpus = two_cpus();
  if (cpus[0] == cpus[1]) GTEST_SKIP() << "this process may use one CPU only";
  // An end may lose the processor for longer than the probe waits: then the defaults stand.
  for (int attempt = 0; attempt < 50; ++attempt) {
    ShmGroup group(2);
    TuningRequest request;
    request.cpus = cpus;
    request.copies = kSlowFirst;
    const Tuning t = tune_all(group, request)[0];
    if (t.flag_latency_ns == 0 || t.slot_copy == 7 || t.small_copy_bytes != 512) continue;
    EXPECT_EQ(t.slot_copy, 9);
    EXPECT_LT(t.flag_latency_ns, 20e6);
    EXPECT_EQ(t.small_copy_bytes, 512u) << "it wins at every size";
    return;
  }
  FAIL() << "the probe never came to a result";
}

TEST(Tuning, WithoutAProbeTheFirstCopyStands) {
  const std::array<int, 2> cpus = two_cpus();
  for (const bool oversubscribed : {false, true}) {
    ShmGroup group(3);
    TuningRequest request;
    request.probe = false;
    request.cpus = cpus;
    request.oversubscribed = oversubscribed;
    request.copies = kSlowFirst;
    const Tuning t = tune_all(group, request)[0];
    EXPECT_EQ(t.flag_latency_ns, 0);
    EXPECT_EQ(t.slot_copy, 7);
    EXPECT_EQ(t.meet, oversubscribed ? 1 : 0);
    EXPECT_GT(t.stream_bytes, 0u);
    EXPECT_EQ(t.ring_bytes, oversubscribed ? 0 : t.stream_bytes);
  }
}

/// Where the two cores are may change from one moment to the next; what follows from it may not.
TEST(Tuning, TwoRanksOnNearCoresUseTheRingFromEightKib) {
  const std::array<int, 2> cpus = two_cpus();
  if (cpus[0] == cpus[1]) GTEST_SKIP() << "this process may use one CPU only";
  ShmGroup two(2);
  ShmGroup told(2);
  TuningRequest request;
  request.cpus = cpus;
  const Tuning t = tune_all(two, request)[0];
  const bool near = describe(t, {}).find("(near)") != std::string::npos;
  EXPECT_EQ(t.eager_bytes, 32768u);
  EXPECT_EQ(t.ring_from_bytes, near ? 8192u : 32769u);
  EXPECT_NE(describe(t, {}).find(near ? "eager to 8191 B" : "eager to 32768 B"), std::string::npos);
  request.eager_bytes = 20000;
  const Tuning given = tune_all(told, request)[0];
  EXPECT_EQ(given.eager_bytes, 20000u) << "the user knows better";
  EXPECT_EQ(given.ring_from_bytes, 0u);
}

TEST(Tuning, OversubscribedRanksHandOverAtOnce) {
  ShmGroup few(2);
  ShmGroup many(2);
  TuningRequest request;
  request.probe = false;
  const Tuning roomy = tune_all(few, request)[0];
  request.oversubscribed = true;
  const Tuning tight = tune_all(many, request)[0];
  EXPECT_LT(tight.spin, roomy.spin);
  EXPECT_GT(tight.yields, roomy.yields);
  EXPECT_EQ(tight.meet, 0) << "two ranks gain nothing from it";
}

TEST(Tuning, RequestsAreHonouredWithinTheSegment) {
  TuningRequest request;
  request.probe = false;
  request.eager_bytes = 1000;
  request.spin = 0us;
  ShmGroup a(2);
  Tuning t = tune_all(a, request)[0];
  EXPECT_EQ(t.eager_bytes, 1000u);
  EXPECT_EQ(t.spin, 0u);
  request.eager_bytes = std::size_t(1) << 40;
  ShmGroup b(2);
  t = tune_all(b, request)[0];
  EXPECT_EQ(t.eager_bytes, b[0].layout().eager_capacity);
}

TEST(Tuning, WhatCannotBeMeasuredLeavesTheDefaults) {
  TuningRequest request;
  request.copies = kSlowFirst;
  const auto expect_defaults = [&](FaultOs& os) {
    ShmGroup group(2);
    Deadline deadline(20s);
    const auto t = tune(os, group[0], 0, request, deadline);
    ASSERT_TRUE(t.ok());
    EXPECT_EQ(t->flag_latency_ns, 0);
    EXPECT_EQ(t->slot_copy, 7);
    Deadline late(20s);
    const auto other = tune(Os::real(), group[1], 1, request, late);
    ASSERT_TRUE(other.ok());
    expect_equal(*other, *t);
  };
  FaultOs one_core;
  expect_defaults(one_core);
  EXPECT_EQ(one_core.calls("pin_thread"), 0);
  const std::array<int, 2> cpus = two_cpus();
  request.cpus = cpus;
  FaultOs pinned_elsewhere;
  pinned_elsewhere.fail("pin_thread", Status(Cause::kSystem, "not allowed there"));
  expect_defaults(pinned_elsewhere);
}

TEST(Tuning, TheProbeLeavesTheSlotsAsTheyWere) {
  ShmGroup group(2);
  TuningRequest request;
  const std::array<int, 2> cpus = two_cpus();
  request.cpus = cpus;
  request.copies = kSlowFirst;
  tune_all(group, request);
  for (int parity : {0, 1}) {
    for (int r : {0, 1}) {
      EXPECT_EQ(group[0].entry(parity, r).flag.load(), 0u);
      std::uint64_t first = 1;
      std::memcpy(&first, group[0].slot(parity, r), sizeof first);
      EXPECT_EQ(first, 0u) << "turns would be taken for counts";
    }
  }
}

TEST(Tuning, ARankThatHearsNothingTimesOut) {
  ShmGroup group(3);
  TuningRequest request;
  Deadline deadline(30ms);
  const auto t = tune(Os::real(), group[2], 2, request, deadline);
  EXPECT_EQ(t.status().cause(), Cause::kTimeout);
  EXPECT_NE(t.status().text().find("rank 2"), std::string::npos) << t.status().text();
}

TEST(Tuning, DescriptionsNameTheChoice) {
  Tuning t;
  t.slot_copy = 9;
  t.eager_bytes = 1234;
  t.window_bytes = 512 << 10;
  EXPECT_NE(describe(t, kSlowFirst).find("flag not measured"), std::string::npos);
  EXPECT_NE(describe(t, kSlowFirst).find("slots by plain"), std::string::npos);
  EXPECT_NE(describe(t, kSlowFirst).find("1234 B"), std::string::npos);
  EXPECT_EQ(describe(t, kSlowFirst).find("last arriver"), std::string::npos);
  t.flag_latency_ns = 50;
  t.meet = 1;
  EXPECT_NE(describe(t, kSlowFirst).find("50 ns (near)"), std::string::npos);
  EXPECT_NE(describe(t, kSlowFirst).find("last arriver"), std::string::npos);
  t.flag_latency_ns = 500;
  EXPECT_NE(describe(t, kSlowFirst).find("(far)"), std::string::npos);
}

}  // namespace
}  // namespace topocoll
