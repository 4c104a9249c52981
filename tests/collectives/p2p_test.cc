#include "collectives/p2p.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "support/fault_os.h"
#include "support/group.h"
#include "transport/shm/channel.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::FaultOs;
using testing::run_ranks;
using testing::ShmGroup;
using Request = std::shared_ptr<P2pRequest>;

/// Engines of n ranks in one thread: nothing moves but by pump(), and time by hand.
class Ranks {
 public:
  explicit Ranks(int n) : group(n) {
    os.set_clock(TimePoint{} + 1h);
    for (int r = 0; r < n; ++r) {
      transports_.push_back(std::make_unique<shm::ShmTransport>(os, group[r], r));
      engines_.push_back(std::make_unique<P2pEngine>(os, *transports_.back(), r, n));
    }
  }
  P2pEngine& operator[](int r) { return *engines_[static_cast<std::size_t>(r)]; }
  void pump(int rounds = 50) {
    for (int i = 0; i < rounds; ++i) {
      for (auto& e : engines_) e->progress();
    }
  }
  Request send(int from, int to, int tag, const std::string& text, DataType type = DataType::kU8) {
    kept_.push_back(std::make_unique<std::string>(text));
    auto r = request(to, tag, type);
    r->is_send = true;
    r->in = reinterpret_cast<const std::byte*>(kept_.back()->data());
    r->bytes = text.size();
    (*this)[from].post(r);
    return r;
  }
  Request recv(int at, int from, int tag, std::string& into, DataType type = DataType::kU8) {
    auto r = request(from, tag, type);
    r->out = reinterpret_cast<std::byte*>(into.data());
    r->bytes = into.size();
    (*this)[at].post(r);
    return r;
  }

  ShmGroup group;
  FaultOs os;
  std::chrono::milliseconds timeout = 10s;

 private:
  Request request(int peer, int tag, DataType type) {
    auto r = std::make_shared<P2pRequest>();
    r->peer = peer;
    r->tag = tag;
    r->type = type;
    r->deadline = os.now() + timeout;
    return r;
  }
  std::vector<std::unique_ptr<shm::ShmTransport>> transports_;
  std::vector<std::unique_ptr<P2pEngine>> engines_;
  std::vector<std::unique_ptr<std::string>> kept_;
};

void expect_received(const Request& r, const std::string& buffer, const std::string& text,
                     int source, int tag) {
  ASSERT_TRUE(r->done.load());
  EXPECT_TRUE(r->status.ok()) << r->status.to_string();
  EXPECT_EQ(r->source, source);
  EXPECT_EQ(r->received_tag, tag);
  EXPECT_EQ(r->received_bytes, text.size());
  EXPECT_EQ(buffer.substr(0, text.size()), text);
}

TEST(P2p, AMessageFindsItsReceiveInEitherOrder) {
  Ranks ranks(2);
  std::string a(10, '.'), b(10, '.');
  const Request first = ranks.recv(1, 0, 7, a);
  const Request sent = ranks.send(0, 1, 7, "early");
  ranks.pump();
  expect_received(first, a, "early", 0, 7);
  EXPECT_TRUE(sent->done.load() && sent->status.ok());
  ranks.send(0, 1, 7, "late");
  ranks.pump();
  const Request second = ranks.recv(1, 0, 7, b);
  expect_received(second, b, "late", 0, 7);
  EXPECT_EQ(ranks[0].pending() + ranks[1].pending(), 0u);
  EXPECT_EQ(ranks[0].pending_sends(), 0u);
}

TEST(P2p, TagsMayComeInAnyOrder) {
  Ranks ranks(2);
  for (int tag : {1, 2, 3}) ranks.send(0, 1, tag, "tag " + std::to_string(tag));
  std::string c(5, '.'), a(5, '.'), b(5, '.');
  const Request third = ranks.recv(1, 0, 3, c);
  ranks.pump();
  expect_received(third, c, "tag 3", 0, 3);
  const Request first = ranks.recv(1, 0, 1, a);
  const Request second = ranks.recv(1, 0, 2, b);
  expect_received(first, a, "tag 1", 0, 1);
  expect_received(second, b, "tag 2", 0, 2);
}

