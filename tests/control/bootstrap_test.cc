#include "control/bootstrap.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/fault_os.h"
#include "support/group.h"
#include "transport/shm/gate.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::FaultOs;
using testing::run_ranks;

using Results = std::vector<std::optional<Result<Assembly>>>;
using Change = std::function<void(BootstrapOptions&)>;

/// A group that meets in threads over a memory store; ranks in `absent` do not come.
class Meeting {
 public:
  explicit Meeting(int size, std::shared_ptr<Store> store = make_memory_store())
      : size_(size), store_(std::move(store)) {}

  std::chrono::milliseconds timeout = 10s;
  std::vector<int> absent;
  std::vector<Os*> os;  ///< by rank; empty: the real one

  Results run(const Change& change = [](BootstrapOptions&) {}) {
    Results results(static_cast<std::size_t>(size_));
    run_ranks(size_, [&](int r) {
      if (std::find(absent.begin(), absent.end(), r) != absent.end()) return;
      BootstrapOptions o;
      o.rank = r;
      o.size = size_;
      o.store = store_.get();
      o.name = "test";
      o.timeout = timeout;
      change(o);
      Os& mine = os.empty() ? Os::real() : *os[static_cast<std::size_t>(r)];
      results[static_cast<std::size_t>(r)].emplace(bootstrap(mine, o));
    });
    return results;
  }
  Store& store() { return *store_; }

 private:
  int size_;
  std::shared_ptr<Store> store_;
};

void expect_met(Results& results, std::uint64_t epoch = 1) {
  for (std::size_t r = 0; r < results.size(); ++r) {
    ASSERT_TRUE(results[r]->ok()) << r << ": " << results[r]->status().to_string();
    Assembly& a = results[r]->value();
    EXPECT_EQ(a.epoch, epoch);
    EXPECT_EQ(a.segment.header().epoch, epoch);
    EXPECT_EQ(a.segment.ranks(), static_cast<int>(results.size()));
    a.segment.block(static_cast<int>(r)).pid.store(static_cast<int>(100 + r));
    EXPECT_EQ(a.links.size(), r == 0 ? results.size() - 1 : 1);
  }
  for (auto& result : results) {
    for (std::size_t r = 0; r < results.size(); ++r) {
      EXPECT_EQ(result->value().segment.block(static_cast<int>(r)).pid.load(),
                static_cast<int>(100 + r));
    }
  }
}

/// Every rank that came has this cause and all these words.
void expect_failed(const Results& results, Cause cause, const std::vector<std::string>& words) {
  for (std::size_t r = 0; r < results.size(); ++r) {
    if (!results[r]) continue;
    ASSERT_FALSE(results[r]->ok()) << r;
    const Status s = results[r]->status();
    EXPECT_EQ(s.cause(), cause) << r << ": " << s.to_string();
    for (const std::string& word : words) {
      EXPECT_NE(s.text().find(word), std::string::npos)
          << r << ": no '" << word << "' in: " << s.text();
    }
  }
}

TEST(Bootstrap, RanksComeToShareASegment) {
  for (int n : {1, 2, 3, 8}) {
    Meeting meeting(n);
    Results results = meeting.run();
    if (n > 1) {
      expect_met(results);
    } else {
      ASSERT_TRUE(results[0]->ok());
    }
    EXPECT_FALSE((*results[0])->host_id.empty());
  }
}

TEST(Bootstrap, ANameMayBeUsedAgainOnTheSameStore) {
  Meeting meeting(3);
  for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
    Results results = meeting.run();
    expect_met(results, epoch);
  }
}

TEST(Bootstrap, GroupsOnOneStoreStayApart) {
  const auto store = make_memory_store();
  std::vector<std::thread> groups;
  for (const char* name : {"a", "b", "c"}) {
    groups.emplace_back([&store, name] {
      Meeting meeting(2, store);
      Results results = meeting.run([name](BootstrapOptions& o) { o.name = name; });
      expect_met(results);
    });
  }
  for (std::thread& t : groups) t.join();
}

TEST(Bootstrap, WithoutAStoreOneRankIsTheLimit) {
  BootstrapOptions o;
  o.timeout = 1s;
  EXPECT_TRUE(bootstrap(Os::real(), o).ok());
  o.size = 2;
  EXPECT_EQ(bootstrap(Os::real(), o).status().cause(), Cause::kInvalidArgument);
}

