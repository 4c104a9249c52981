// Queued work, groups, messages, several communicators at once, commit modes.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <numeric>

#include "support/ranks.h"
#include "support/sanitized.h"

namespace topocoll {
namespace {

using testing::join;
using testing::run_ranks;
using namespace std::chrono_literals;

Operation sum(const float* in, float* out, std::size_t count) {
  Operation op;
  op.kind = CollectiveKind::kAllReduce;
  op.type = DataType::kF32;
  op.in = in;
  op.out = out;
  op.count = count;
  return op;
}

Operation message(CollectiveKind kind, int* data, std::size_t count, int peer, int tag) {
  Operation op;
  op.kind = kind;
  op.type = DataType::kI32;
  if (kind == CollectiveKind::kSend) {
    op.in = data;
  } else {
    op.out = data;
  }
  op.count = count;
  op.peer = peer;
  op.tag = tag;
  return op;
}

TEST(Queue, WorksEndInOrderAndMixWithBlockingCalls) {
  run_ranks(3, [](Communicator& comm) {
    constexpr int kWorks = 50;
    std::vector<std::vector<float>> in(kWorks), out(kWorks);
    std::vector<std::shared_ptr<Work>> works;
    std::atomic<int> called{0};
    for (int i = 0; i < kWorks; ++i) {
      const auto k = static_cast<std::size_t>(i);
      in[k].assign(static_cast<std::size_t>(1 + i * 400), static_cast<float>(i));
      out[k].resize(in[k].size());
      works.push_back(comm.enqueue(sum(in[k].data(), out[k].data(), in[k].size())));
      works.back()->on_done([&](const Status& s) {
        EXPECT_TRUE(s.ok());
        ++called;
      });
      if (i % 7 == 0) {
        EXPECT_TRUE(comm.barrier().ok());  // comes after everything that was queued
      }
    }
    for (int i = 0; i < kWorks; ++i) {
      const auto k = static_cast<std::size_t>(i);
      EXPECT_TRUE(works[k]->wait().ok());
      EXPECT_TRUE(works[k]->done());
      EXPECT_EQ(out[k].back(), static_cast<float>(3 * i));
    }
    EXPECT_EQ(called, kWorks);
  });
}

TEST(Queue, AWaitThatTimesOutLeavesTheOperationRunning) {
  run_ranks(2, [](Communicator& comm) {
    float in = 1, out = 0;
    if (comm.rank() == 0) {
      auto work = comm.enqueue(sum(&in, &out, 1));
      EXPECT_EQ(work->wait(20ms).cause(), Cause::kTimeout);
      EXPECT_FALSE(work->done());
      int go = 1;
      EXPECT_TRUE(comm.send(&go, 1, DataType::kI32, 1).ok());
      EXPECT_TRUE(work->wait().ok());
    } else {
      int go = 0;
      EXPECT_TRUE(comm.recv(&go, 1, DataType::kI32, 0).ok());
      EXPECT_TRUE(comm.all_reduce(&in, &out, 1, DataType::kF32, ReduceOp::kSum).ok());
    }
    EXPECT_EQ(out, 2.0f);
  });
}

TEST(Queue, AGroupOfMessagesMayBeInAnyOrder) {
  run_ranks(4, [](Communicator& comm) {
    const int me = comm.rank();
    const std::size_t count = 200'000;  // far beyond a channel's buffer
    std::vector<std::vector<int>> out(4, std::vector<int>(count)), in(4, std::vector<int>(count));
    std::vector<Operation> group;
    for (int peer = 3; peer >= 0; --peer) {
      auto& data = out[static_cast<std::size_t>(peer)];
      std::iota(data.begin(), data.end(), me * 1000 + peer);
      if (me % 2 == 0) group.push_back(message(CollectiveKind::kSend, data.data(), count, peer, 5));
      group.push_back(message(CollectiveKind::kRecv, in[static_cast<std::size_t>(peer)].data(), count, peer, 5));
      if (me % 2 == 1) group.push_back(message(CollectiveKind::kSend, data.data(), count, peer, 5));
    }
    ASSERT_TRUE(comm.enqueue(group)->wait().ok());
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(in[static_cast<std::size_t>(peer)].front(), peer * 1000 + me);
      EXPECT_EQ(in[static_cast<std::size_t>(peer)].back(), peer * 1000 + me + static_cast<int>(count) - 1);
    }
  });
}

TEST(Message, TagsAnySourceAndCounts) {
  run_ranks(3, [](Communicator& comm) {
    if (comm.rank() != 0) {
      for (int tag : {1, 2, 3}) {
        const int value = comm.rank() * 10 + tag;
        EXPECT_TRUE(comm.send(&value, 1, DataType::kI32, 0, tag).ok());
      }
      return;
    }
    int got[8] = {};
    for (int tag : {3, 1}) {
      auto r = comm.recv(got, 8, DataType::kI32, 2, tag);
      ASSERT_TRUE(r.ok()) << r.status().to_string();
      EXPECT_EQ(r->count, 1u);
      EXPECT_EQ(got[0], 20 + tag);
    }
    int seen = 0;
    for (int i = 0; i < 4; ++i) {
      auto r = comm.recv(got, 8, DataType::kI32, kAnySource, kAnyTag);
      ASSERT_TRUE(r.ok()) << r.status().to_string();
      EXPECT_EQ(got[0], r->source * 10 + r->tag);
      seen += got[0];
    }
    EXPECT_EQ(seen, 11 + 12 + 13 + 22);
  });
}

TEST(Message, TooLargeOrOfAnotherTypeIsTheReceiversError) {
  run_ranks(2, [](Communicator& comm) {
    int data[4] = {1, 2, 3, 4};
    if (comm.rank() == 0) {
      EXPECT_TRUE(comm.send(data, 4, DataType::kI32, 1, 1).ok());
      EXPECT_TRUE(comm.send(data, 1, DataType::kI32, 1, 2).ok());
      EXPECT_TRUE(comm.send(data, 1, DataType::kI32, 1, 3).ok());
    } else {
      EXPECT_EQ(comm.recv(data, 2, DataType::kI32, 0, 1).status().cause(), Cause::kMismatch);
      EXPECT_EQ(comm.recv(data, 1, DataType::kF32, 0, 2).status().cause(), Cause::kMismatch);
      EXPECT_TRUE(comm.recv(data, 1, DataType::kI32, 0, 3).ok());
    }
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST(Message, ADepartedSendersMessagesStillArrive) {
  TOPOCOLL_FORKS_RANKS();
  testing::ForkedRanks ranks(2, [](Communicator& comm, testing::Report& report) {
    std::vector<int> data(100'000, 7);
    if (comm.rank() == 0) {
      // Sent without waiting; leaving must deliver it.
      static_cast<void>(comm.enqueue(message(CollectiveKind::kSend, data.data(), data.size(), 1, 0)));
      report.ready = true;
      EXPECT_TRUE(comm.shutdown().ok());
      return;
    }
    auto r = comm.recv(data.data(), data.size(), DataType::kI32, 0);
    report.note(r.status());
    report.operations = r.ok() && data.back() == 7;
    // There is nothing more to come.
    report.culprit = comm.recv(data.data(), 1, DataType::kI32, 0).status().culprit();
  });
  ranks.reap(1);
  EXPECT_EQ(ranks.report(1).operations, 1u) << ranks.report(1).text;
  EXPECT_EQ(ranks.report(1).culprit, 0);
}

TEST(Message, AReceiveThatTimesOutHarmsNobody) {
  run_ranks(2, [](Communicator& comm) {
    int data = 5;
    if (comm.rank() == 0) {
      Operation op = message(CollectiveKind::kRecv, &data, 1, 1, 9);
      op.timeout = 60ms;
      const Status s = comm.run(op);
      EXPECT_EQ(s.cause(), Cause::kTimeout) << s.to_string();
      EXPECT_EQ(s.culprit(), 1);
    }
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST(Groups, SeveralAtOnceFromSeveralThreads) {
  constexpr int kRanks = 3;
  constexpr int kGroups = 4;
  auto store = make_memory_store();
  std::vector<std::thread> threads;
  for (int g = 0; g < kGroups; ++g) {
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, g, r] {
        auto comm = join(r, kRanks, store, "group " + std::to_string(g));
        ASSERT_NE(comm, nullptr);
        for (int i = 0; i < 200; ++i) {
          float in = static_cast<float>(g + i), out = 0;
          ASSERT_TRUE(comm->all_reduce(&in, &out, 1, DataType::kF32, ReduceOp::kSum).ok());
          ASSERT_EQ(out, kRanks * in);
        }
      });
    }
  }
  for (std::thread& t : threads) t.join();
}

TEST(Groups, ANameMayBeUsedAgainOnTheSameStore) {
  auto store = make_memory_store();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        auto comm = join(r, 2, store, "again");
        ASSERT_NE(comm, nullptr);
        EXPECT_TRUE(comm->barrier().ok());
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

TEST(Groups, AsManyRanksAsAHostMayHold) {
  static constexpr int kRanks = testing::kSanitized ? 32 : kMaxRanksPerHost;
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const auto needed = static_cast<rlim_t>(kRanks * 8);  // all of them in this process
  if (files.rlim_cur < needed) GTEST_SKIP() << "ulimit -n is less than " << needed;
  run_ranks(kRanks, [](Communicator& comm) {
    ASSERT_EQ(comm.size(), kRanks);
    const std::int64_t sum = std::int64_t(kRanks) * (kRanks - 1) / 2;  // of all ranks' numbers
    for (const std::size_t count :
         {std::size_t(1), (std::size_t(1) << 20) / sizeof(std::int64_t)}) {
      std::vector<std::int64_t> in(count), out(count);
      for (std::size_t i = 0; i < count; ++i)
        in[i] = comm.rank() + static_cast<std::int64_t>(i) * 3;
      const Status s =
          comm.all_reduce(in.data(), out.data(), count, DataType::kI64, ReduceOp::kSum);
      ASSERT_TRUE(s.ok()) << s.to_string();
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(out[i], sum + static_cast<std::int64_t>(i) * 3 * kRanks) << i;
    }
    for (const std::size_t count : {1, 300}) {  // in slots; through the ring
      std::vector<std::int32_t> in(count * kRanks), out(count * kRanks);
      const auto block = [&](int from, int to) { return (from * kRanks + to) * 1000; };
      for (std::size_t i = 0; i < in.size(); ++i) {
        in[i] = block(comm.rank(), static_cast<int>(i / count)) + static_cast<int>(i % count);
      }
      const Status s = comm.all_to_all(in.data(), out.data(), count, DataType::kI32);
      ASSERT_TRUE(s.ok()) << s.to_string();
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i],
                  block(static_cast<int>(i / count), comm.rank()) + static_cast<int>(i % count))
            << i;
      }
    }
  });
}

TEST(Commit, ChainedOperationsAreProvedByTheNextOrByCommit) {
  run_ranks(2, [](Communicator& comm) {
    EXPECT_TRUE(comm.barrier().ok());
    EXPECT_TRUE(comm.barrier().ok());
    EXPECT_GE(comm.committed(), 1u);  // the second announcement proved the first
    EXPECT_TRUE(comm.commit().ok());
    EXPECT_EQ(comm.committed(), 2u);
  }, CommitMode::kChained);
}

TEST(Commit, StrictOperationsAreProvedWhenTheyReturn) {
  run_ranks(3, [](Communicator& comm) {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      EXPECT_TRUE(comm.barrier().ok());
      EXPECT_GE(comm.committed(), i);
    }
  });
}

TEST(Shutdown, IsIdempotentAndRefusesLaterCalls) {
  run_ranks(2, [](Communicator& comm) {
    EXPECT_TRUE(comm.barrier().ok());
    EXPECT_TRUE(comm.shutdown().ok());
    EXPECT_TRUE(comm.shutdown().ok());
    EXPECT_EQ(comm.barrier().cause(), Cause::kInvalidArgument);
    float x = 0;
    EXPECT_EQ(comm.enqueue(sum(&x, &x, 1))->wait().cause(), Cause::kInvalidArgument);
  });
}

TEST(Create, RefusesWhatCannotWork) {
  CommunicatorOptions o;
  o.size = 0;
  EXPECT_EQ(Communicator::create(o).status().cause(), Cause::kInvalidArgument);
  o.size = 2;
  o.rank = 2;
  EXPECT_EQ(Communicator::create(o).status().cause(), Cause::kInvalidArgument);
  o.rank = 0;
  EXPECT_EQ(Communicator::create(o).status().cause(), Cause::kInvalidArgument);  // no store
  setenv("TOPOCOLL_COMIT", "strict", 1);
  o.size = 1;
  const Status s = Communicator::create(o).status();
  unsetenv("TOPOCOLL_COMIT");
  EXPECT_EQ(s.cause(), Cause::kInvalidArgument);
  EXPECT_NE(s.text().find("TOPOCOLL_COMMIT"), std::string::npos) << s.text();
}

TEST(Create, ARankAloneHasAWorkingGroup) {
  CommunicatorOptions o;
  auto comm = Communicator::create(o);
  ASSERT_TRUE(comm.ok()) << comm.status().to_string();
  std::vector<float> in(300'000, 2.0f), out(300'000);
  EXPECT_TRUE((*comm)->all_reduce(in.data(), out.data(), in.size(), DataType::kF32, ReduceOp::kAvg).ok());
  EXPECT_EQ(out.back(), 2.0f);
}

}  // namespace
}  // namespace topocoll