TEST(P2p, OneTagKeepsTheOrderOfItsMessages) {
  Ranks ranks(2);
  std::vector<std::string> got(20, std::string(2, '.'));
  std::vector<Request> requests;
  for (int i = 0; i < 10; ++i) ranks.send(0, 1, 5, std::to_string(10 + i));
  std::string other(1, '.');
  const Request waiting = ranks.recv(1, 0, 6, other);  // lets the others be kept
  ranks.pump();
  for (int i = 10; i < 20; ++i) ranks.send(0, 1, 5, std::to_string(10 + i));
  for (auto& g : got) requests.push_back(ranks.recv(1, 0, 5, g));
  ranks.pump();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], std::to_string(10 + i));
  EXPECT_FALSE(waiting->done.load());
}

TEST(P2p, AnySourceAndAnyTagSayWhoItWas) {
  Ranks ranks(3);
  std::string a(5, '.'), b(5, '.'), c(5, '.');
  const Request any = ranks.recv(0, kAnySource, kAnyTag, a);
  ranks.send(2, 0, 9, "two");
  ranks.pump();
  expect_received(any, a, "two", 2, 9);
  ranks.send(1, 0, 4, "one");
  const Request by_tag = ranks.recv(0, kAnySource, 4, b);
  ranks.pump();
  expect_received(by_tag, b, "one", 1, 4);
  const Request by_source = ranks.recv(0, 2, kAnyTag, c);
  ranks.send(1, 0, 1, "x");
  ranks.send(2, 0, 8, "y");
  ranks.pump();
  expect_received(by_source, c, "y", 2, 8);
}

TEST(P2p, ReceivesAreServedInTheOrderOfTheirCalls) {
  Ranks ranks(2);
  std::string a(1, '.'), b(1, '.');
  const Request any = ranks.recv(1, kAnySource, kAnyTag, a);
  const Request exact = ranks.recv(1, 0, 3, b);
  ranks.send(0, 1, 3, "1");
  ranks.send(0, 1, 3, "2");
  ranks.pump();
  expect_received(any, a, "1", 0, 3);
  expect_received(exact, b, "2", 0, 3);
}

TEST(P2p, ARankMaySendToItself) {
  Ranks ranks(2);
  std::string a(6, '.'), b(6, '.');
  const Request sent = ranks.send(0, 0, 1, "before");
  EXPECT_TRUE(sent->done.load()) << "its buffer may be reused at once";
  expect_received(ranks.recv(0, 0, 1, a), a, "before", 0, 1);
  const Request after = ranks.recv(0, kAnySource, 2, b);
  ranks.send(0, 0, 2, "after");
  expect_received(after, b, "after", 0, 2);
}

TEST(P2p, EmptyMessagesAreMessages) {
  Ranks ranks(2);
  std::string none;
  for (int from : {0, 1}) {
    const Request r = ranks.recv(1, from, 1, none);
    ranks.send(from, 1, 1, "");
    ranks.pump();
    expect_received(r, none, "", from, 1);
  }
}

TEST(P2p, AMessageLongerThanItsReceiveIsAnErrorOfTheReceiveAlone) {
  for (const bool early : {true, false}) {
    for (const int from : {0, 1}) {
      Ranks ranks(2);
      std::string small(3, '.'), next(4, '.'), other(1, '.');
      Request r;
      if (early)
        r = ranks.recv(1, from, 1, small);
      else
        ranks.recv(1, from, 99, other);
      const Request sent = ranks.send(from, 1, 1, std::string(100000, 'x'));
      ranks.pump();
      if (!early) r = ranks.recv(1, from, 1, small);
      ranks.pump();
      ASSERT_TRUE(r->done.load());
      EXPECT_EQ(r->status.cause(), Cause::kMismatch);
      EXPECT_NE(r->status.text().find("sent 100000 elements"), std::string::npos)
          << r->status.text();
      EXPECT_NE(r->status.text().find("has room for 3"), std::string::npos) << r->status.text();
      EXPECT_EQ(small, "...");
      EXPECT_TRUE(sent->done.load() && sent->status.ok());
      const Request after = ranks.recv(1, from, 1, next);
      ranks.send(from, 1, 1, "next");
      ranks.pump();
      expect_received(after, next, "next", from, 1);
    }
  }
}