TEST(Bootstrap, DifferentSizesAreToldToAll) {
  Meeting meeting(3);
  expect_failed(meeting.run([](BootstrapOptions& o) { o.size = o.rank == 2 ? 4 : 3; }),
                Cause::kInvalidArgument, {"rank 2", "for 4 ranks", "rank 0 for 3"});
}

TEST(Bootstrap, ASmallerSizeIsToldEvenByTheLastToCome) {
  Meeting meeting(3);
  expect_failed(meeting.run([&](BootstrapOptions& o) {
    if (o.rank != 1) return;
    o.size = 2;
    EXPECT_TRUE(testing::eventually([&] {
      return meeting.store().contains("topocoll/test/1/hello/0").value() &&
             meeting.store().contains("topocoll/test/1/hello/2").value();
    }));
  }),
                Cause::kInvalidArgument, {"rank 1", "for 2 ranks", "rank 0 for 3"});
}

TEST(Bootstrap, ABrokenMeetingMayBeTriedAgainOnceAllHaveCome) {
  Meeting meeting(2);
  meeting.timeout = 100ms;
  meeting.absent = {1};
  expect_failed(meeting.run(), Cause::kTimeout, {"missing rank 1"});
  meeting.timeout = 10s;
  meeting.absent = {0};
  expect_failed(meeting.run(), Cause::kTimeout, {"missing rank 1"});
  meeting.absent = {};
  Results results = meeting.run();
  expect_met(results, 2);
}

TEST(Bootstrap, DifferentBuildsAreToldToAll) {
  Meeting meeting(3);
  expect_failed(meeting.run([](BootstrapOptions& o) {
    o.build_tag = o.rank == 1 ? "torch 2.9" : "torch 2.11";
  }),
                Cause::kVersion, {"rank 1", "torch 2.9", "torch 2.11", "install one build"});
}

/// A store that passes on one field of one key with another value.
class ForgingStore final : public Store {
 public:
  ForgingStore(Store& base, std::string key, std::string field, std::string value)
      : base_(base),
        key_("topocoll/test/1/" + key),
        field_(field + "="),
        value_(std::move(value)) {}
  Status set(const std::string& key, const std::string& value) override {
    std::string forged = value;
    if (key == key_) {
      const std::size_t at = forged.find(field_) + field_.size();
      forged.replace(at, forged.find('\n', at) - at, value_);
    }
    return base_.set(key, forged);
  }
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    return base_.get(key, timeout);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    return base_.add(key, delta);
  }
  Result<bool> contains(const std::string& key) override { return base_.contains(key); }

 private:
  Store& base_;
  const std::string key_, field_, value_;
};

TEST(Bootstrap, DifferentLayoutsAndBuildsAreToldToAll) {
  for (const char* field : {"wire", "build"}) {
    Meeting meeting(3);
    ForgingStore forging(meeting.store(), "hello/1", field, "31337");
    expect_failed(meeting.run([&](BootstrapOptions& o) {
      if (o.rank == 1) o.store = &forging;
    }),
                  Cause::kVersion, {"rank 1 runs topocoll", "install one build"});
  }
}

TEST(Bootstrap, MemoryWithAnotherTokenIsAnotherHosts) {
  Meeting meeting(2);
  ForgingStore forging(meeting.store(), "table", "token", to_hex(*Os::real().random_token()));
  const Results results = meeting.run([&](BootstrapOptions& o) {
    if (o.rank == 0) o.store = &forging;
  });
  // Rank 0 has handed out its segment by then, and learns the rest from the end of the connection.
  const Status refused = results[1]->status();
  EXPECT_EQ(refused.cause(), Cause::kUnsupported) << refused.to_string();
  EXPECT_NE(refused.text().find("rank 1 does not see rank 0's memory: they are not on one host"),
            std::string::npos)
      << refused.text();
}

TEST(Bootstrap, DifferentSettingsAreToldToAll) {
  Meeting meeting(3);
  expect_failed(
      meeting.run([](BootstrapOptions& o) { o.settings = o.rank == 2 ? "mode b" : "mode a"; }),
      Cause::kInvalidArgument, {"rank 2", "mode a", "mode b"});
}

TEST(Bootstrap, DifferentHostsAreToldToAll) {
  Meeting meeting(3);
  expect_failed(meeting.run([](BootstrapOptions& o) { o.host_id = o.rank == 2 ? "east" : "west"; }),
                Cause::kUnsupported, {"rank 2 is on host east", "rank 0 on host west"});
}

TEST(Bootstrap, NewlinesInATagForgeNothing) {
  Meeting meeting(2);
  expect_failed(
      meeting.run([](BootstrapOptions& o) { o.build_tag = o.rank == 1 ? "x\nsize=9" : "x"; }),
      Cause::kVersion, {"x size=9"});
}

