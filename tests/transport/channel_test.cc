#include "transport/shm/channel.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "support/fault_os.h"
#include "support/group.h"

namespace topocoll::shm {
namespace {

using topocoll::testing::Child;
using topocoll::testing::FaultOs;
using topocoll::testing::run_ranks;
using topocoll::testing::ShmGroup;

using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t bytes, unsigned seed) {
  std::mt19937 rng(seed);
  Bytes data(bytes);
  for (auto& b : data) b = static_cast<std::byte>(rng());
  return data;
}

ChannelControl& control(Segment& segment, int from, int to) {
  const int n = segment.ranks();
  const int index = from * (n - 1) + (to < from ? to : to - 1);
  return segment.at<ChannelControl>(segment.layout().channels)[index];
}

TEST(Channel, TakesWhatFitsAndNoMore) {
  ShmGroup group(2);
  ShmTransport a(Os::real(), group[0], 0);
  ShmTransport b(Os::real(), group[1], 1);
  const std::size_t capacity = group[0].layout().channel_capacity;
  const Bytes data = pattern(capacity + 100, 1);
  EXPECT_EQ(a.send_some(1, data).value(), capacity);
  EXPECT_EQ(a.send_some(1, data).value(), 0u) << "full";
  EXPECT_EQ(b.available(0), capacity);
  Bytes got(capacity + 100);
  EXPECT_EQ(b.receive_some(0, std::span(got).first(10)), 10u);
  EXPECT_EQ(a.send_some(1, std::span(data).subspan(capacity)).value(), 10u);
  EXPECT_EQ(b.receive_some(0, std::span(got).subspan(10)), capacity);
  EXPECT_EQ(b.receive_some(0, got), 0u) << "empty";
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(capacity) + 10,
                         got.begin()));
}

TEST(Channel, WrapsAround) {
  ShmGroup group(2);
  ShmTransport a(Os::real(), group[0], 0);
  ShmTransport b(Os::real(), group[1], 1);
  const std::size_t capacity = group[0].layout().channel_capacity;
  // A piece that does not divide the capacity crosses the end at every possible place in time.
  const Bytes data = pattern(capacity / 3 + 7, 2);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(a.send_some(1, data).value(), data.size());
    Bytes got(data.size());
    ASSERT_EQ(b.receive_some(0, got), data.size());
    ASSERT_EQ(got, data) << i;
  }
}

TEST(Channel, OrderedPairsAreApart) {
  constexpr int kRanks = 4;
  ShmGroup group(kRanks);
  std::vector<ShmTransport> transports;
  for (int r = 0; r < kRanks; ++r) transports.emplace_back(Os::real(), group[r], r);
  const std::size_t capacity = group[0].layout().channel_capacity;
  const auto seed = [](int from, int to) { return static_cast<unsigned>(from * kRanks + to); };
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      const auto sent = transports[static_cast<std::size_t>(from)].send_some(
          to, pattern(capacity, seed(from, to)));
      ASSERT_EQ(sent.value(), capacity);
    }
  }
  for (int to = 0; to < kRanks; ++to) {
    for (int from = 0; from < kRanks; ++from) {
      if (from == to) continue;
      Bytes got(capacity);
      ASSERT_EQ(transports[static_cast<std::size_t>(to)].receive_some(from, got), capacity);
      EXPECT_EQ(got, pattern(capacity, seed(from, to))) << from << " to " << to;
    }
  }
}

TEST(Channel, AStreamBetweenThreadsArrivesAsItWas) {
  ShmGroup group(2);
  const Bytes data = pattern(3000003, 3);
  Bytes got(data.size());
  run_ranks(2, [&](int r) {
    ShmTransport t(Os::real(), group[r], r);
    std::mt19937 rng(static_cast<unsigned>(r));
    std::size_t at = 0;
    while (at < data.size()) {
      const std::size_t piece = std::min<std::size_t>(data.size() - at, 1 + rng() % 100000);
      const std::size_t n = r == 0 ? t.send_some(1, std::span(data).subspan(at, piece)).value()
                                   : t.receive_some(0, std::span(got).subspan(at, piece));
      at += n;
      if (n == 0) std::this_thread::yield();
    }
  });
  EXPECT_EQ(got, data);
}