TEST(P2p, ARefusedReceiveEndsNoSoonerThanItsSender) {
  // After it nobody may move the receiver's bytes any more.
  for (const bool early : {true, false}) {
    Ranks ranks(2);
    std::string small(3, '.'), other(1, '.');
    Request r;
    if (early) {
      r = ranks.recv(1, 0, 1, small);
    } else {
      ranks.recv(1, 0, 99, other);
    }
    const Request sent = ranks.send(0, 1, 1, std::string(4 * ranks.group[0].layout().channel_capacity, 'x'));
    if (!early) {
      ranks[1].progress();
      r = ranks.recv(1, 0, 1, small);
    }
    for (int i = 0; i < 1000 && !r->done.load(); ++i) {
      ranks[0].progress();
      ranks[1].progress();
    }
    ASSERT_TRUE(r->done.load());
    EXPECT_EQ(r->status.cause(), Cause::kMismatch);
    EXPECT_TRUE(sent->done.load() && sent->status.ok());
  }
}

TEST(P2p, ARefusedReceiveEndsAtItsDeadlineWithItsOwnError) {
  Ranks ranks(2);
  std::string small(3, '.');
  const Request r = ranks.recv(1, 0, 1, small);
  ranks.send(0, 1, 1, std::string(4 * ranks.group[0].layout().channel_capacity, 'x'));
  ranks[1].progress();
  EXPECT_FALSE(r->done.load());
  ranks.os.advance(11s);
  EXPECT_EQ(ranks[1].expire(), -1);
  ASSERT_TRUE(r->done.load());
  EXPECT_EQ(r->status.cause(), Cause::kMismatch);
}

TEST(P2p, TypesMustAgree) {
  for (const int from : {0, 1}) {
    Ranks ranks(2);
    std::string a(8, '.');
    const Request r = ranks.recv(1, from, 1, a, DataType::kF32);
    ranks.send(from, 1, 1, "12345678", DataType::kI32);
    ranks.pump();
    EXPECT_EQ(r->status.cause(), Cause::kMismatch);
    for (const char* word : {"i32", "f32", "tag 1"}) {
      EXPECT_NE(r->status.text().find(word), std::string::npos) << r->status.text();
    }
  }
}

TEST(P2p, AMessageThatNobodyWantsStaysInTheChannel) {
  Ranks ranks(2);
  const std::size_t capacity = ranks.group[0].layout().channel_capacity;
  const Request sent = ranks.send(0, 1, 1, std::string(2 * capacity, 'x'));
  ranks.pump();
  EXPECT_FALSE(sent->done.load()) << "memory of the receiver is not filled without its consent";
  std::string got(2 * capacity, '.');
  const Request r = ranks.recv(1, 0, 1, got);
  ranks.pump();
  EXPECT_TRUE(sent->done.load());
  expect_received(r, got, std::string(2 * capacity, 'x'), 0, 1);
}

TEST(P2p, AReceiveMayClaimAMessageThatIsStillComing) {
  Ranks ranks(2);
  const std::size_t capacity = ranks.group[0].layout().channel_capacity;
  const std::string text(3 * capacity, 'y');
  std::string other(1, '.'), got(text.size(), '.');
  ranks.recv(1, 0, 99, other);
  ranks.send(0, 1, 1, text);
  ranks[1].progress();  // a part of it is kept
  const Request r = ranks.recv(1, 0, 1, got);
  EXPECT_FALSE(r->done.load());
  ranks.pump();
  expect_received(r, got, text, 0, 1);
}