TEST(Bootstrap, MissingRanksAreListedOnAllOthersInTime) {
  for (const std::vector<int>& absent : {std::vector<int>{1, 3}, std::vector<int>{0}}) {
    Meeting meeting(4);
    meeting.timeout = 400ms;
    meeting.absent = absent;
    const TimePoint start = Clock::now();
    const Results results = meeting.run();
    EXPECT_LT(Clock::now() - start, meeting.timeout + 1500ms);
    expect_failed(results, Cause::kTimeout,
                  {absent.size() == 2 ? "missing ranks 1, 3" : "missing rank 0"});
    for (const auto& r : results) {
      if (r) {
        EXPECT_EQ(r->status().culprits(), absent) << "on every rank";
      }
    }
  }
}

TEST(Bootstrap, ARankThatJoinsTwiceIsRefused) {
  Meeting meeting(3);
  meeting.timeout = 2s;
  // Two processes believe to be rank 1.
  const Results results =
      meeting.run([](BootstrapOptions& o) { o.rank = o.rank == 2 ? 1 : o.rank; });
  int refused = 0;
  for (const auto& r : results) {
    ASSERT_FALSE(r->ok());
    refused += r->status().text().find("rank 1 joined group 'test' twice") != std::string::npos;
  }
  EXPECT_EQ(refused, 3) << "the others are told why";
}

TEST(Bootstrap, AFullMachineAtRankZeroIsToldToAll) {
  for (const char* call : {"allocate", "create_memfd", "listen_abstract"}) {
    FaultOs broken;
    const std::string text =
        std::string(call) + ": No space left on device (0.0 MiB of 1.0 MiB free there)";
    broken.fail(call, Status(Cause::kResource, text));
    broken.fail("create_unlinked_file", Status(Cause::kResource, text));
    Meeting meeting(3);
    meeting.os = {&broken, &Os::real(), &Os::real()};
    expect_failed(meeting.run(), Cause::kResource, {text});
  }
}

TEST(Bootstrap, AFileServesWhereMemfdIsMissing) {
  FaultOs os;
  os.fail("create_memfd", Status(Cause::kSystem, "memfd_create: Function not implemented"));
  Meeting meeting(2);
  meeting.os = {&os, &os};
  Results results = meeting.run([](BootstrapOptions& o) { o.shm_directory = "/tmp"; });
  expect_met(results);
  EXPECT_EQ(os.calls("create_unlinked_file"), 1);
}

TEST(Bootstrap, ARankWithoutDescriptorsFailsForAll) {
  FaultOs broken;
  broken.fail("connect_abstract",
              Status(Cause::kResource, "creating a unix socket: Too many open files"));
  Meeting meeting(3);
  meeting.os = {&Os::real(), &broken, &Os::real()};
  const Results results = meeting.run();
  // Rank 2 may have been served, and may so have met before rank 1 gave up: then its segment says
  // so.
  for (std::size_t r : {0, 1, 2}) {
    if (r == 2 && results[r]->ok()) {
      const auto fault = shm::Gate((*results[r])->segment).fault();
      ASSERT_TRUE(fault.has_value());
      EXPECT_EQ(fault->cause, Cause::kResource);
      EXPECT_EQ(fault->culprit, 1);
      continue;
    }
    EXPECT_EQ(results[r]->status().cause(), Cause::kResource) << r;
    EXPECT_EQ(results[r]->status().culprits(), std::vector<int>{1}) << r;
    EXPECT_NE(results[r]->status().text().find("rank 1: "), std::string::npos)
        << results[r]->status().text();
    EXPECT_NE(results[r]->status().text().find("Too many open files"), std::string::npos) << r;
  }
}

TEST(Bootstrap, RankZeroWithoutDescriptorsSaysSoAtOnce) {
  FaultOs broken;
  broken.fail("accept", Status(Cause::kResource, "accept: Too many open files"));
  Meeting meeting(3);
  meeting.timeout = 60s;
  meeting.os = {&broken, &Os::real(), &Os::real()};
  const TimePoint start = Clock::now();
  expect_failed(meeting.run(), Cause::kResource, {"rank 0: accept: Too many open files"});
  EXPECT_LT(Clock::now() - start, 30s);
}

