#include "transport/shm/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/fault_os.h"
#include "support/group.h"

namespace topocoll::shm {
namespace {

using topocoll::testing::FaultOs;
using topocoll::testing::run_ranks;
using topocoll::testing::ShmGroup;

TEST(Gate, ProgressFollowsEntriesAndCompletions) {
  ShmGroup group(2);
  const Gate gate(group[0]);
  EXPECT_EQ(gate.progress(0).entered, 0u);
  EXPECT_EQ(gate.progress(0).completed, 0u);
  Gate mine(group[1]);
  ASSERT_TRUE(mine.enter(1, 1, 1 | kEager));
  EXPECT_EQ(gate.progress(1).entered, 1u) << "flag bits are not part of the number";
  EXPECT_EQ(gate.progress(1).completed, 0u);
  ASSERT_TRUE(mine.enter(1, 2, 2 | kCounts));
  EXPECT_EQ(gate.progress(1).completed, 1u) << "who enters 2 has completed 1";
  ASSERT_TRUE(mine.complete(1, 2));
  EXPECT_EQ(gate.progress(1).completed, 2u);
  EXPECT_EQ(gate.completed_by_all(), 0u);
  ASSERT_TRUE(mine.enter(0, 1, 1));
  ASSERT_TRUE(mine.complete(0, 1));
  EXPECT_EQ(gate.completed_by_all(), 1u);
}

TEST(Gate, AFaultWordThatNobodyWroteCanStillBeNamed) {
  ShmGroup group(2);
  const Gate gate(group[0]);
  group[1].header().fault.store(0xffff'ffff'ffff'ff00);
  ASSERT_TRUE(gate.fault().has_value());
  EXPECT_EQ(gate.fault()->cause, Cause::kInternal);
  EXPECT_EQ(gate.fault()->culprit, -1);
  group[1].header().fault.store(0x0000'0000'0000'01ff);
  EXPECT_EQ(gate.fault()->cause, Cause::kInternal);
  EXPECT_EQ(gate.fault()->culprit, 0);
}

TEST(Gate, AFrozenRankNeitherEntersNorCompletes) {
  ShmGroup group(2);
  Gate gate(group[0]);
  ASSERT_TRUE(gate.enter(0, 1, 1));
  gate.raise({Cause::kAborted, 0, 1});
  gate.freeze(Os::real());
  for (int r : {0, 1}) {
    EXPECT_FALSE(gate.complete(r, 1)) << r;
    EXPECT_FALSE(gate.enter(r, 1, 1)) << r;
    EXPECT_FALSE(gate.enter(r, 2, 2)) << r;
  }
  EXPECT_EQ(gate.progress(0).entered, 1u);
  EXPECT_EQ(gate.progress(0).completed, 0u);
  EXPECT_EQ(gate.progress(1).entered, 0u);
  gate.freeze(Os::real());
  EXPECT_EQ(gate.progress(0).entered, 1u) << "idempotent";
}

TEST(Gate, TheFirstFaultStands) {
  ShmGroup group(2);
  Gate gate(group[0]);
  EXPECT_FALSE(gate.faulted());
  EXPECT_FALSE(gate.fault().has_value());
  const Fault mine = gate.raise({Cause::kPeerDied, 1, 12345678901});
  EXPECT_EQ(mine.culprit, 1);
  const Fault second = Gate(group[1]).raise({Cause::kTimeout, -1, 3});
  for (const Fault& f : {mine, second, *Gate(group[1]).fault()}) {
    EXPECT_EQ(f.cause, Cause::kPeerDied);
    EXPECT_EQ(f.culprit, 1);
    EXPECT_EQ(f.seq, 12345678901u);
  }
  EXPECT_TRUE(Gate(group[1]).faulted());
}

TEST(Gate, AFaultWithoutCulpritOrNumberIsStillAFault) {
  ShmGroup group(1);
  Gate gate(group[0]);
  gate.raise({Cause::kTimeout, -1, 0});
  ASSERT_TRUE(gate.fault().has_value());
  EXPECT_EQ(gate.fault()->culprit, -1);
  EXPECT_EQ(gate.fault()->cause, Cause::kTimeout);
}

TEST(Gate, OneOfManyFaultsWins) {
  for (int round = 0; round < 50; ++round) {
    ShmGroup group(4);
    std::vector<Fault> seen(4);
    std::atomic<int> at_start{0};
    run_ranks(4, [&](int r) {
      at_start.fetch_add(1);
      while (at_start.load() < 4) std::this_thread::yield();
      seen[static_cast<std::size_t>(r)] = Gate(group[r]).raise({Cause::kAborted, r, 7});
    });
    for (const Fault& f : seen) EXPECT_EQ(f.culprit, seen[0].culprit);
  }
}

TEST(Gate, RingsOnlyWhereSomebodySleeps) {
  ShmGroup group(2);
  FaultOs os;
  ring(os, group[0]);
  EXPECT_EQ(os.calls("futex_wake_all"), 0);
  group[0].header().sleepers.store(1);
  group[0].block(1).sleeping.store(1);
  const std::uint32_t bell = group[0].block(1).doorbell.load();
  ring(os, group[0]);
  EXPECT_EQ(os.calls("futex_wake_all"), 1) << "rank 0 is awake";
  EXPECT_EQ(group[0].block(1).doorbell.load(), bell + 1);
}

/// What one rank had proof of, and the verdict that it computed.
struct Account {
  std::uint64_t proved = 0;
  std::uint64_t verdict = 0;
};

/// Ranks run strict operations: enter k, wait for all entries, complete k, wait for all
/// completions. A rank stops at the freeze. `raiser` raises after a random number of operations of
/// its own.
Account run_rank(Segment& segment, int rank, bool raises, std::uint64_t raise_at, unsigned jitter) {
  Gate gate(segment);
  Account account;
  std::mt19937 rng(jitter);
  const int n = segment.ranks();
  const auto pause = [&] {
    if (rng() % 4 == 0) std::this_thread::yield();
  };
  const auto all = [&](auto reached) {
    for (int r = 0; r < n; ++r) {
      while (!reached(r)) {
        if (gate.faulted()) return false;
        std::this_thread::yield();
      }
    }
    return true;
  };
  for (std::uint64_t k = 1; k < 1000; ++k) {
    pause();
    if (!gate.enter(rank, k, k | kEager)) break;
    if (raises && k == raise_at && rng() % 2 == 0) break;
    const auto entered = [&](int r) {
      return (segment.entry(static_cast<int>(k & 1), r).flag.load() & kSeqMask) >= k;
    };
    if (!all(entered)) break;
    pause();
    if (!gate.complete(rank, k)) break;
    if (raises && k == raise_at) break;
    if (!all([&](int r) { return (segment.block(r).done.load() & kSeqMask) >= k; })) break;
    account.proved = k;
  }
  gate.raise({Cause::kAborted, rank, 0});
  gate.freeze(Os::real());
  account.verdict = gate.completed_by_all();
  return account;
}

TEST(Gate, AllRanksComputeOneVerdictAndNoProofGoesBeyondIt) {
  std::mt19937 rng(20261130);
  bool ended_at_different_numbers = false;
  for (int round = 0; round < 150; ++round) {
    const int n = 2 + round % 3;
    ShmGroup group(n);
    std::vector<Account> accounts(static_cast<std::size_t>(n));
    const int raiser = static_cast<int>(rng() % static_cast<unsigned>(n));
    const std::uint64_t raise_at = 1 + rng() % 12;
    const auto seed = static_cast<unsigned>(rng());
    run_ranks(n, [&](int r) {
      accounts[static_cast<std::size_t>(r)] =
          run_rank(group[r], r, r == raiser, raise_at, seed + static_cast<unsigned>(r));
    });
    for (int r = 0; r < n; ++r) {
      const Account& a = accounts[static_cast<std::size_t>(r)];
      ASSERT_EQ(a.verdict, accounts[0].verdict) << "round " << round << ", rank " << r;
      ASSERT_LE(a.proved, a.verdict) << "round " << round << ", rank " << r;
      ASSERT_GE(a.verdict + 1, raise_at) << "all had completed the operation before";
      ended_at_different_numbers |= a.proved != accounts[0].proved;
    }
    EXPECT_EQ(Gate(group[0]).completed_by_all(), accounts[0].verdict) << "and it is final";
  }
  EXPECT_TRUE(ended_at_different_numbers) << "the rounds must have hit the interesting moments";
}

}  // namespace
}  // namespace topocoll::shm