TEST(P2p, HugeMessagesPassBothWaysAtOnce) {
  ShmGroup group(3);
  const std::size_t bytes = (3 << 20) + 13;
  const auto value = [](int from, int to, std::size_t i) {
    return static_cast<std::byte>(i * 31 + i / 253 + static_cast<std::size_t>(from * 3 + to) * 7);
  };
  run_ranks(3, [&](int r) {
    shm::ShmTransport transport(Os::real(), group[r], r);
    P2pEngine engine(Os::real(), transport, r, 3);
    std::vector<std::vector<std::byte>> in(3), out(3);
    std::vector<Request> all;
    for (int peer = 0; peer < 3; ++peer) {
      auto& data = in[static_cast<std::size_t>(peer)];
      data.resize(bytes);
      out[static_cast<std::size_t>(peer)].resize(bytes);
      for (std::size_t i = 0; i < bytes; ++i) data[i] = value(r, peer, i);
      for (const bool is_send : {true, false}) {
        auto request = std::make_shared<P2pRequest>();
        request->is_send = is_send;
        request->peer = peer;
        request->in = data.data();
        request->out = out[static_cast<std::size_t>(peer)].data();
        request->bytes = bytes;
        request->deadline = Clock::now() + 60s;
        engine.post(request);
        all.push_back(std::move(request));
      }
    }
    const TimePoint limit = Clock::now() + 60s;
    while (engine.pending() != 0 && Clock::now() < limit) {
      engine.progress();
      std::this_thread::yield();
    }
    for (const Request& request : all) ASSERT_TRUE(request->done.load() && request->status.ok());
    for (int peer = 0; peer < 3; ++peer) {
      const auto& got = out[static_cast<std::size_t>(peer)];
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < bytes; ++i) wrong += got[i] != value(peer, r, i);
      EXPECT_EQ(wrong, 0u) << peer << " to " << r;
    }
  });
}

TEST(P2p, ReceivesAndSendsExpire) {
  Ranks ranks(3);
  ranks.timeout = 5s;
  std::string a(1, '.'), b(1, '.'), c(1, '.');
  const Request from_one = ranks.recv(0, 1, 3, a);
  const Request from_any = ranks.recv(0, kAnySource, kAnyTag, b);
  const std::size_t capacity = ranks.group[0].layout().channel_capacity;
  std::string filler(capacity, 'x');
  ranks.timeout = 1h;
  ranks.send(0, 2, 1, filler);
  ranks.timeout = 5s;
  EXPECT_EQ(ranks[0].expire(), -1);
  EXPECT_FALSE(from_one->done.load());
  ranks.os.advance(5s);
  EXPECT_EQ(ranks[0].expire(), -1);
  EXPECT_EQ(from_one->status.cause(), Cause::kTimeout);
  EXPECT_EQ(from_one->status.culprits(), std::vector<int>{1});
  EXPECT_NE(from_one->status.text().find("from rank 1 with tag 3"), std::string::npos);
  EXPECT_EQ(from_any->status.cause(), Cause::kTimeout);
  EXPECT_TRUE(from_any->status.culprits().empty());
}

TEST(P2p, ASendThatHasNotBegunExpiresAlone) {
  Ranks ranks(2);
  const std::size_t capacity = ranks.group[0].layout().channel_capacity;
  // Exactly full, so that nothing of the second message is under way.
  constexpr std::size_t kHeader = 16;
  ASSERT_GT(capacity, kHeader);
  const Request first = ranks.send(0, 1, 1, std::string(capacity - kHeader, 'x'));
  const Request second = ranks.send(0, 1, 2, "waits");
  ranks.pump();
  EXPECT_TRUE(first->done.load());
  EXPECT_FALSE(second->done.load());
  ranks.os.advance(11s);
  EXPECT_EQ(ranks[0].expire(), -1);
  EXPECT_EQ(second->status.cause(), Cause::kTimeout);
  EXPECT_EQ(second->status.culprits(), std::vector<int>{1});
  std::string got(capacity, '.'), more(5, '.');
  const Request r = ranks.recv(1, 0, 1, got);
  ranks.send(0, 1, 3, "third");
  const Request third = ranks.recv(1, 0, 3, more);
  ranks.pump();
  EXPECT_TRUE(r->done.load() && r->status.ok()) << "the channel is whole";
  expect_received(third, more, "third", 0, 3);
}

