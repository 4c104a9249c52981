#include "transport/shm/segment.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/control_group.h"
#include "support/fault_os.h"
#include "support/group.h"
#include "topology/numa_nodes.h"
#include "transport/shm/channel.h"

namespace topocoll::shm {
namespace {

using topocoll::testing::Child;
using topocoll::testing::FaultOs;
using topocoll::testing::ShmGroup;

TEST(Layout, PartsLieApartForEveryNumberOfRanks) {
  for (int n = 1; n <= kMaxRanks; ++n) {
    const Layout l = Layout::of(n);
    const auto ranks = static_cast<std::size_t>(n);
    const std::size_t pairs = ranks * (ranks - 1);
    const std::vector<std::pair<std::size_t, std::size_t>> parts{
        {0, sizeof(SegmentHeader)},
        {l.blocks, ranks * sizeof(RankBlock)},
        {l.meeting, sizeof(MeetingBlock)},
        {l.channels, pairs * sizeof(ChannelControl)},
        {l.slots, 2 * ranks * l.slot_stride},
        {l.results, 2 * l.eager_capacity},
        {l.channel_buffers, pairs * l.channel_capacity},
        {l.ring, l.ring_bytes},
    };
    std::size_t end = 0;
    for (const auto& [at, bytes] : parts) {
      EXPECT_GE(at, end) << n << " ranks, part at " << at;
      end = at + bytes;
    }
    EXPECT_LE(end, l.bytes) << n;
    EXPECT_GE(l.base_bytes, l.results + 2 * l.eager_capacity) << n;
    EXPECT_LE(l.base_bytes, l.channel_buffers) << n << ": the base must not commit the channels";
    EXPECT_GE(l.slot_stride, sizeof(EntryLine) + l.eager_capacity) << n;
    EXPECT_EQ(l.slot_stride % kLinePair, 0u) << n;
    EXPECT_EQ(l.ring % kPage, 0u) << n;
    EXPECT_EQ(l.channel_buffers % kPage, 0u) << n;
    EXPECT_EQ(l.channel_capacity % kPage, 0u) << n;
    EXPECT_EQ(l.ring_bytes % (ranks * kPage), 0u) << n << ": shares start on pages";
    if (n > 1) {
      EXPECT_GT(l.ring_bytes, 0u) << n;
    }
  }
}

TEST(Layout, EightRanksStayWithin64MiB) {
  EXPECT_LE(Layout::of(8).bytes, std::size_t(64) << 20);
  for (int n = 1; n <= 8; ++n) EXPECT_LE(Layout::of(n).bytes, std::size_t(64) << 20) << n;
}

TEST(Segment, MappingsOfOneSegmentSeeEachOther) {
  ShmGroup group(3);
  EXPECT_EQ(group[2].ranks(), 3);
  EXPECT_TRUE(equal(group[0].header().token, group[2].header().token));
  group[1].block(2).pid.store(77);
  EXPECT_EQ(group[2].block(2).pid.load(), 77);
  *group[0].slot(1, 2) = std::byte{42};
  EXPECT_EQ(*group[2].slot(1, 2), std::byte{42});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(group[2].slot(1, 2)) % 64, 0u);
}

TEST(Segment, TwoSegmentsHaveDifferentTokens) {
  ShmGroup a(2);
  ShmGroup b(2);
  EXPECT_FALSE(equal(a[0].header().token, b[0].header().token));
}

TEST(Segment, RefusesNumbersOfRanksThatItCannotServe) {
  for (int n : {-1, 0, kMaxRanks + 1}) {
    EXPECT_EQ(Segment::create(Os::real(), {.ranks = n}).status().cause(), Cause::kUnsupported) << n;
    ShmGroup group(2);
    EXPECT_EQ(Segment::attach(Os::real(), Fd(::dup(group[0].fd().get())), n).status().cause(),
              Cause::kUnsupported)
        << n;
  }
}

TEST(Segment, AttachRefusesAnotherSize) {
  ShmGroup group(2);
  const Status s = Segment::attach(Os::real(), Fd(::dup(group[0].fd().get())), 3).status();
  EXPECT_EQ(s.cause(), Cause::kVersion);
  EXPECT_NE(s.text().find(std::to_string(Layout::of(2).bytes)), std::string::npos) << s.text();
}

TEST(Segment, AttachRefusesWhatIsNoSegment) {
  auto fd = Os::real().create_memfd("zeros", Layout::of(2).bytes);
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(Segment::attach(Os::real(), std::move(*fd), 2).status().cause(), Cause::kVersion);

  ShmGroup group(2);
  group[0].header().magic ^= 1;
  EXPECT_EQ(Segment::attach(Os::real(), Fd(::dup(group[0].fd().get())), 2).status().cause(),
            Cause::kVersion);
  group[0].header().magic ^= 1;
  group[0].header().ranks = 3;
  EXPECT_EQ(Segment::attach(Os::real(), Fd(::dup(group[0].fd().get())), 2).status().cause(),
            Cause::kVersion);
}

TEST(Segment, FallsBackToAFileWhereMemfdIsNotToBeHad) {
  FaultOs os;
  os.fail("create_memfd", Status(Cause::kSystem, "memfd_create: Function not implemented"));
  auto segment = Segment::create(os, {.ranks = 2, .directory = "/tmp"});
  ASSERT_TRUE(segment.ok()) << segment.status().to_string();
  EXPECT_EQ(os.calls("create_unlinked_file"), 1);
  EXPECT_TRUE(Segment::attach(os, Fd(::dup(segment->fd().get())), 2).ok());
}

TEST(Segment, BackingCanBeForced) {
  FaultOs os;
  const Status none(Cause::kResource, "Too many open files");
  os.fail("create_memfd", none);
  EXPECT_EQ(Segment::create(os, {.ranks = 2, .backing = Backing::kMemfd}).status().text(),
            none.text());
  EXPECT_EQ(os.calls("create_unlinked_file"), 0);
  FaultOs file;
  EXPECT_TRUE(
      Segment::create(file, {.ranks = 2, .backing = Backing::kFile, .directory = "/tmp"}).ok());
  EXPECT_EQ(file.calls("create_memfd"), 0);
}

TEST(Segment, ErrorsOfTheKernelAreHandedOn) {
  for (const char* call : {"random_token", "allocate", "map"}) {
    FaultOs os;
    os.fail(call, Status(Cause::kResource, call));
    const Status s = Segment::create(os, {.ranks = 2}).status();
    EXPECT_EQ(s.cause(), Cause::kResource) << call;
    EXPECT_EQ(s.text(), call);
  }
  ShmGroup group(2);
  for (const char* call : {"file_size", "map"}) {
    FaultOs os;
    os.fail(call, Status(Cause::kSystem, call));
    EXPECT_EQ(Segment::attach(os, Fd(::dup(group[0].fd().get())), 2).status().text(), call);
  }
}

TEST(Segment, CommitsTheRingOnce) {
  FaultOs os;
  auto segment = Segment::create(os, {.ranks = 2});
  ASSERT_TRUE(segment.ok());
  os.fail("allocate", Status(Cause::kResource, "full"), {.from = 2, .to = 2});
  EXPECT_EQ(segment->commit_ring(os).cause(), Cause::kResource);
  EXPECT_TRUE(segment->commit_ring(os).ok()) << "a failure is not remembered as a success";
  EXPECT_TRUE(segment->commit_ring(os).ok());
  EXPECT_EQ(os.calls("allocate"), 3);
}

TEST(Segment, ARingThatCannotBeLookedAtOrPopulatedServesAllTheSame) {
  FaultOs os;
  os.fail("allocated_bytes", Status(Cause::kSystem, "fstat: forbidden"));
  os.fail("populate", Status(Cause::kSystem, "madvise: Invalid argument"));
  auto segment = Segment::create(os, {.ranks = 2});
  ASSERT_TRUE(segment.ok());
  EXPECT_TRUE(segment->commit_ring(os, kPage).ok());
  EXPECT_EQ(os.calls("allocated_bytes"), 1);
  EXPECT_EQ(os.calls("populate"), 2) << "each rank's part";
}

TEST(Segment, EachPartOfTheRingIsPlacedAtItsRanksNode) {
  FaultOs os;
  auto segment = Segment::create(os, {.ranks = 3});
  ASSERT_TRUE(segment.ok());
  const std::vector<int> cpus = Os::real().usable_cpus();
  const auto node = NumaNodes().of(std::span(cpus).first(1));
  if (!node) GTEST_SKIP() << "this kernel names no NUMA node of CPU " << cpus.front();
  // Rank 1 says nothing of its CPUs, so nothing is wished for.
  set_cpus(segment->block(0), {cpus.front()});
  set_cpus(segment->block(2), {cpus.front()});
  ASSERT_TRUE(segment->commit_ring(os).ok());
  EXPECT_EQ(os.calls("bind_memory"), 2);
  const auto policy_of = [&](int rank) {
    int policy = -1;
    EXPECT_EQ(::syscall(SYS_get_mempolicy, &policy, nullptr, 0, segment->ring(rank), MPOL_F_ADDR),
              0);
    return policy;
  };
  if (!Os::real().bind_memory({segment->ring(0), kPage}, *node, Binding::kPreferred).ok()) {
    GTEST_SKIP() << "this process may not place memory";
  }
  EXPECT_EQ(policy_of(0), MPOL_PREFERRED);
  EXPECT_EQ(policy_of(1), MPOL_DEFAULT);
  EXPECT_EQ(policy_of(2), MPOL_PREFERRED);
}

TEST(Segment, ARingThatCannotBePlacedIsUsedWhereItIs) {
  FaultOs os;
  os.fail("bind_memory", Status(Cause::kSystem, "mbind: forbidden"));
  auto segment = Segment::create(os, {.ranks = 2});
  ASSERT_TRUE(segment.ok());
  for (int r = 0; r < 2; ++r) set_cpus(segment->block(r), {Os::real().usable_cpus().front()});
  EXPECT_TRUE(segment->commit_ring(os).ok());
}

TEST(Segment, MoreMemoryThanThereIsIsRefusedBeforeAnyIsTaken) {
  FaultOs os;
  const std::size_t bytes = Layout::of(8).bytes;
  const Status s = Segment::create(os, {.ranks = 8, .available_bytes = bytes - 1}).status();
  EXPECT_EQ(s.cause(), Cause::kResource);
  for (const char* words : {"a group of 8 ranks", "control group", "raise the limit"}) {
    EXPECT_NE(s.text().find(words), std::string::npos) << s.text();
  }
  EXPECT_EQ(os.calls("create_memfd"), 0);
  EXPECT_TRUE(Segment::create(os, {.ranks = 8, .available_bytes = bytes}).ok());
}

/// The exit status of `work` in a control group of so much memory; -1 if none can be made, -2 if it
/// was killed.
int in_control_group(std::uint64_t bytes, const std::function<bool()>& work) {
  const testing::MemoryControlGroup group(bytes);
  if (group.missing()) return -1;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(!group.enter() ? 77 : work() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (!WIFEXITED(status)) return -2;
  return WEXITSTATUS(status) == 77 ? -1 : WEXITSTATUS(status);
}

TEST(Segment, ATightControlGroupIsAnErrorAndKillsNobody) {
  constexpr std::uint64_t kLimit = std::uint64_t(64) << 20;
  ASSERT_GT(Layout::of(kMaxRanks).bytes, kLimit);
  const int status = in_control_group(kLimit, [] {
    auto segment = Segment::create(Os::real(), {.ranks = kMaxRanks});
    if (segment.ok()) static_cast<void>(segment->commit_ring(Os::real()));
    return segment.status().cause() == Cause::kResource;
  });
  if (status == -1)
    GTEST_SKIP() << "no memory control group can be made here (not root, or not delegated)";
  EXPECT_EQ(status, 0);
}

TEST(Segment, GroupsThatTogetherNeedMoreThanAControlGroupHasAreErrorsWhenTheyTakeIt) {
  ASSERT_LT(Layout::of(8).bytes + (std::size_t(8) << 20), std::size_t(64) << 20);
  const int status = in_control_group(std::uint64_t(64) << 20, [] {
    auto first = Segment::create(Os::real(), {.ranks = 8});
    auto second = Segment::create(Os::real(), {.ranks = 8});
    if (!first.ok() || !second.ok() || !first->commit_ring(Os::real()).ok()) return false;
    // Another rank's look at what is there already.
    auto again = Segment::attach(Os::real(), Fd(::dup(first->fd().get())), 8);
    return again.ok() && again->commit_ring(Os::real()).ok() &&
           second->commit_ring(Os::real()).cause() == Cause::kResource;
  });
  if (status == -1)
    GTEST_SKIP() << "no memory control group can be made here (not root, or not delegated)";
  EXPECT_EQ(status, 0);
}

TEST(Segment, ListsTheCpusOfAllRanksTogether) {
  ShmGroup group(3);
  EXPECT_TRUE(group_cpus(group[0]).empty());
  set_cpus(group[0].block(0), {0, 1, 63});
  set_cpus(group[1].block(1), {1, 64, 1023});
  set_cpus(group[2].block(2), {0, 1023});
  EXPECT_EQ(group_cpus(group[0]), (std::vector<int>{0, 1, 63, 64, 1023}));
}

TEST(Liveness, ALockTellsAliveFromDead) {
  ShmGroup group(2);
  RankBlock& block = group[0].block(1);
  EXPECT_EQ(liveness(block), Liveness::kAlive) << "not held yet";
  Child child([&] {
    if (!hold_alive_lock(group[1].block(1)).ok()) ::_exit(1);
  });
  EXPECT_EQ(liveness(block), Liveness::kAlive);
  child.kill();
  EXPECT_EQ(liveness(block), Liveness::kDead);
  EXPECT_EQ(liveness(group[1].block(1)), Liveness::kDead) << "every later reader learns of it too";
}

TEST(Liveness, AReleasedLockMeansThatTheRankLeft) {
  ShmGroup group(2);
  RankBlock& block = group[0].block(1);
  ASSERT_TRUE(hold_alive_lock(group[1].block(1)).ok());
  std::thread([&] {
    EXPECT_EQ(hold_alive_lock(block).cause(), Cause::kInternal) << "another thread of the process";
    EXPECT_EQ(liveness(block), Liveness::kAlive);
  }).join();
  block.state.store(RankState::kLeft);
  release_alive_lock(group[1].block(1));
  EXPECT_EQ(liveness(block), Liveness::kLeft);
}

}  // namespace
}  // namespace topocoll::shm