TEST(Channel, HostileCountersMoveNothing) {
  ShmGroup group(3);
  ShmTransport t(Os::real(), group[0], 0);
  const std::size_t capacity = group[0].layout().channel_capacity;
  Bytes buffer(100);
  for (const std::uint64_t bad : {std::uint64_t(capacity) + 1, ~std::uint64_t(0)}) {
    control(group[1], 1, 0).sent.store(bad);
    EXPECT_EQ(t.available(1), 0u) << bad;
    EXPECT_EQ(t.receive_some(1, buffer), 0u) << bad;
    control(group[1], 0, 1).received.store(0 - bad);  // more in the buffer than it holds
    EXPECT_EQ(t.send_some(1, buffer).value(), 0u) << bad;
  }
  EXPECT_EQ(t.send_some(2, buffer).value(), buffer.size()) << "the other channels go on";
}

TEST(Channel, CountersPassTheirOwnEnd) {
  ShmGroup group(2);
  const std::uint64_t near_end = ~std::uint64_t(0) - 50;
  control(group[0], 0, 1).sent.store(near_end);
  control(group[0], 0, 1).received.store(near_end);
  ShmTransport a(Os::real(), group[0], 0);
  ShmTransport b(Os::real(), group[1], 1);
  const Bytes data = pattern(200, 4);
  // 2^64 is a multiple of the capacity, so the place in the buffer goes on without a jump.
  ASSERT_EQ(a.send_some(1, data).value(), data.size());
  Bytes got(200);
  ASSERT_EQ(b.receive_some(0, got), got.size());
  EXPECT_EQ(got, data);
}

TEST(Channel, MemoryIsCommittedBeforeTheFirstByte) {
  ShmGroup group(3);
  FaultOs os;
  os.fail("allocate", Status(Cause::kResource, "no room for a channel"), {.from = 1, .to = 1});
  ShmTransport t(os, group[0], 0);
  const Bytes data = pattern(10, 5);
  EXPECT_EQ(t.send_some(1, data).status().text(), "no room for a channel");
  EXPECT_EQ(ShmTransport(os, group[1], 1).available(0), 0u);
  EXPECT_EQ(t.send_some(1, data).value(), 10u) << "tried again";
  EXPECT_EQ(t.send_some(1, data).value(), 10u);
  EXPECT_EQ(os.calls("allocate"), 2) << "once per channel";
  EXPECT_EQ(t.send_some(2, data).value(), 10u);
  EXPECT_EQ(os.calls("allocate"), 3);
}

TEST(Channel, TellsHowAPeerEnded) {
  ShmGroup group(3);
  ShmTransport t(Os::real(), group[0], 0);
  EXPECT_EQ(t.peer(1), PeerState::kPresent);
  {
    Child child([&] {
      if (!hold_alive_lock(group[1].block(1)).ok()) ::_exit(1);
      const Bytes last = pattern(20, 6);
      if (!ShmTransport(Os::real(), group[1], 1).send_some(0, last).ok()) ::_exit(1);
    });
    EXPECT_EQ(t.peer(1), PeerState::kPresent);
  }
  EXPECT_EQ(t.peer(1), PeerState::kDead);
  Bytes got(20);
  EXPECT_EQ(t.receive_some(1, got), 20u) << "what it had sent is still there";
  EXPECT_EQ(got, pattern(20, 6));
  group[2].block(2).state.store(RankState::kLeft);
  EXPECT_EQ(t.peer(2), PeerState::kLeft);
}

}  // namespace
}  // namespace topocoll::shm