TEST(P2p, AMessageThatStopsHalfWayBreaksThePair) {
  const auto half_a_message = [](Ranks& ranks, bool claimed, Request& r, std::string& got) {
    const std::size_t capacity = ranks.group[0].layout().channel_capacity;
    got.assign(2 * capacity, '.');
    std::string other(1, '.');
    if (claimed) {
      // Somebody else waits for the source, so that the message is kept; then it is claimed.
      static std::string unused(1, '.');
      ranks.timeout = 1h;
      ranks.recv(1, 0, 99, unused);
      ranks.timeout = 10s;
    } else {
      r = ranks.recv(1, 0, 1, got);
    }
    ranks.send(0, 1, 1, got);
    ranks[1].progress();  // the sender does not move again
    if (claimed) r = ranks.recv(1, 0, 1, got);
  };
  for (const bool claimed : {false, true}) {
    Ranks ranks(2);
    Request r;
    std::string got;
    half_a_message(ranks, claimed, r, got);
    EXPECT_EQ(ranks[1].expire(), -1);
    EXPECT_FALSE(r->done.load());
    ranks.os.advance(11s);
    EXPECT_EQ(ranks[1].expire(), 0) << "rank 0 is to blame" << (claimed ? ", claimed" : "");
    EXPECT_EQ(ranks[0].expire(), 1) << "and by the sender's clock rank 1 is";
  }
}

TEST(P2p, APeerThatLeftEndsWhatItCanNoLongerServe) {
  Ranks ranks(3);
  std::string a(4, '.'), b(4, '.'), c(4, '.');
  ranks.send(1, 0, 1, "last");
  const Request served = ranks.recv(0, 1, 1, a);
  const Request unserved = ranks.recv(0, 1, 2, b);
  const Request any = ranks.recv(0, kAnySource, 9, c);
  ranks.group[1].block(1).state.store(shm::RankState::kLeft);
  EXPECT_EQ(ranks[0].expire(), -1);
  expect_received(served, a, "last", 1, 1);
  EXPECT_EQ(unserved->status.cause(), Cause::kPeerLeft);
  EXPECT_EQ(unserved->status.culprits(), std::vector<int>{1});
  EXPECT_FALSE(any->done.load()) << "rank 2 may still send";
  ranks.group[2].block(2).state.store(shm::RankState::kLeft);
  ranks[0].expire();
  EXPECT_EQ(any->status.cause(), Cause::kPeerLeft);
}

TEST(P2p, FailAllDeliversWhatHasArrived) {
  Ranks ranks(2);
  std::string a(5, '.'), b(5, '.');
  const std::size_t capacity = ranks.group[0].layout().channel_capacity;
  std::string huge(20 * capacity, '.');
  const Request stuck = ranks.send(1, 0, 1, std::string(20 * capacity, 'z'));
  const Request coming = ranks.recv(0, 1, 1, huge);
  const Status end = Status::operation(Cause::kPeerDied, {1}, 1, 5, "", "rank 1 died");
  const Request here = ranks.recv(1, 0, 1, a);
  const Request never = ranks.recv(1, 0, 2, b);
  ranks.send(0, 1, 1, "there");
  EXPECT_FALSE(here->done.load()) << "it has come, but its receiver has not looked";
  ranks[1].fail_all(end);
  ranks[0].fail_all(end);
  expect_received(here, a, "there", 0, 1);
  for (const Request& r : {never, stuck, coming}) {
    ASSERT_TRUE(r->done.load());
    EXPECT_EQ(r->status.text(), "rank 1 died");
  }
  EXPECT_EQ(ranks[0].pending() + ranks[1].pending(), 0u);
}

TEST(P2p, NoRoomForAChannelFailsTheSendAlone) {
  Ranks ranks(2);
  ranks.os.fail("allocate", Status(Cause::kResource, "a send/recv channel needs 256.0 KiB"),
                {.from = 1, .to = 1});
  const Request failed = ranks.send(0, 1, 1, "x");
  EXPECT_EQ(failed->status.cause(), Cause::kResource);
  std::string a(1, '.');
  const Request r = ranks.recv(1, 0, 1, a);
  ranks.send(0, 1, 1, "y");
  ranks.pump();
  expect_received(r, a, "y", 0, 1);
}

}  // namespace
}  // namespace topocoll