TEST(Bootstrap, ARankThatCannotTakePartSaysSo) {
  for (const int odd : {0, 2}) {
    Meeting meeting(3);
    meeting.timeout = 60s;
    meeting.absent = {odd};
    BootstrapOptions o;
    o.rank = odd;
    o.size = 3;
    o.store = &meeting.store();
    o.name = "test";
    const TimePoint start = Clock::now();
    const Status own = decline(Os::real(), o, Status(Cause::kInvalidArgument, "TOPOCOLL_X: bad"));
    EXPECT_EQ(own.text(), "TOPOCOLL_X: bad");
    const Results results = meeting.run();
    expect_failed(results, Cause::kInvalidArgument,
                  {"rank " + std::to_string(odd) + ": TOPOCOLL_X: bad"});
    EXPECT_LT(Clock::now() - start, 30s);
  }
}

TEST(Bootstrap, ARankZeroThatVanishesAfterItsHelloIsTheCulprit) {
  Meeting meeting(3);
  meeting.timeout = 300ms;
  meeting.absent = {0};
  ASSERT_TRUE(meeting.store().add("topocoll/test/join", 1).ok());
  ASSERT_TRUE(meeting.store().add("topocoll/test/claim/0", 1).ok());
  ASSERT_TRUE(meeting.store().set("topocoll/test/1/hello/0", "size=3\n").ok());
  const Results results = meeting.run();
  expect_failed(results, Cause::kTimeout, {"rank 0", "did not hand out"});
  for (std::size_t r : {1, 2}) EXPECT_EQ(results[r]->status().culprits(), std::vector<int>{0});
}

/// What a rank leaves in the store that dies right after its hello: a name that nobody is bound to.
void leave_hello(Store& store, int rank, const std::string& fields) {
  const std::string r = std::to_string(rank);
  ASSERT_TRUE(store.add("topocoll/test/join", 1).ok());
  ASSERT_TRUE(store.add("topocoll/test/claim/" + r, 1).ok());
  const std::string network = std::filesystem::read_symlink("/proc/self/ns/net").string();
  ASSERT_TRUE(store
                  .set("topocoll/test/1/hello/" + r,
                       fields + "alive=topocoll-alive-of-nobody\nnetwork=" + network + "\n")
                  .ok());
}

TEST(Bootstrap, ARankZeroThatDiesAfterItsHelloIsNoticedAtOnce) {
  Meeting meeting(3);
  meeting.timeout = 60s;
  meeting.absent = {0};
  leave_hello(meeting.store(), 0, "size=3\n");
  const TimePoint start = Clock::now();
  const Results results = meeting.run();
  EXPECT_LT(Clock::now() - start, 20s);
  expect_failed(results, Cause::kPeerDied, {"rank 0 died while it was joining group 'test'"});
}

TEST(Bootstrap, ARankThatDiesAfterItsHelloIsNoticedAtOnce) {
  // The same hello as a living rank's, except for the socket.
  auto store = make_memory_store();
  {
    Meeting before(2, store);
    const Results results = before.run();
    ASSERT_TRUE(results[0]->ok());
  }
  std::string hello = store->get("topocoll/test/1/hello/1", 1s).value();
  hello.erase(hello.find("alive="),
              hello.find('\n', hello.find("alive=")) - hello.find("alive=") + 1);
  hello.erase(hello.find("network="),
              hello.find('\n', hello.find("network=")) - hello.find("network=") + 1);
  Meeting meeting(2);
  meeting.timeout = 60s;
  meeting.absent = {1};
  leave_hello(meeting.store(), 1, hello);
  const TimePoint start = Clock::now();
  const Results results = meeting.run();
  EXPECT_LT(Clock::now() - start, 20s);
  expect_failed(results, Cause::kPeerDied, {"rank 1 died while it was joining group 'test'"});
  EXPECT_EQ(results[0]->status().culprits(), std::vector<int>{1});
}

TEST(Bootstrap, ARankThatNeverSpeaksIsNamed) {
  FaultOs mute;  // connects, but what it sends never arrives
  Meeting meeting(3);
  meeting.timeout = 500ms;
  meeting.os = {&Os::real(), &mute, &Os::real()};
  mute.fail("send_all", Status(Cause::kTimeout, "lost"));
  mute.before("send_all", [&] {
    EXPECT_TRUE(testing::eventually(
        [&] { return meeting.store().contains("topocoll/test/1/failed").value(); }));
  });
  const TimePoint start = Clock::now();
  const Results results = meeting.run();
  EXPECT_EQ(results[0]->status().cause(), Cause::kTimeout);
  EXPECT_EQ(results[0]->status().culprits(), std::vector<int>{1});
  EXPECT_NE(results[0]->status().text().find("rank 1 joined"), std::string::npos);
  EXPECT_LT(Clock::now() - start, 4s);
}

TEST(Bootstrap, TheClockPastTheDeadlineEndsTheMeeting) {
  FaultOs os;
  os.set_clock(TimePoint{} + 1h);
  Meeting meeting(2);
  meeting.timeout = 1h;
  meeting.os = {&os, &os};
  meeting.absent = {1};
  std::thread later([&] {
    EXPECT_TRUE(testing::eventually([&] { return os.calls("now") > 3; }));
    os.advance(2h);
  });
  const Results results = meeting.run();
  later.join();
  expect_failed(results, Cause::kTimeout, {"missing rank 1"});
}

/// Connects to rank 0's socket as soon as its name is in the store.
std::vector<Fd> intrude(Store& store, int connections) {
  const std::string table = store.get("topocoll/test/1/table", 10s).value();
  const std::size_t at = table.find("socket=") + 7;
  const std::string name = table.substr(at, table.find('\n', at) - at);
  std::vector<Fd> all;
  for (int i = 0; i < connections; ++i) {
    auto fd = Os::real().connect_abstract(name, Clock::now() + 1s);
    if (fd.ok()) all.push_back(std::move(*fd));
  }
  return all;
}

/// Rank 1 fetches the segment only after `strangers` have had their way.
void expect_meeting_survives(const std::function<std::vector<Fd>(Store&)>& strangers) {
  Meeting meeting(2);
  FaultOs late;
  std::atomic<bool> intruded{false};
  late.before("connect_abstract",
              [&] { EXPECT_TRUE(testing::eventually([&] { return intruded.load(); })); });
  meeting.os = {&Os::real(), &late};
  std::vector<Fd> kept;
  std::thread intruder([&] {
    kept = strangers(meeting.store());
    EXPECT_FALSE(kept.empty());
    intruded.store(true);
  });
  Results results = meeting.run();
  intruder.join();
  expect_met(results);
}

TEST(Bootstrap, SilentStrangersDoNotKeepRanksOut) {
  expect_meeting_survives([](Store& store) { return intrude(store, 9); });
}

TEST(Bootstrap, StrangersThatTalkNonsenseAreHungUpOn) {
  expect_meeting_survives([](Store& store) {
    std::vector<Fd> all = intrude(store, 3);
    const std::vector<std::byte> garbage(4096, std::byte{0x5a});
    for (const Fd& fd : all) {
      EXPECT_TRUE(Os::real().send_all(fd, garbage, -1, Clock::now() + 1s).ok());
      std::array<std::byte, 1> answer{};
      EXPECT_FALSE(Os::real().receive_all(fd, answer, Clock::now() + 5s).ok()) << "nothing is told";
    }
    return all;
  });
}

TEST(Bootstrap, AStrangerThatBreaksOffHalfWayCostsABoundedTime) {
  const TimePoint start = Clock::now();
  expect_meeting_survives([](Store& store) {
    std::vector<Fd> all = intrude(store, 1);
    const std::vector<std::byte> half(7);
    EXPECT_TRUE(Os::real().send_all(all[0], half, -1, Clock::now() + 1s).ok());
    return all;
  });
  EXPECT_LT(Clock::now() - start, 6s);
}

TEST(Bootstrap, StrangersThatKeepKnockingDoNotHideThatARankGaveUp) {
  Meeting meeting(2);
  meeting.timeout = 20s;
  FaultOs broken;
  broken.fail("connect_abstract", Status(Cause::kSystem, "no way to rank 0"));
  meeting.os = {&Os::real(), &broken};
  std::atomic<bool> over{false};
  std::thread stranger([&] {
    while (!over) {
      if (meeting.store().contains("topocoll/test/1/table").value()) intrude(meeting.store(), 1);
    }
  });
  const TimePoint start = Clock::now();
  const Results results = meeting.run();
  over = true;
  stranger.join();
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_NE(results[0]->status().text().find("no way to rank 0"), std::string::npos)
      << results[0]->status().to_string();
}

TEST(Bootstrap, AFakeTableIsNotBelieved) {
  for (const char* table : {"", "socket=x\nsecret=zz\ntoken=00\n", "nonsense\n\n=\n"}) {
    const auto store = make_memory_store();
    ASSERT_TRUE(store->set("topocoll/test/1/table", table).ok());
    Meeting meeting(2, store);
    meeting.absent = {0};
    meeting.timeout = 500ms;
    expect_failed(meeting.run(), Cause::kVersion, {"table cannot be read"});
  }
}

}  // namespace
}  // namespace topocoll
