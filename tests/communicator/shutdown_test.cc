// How a communicator is left: from callbacks, with work in flight, after a failure, by several
// threads at once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <string>

#include "support/ranks.h"

namespace topocoll {
namespace {

using testing::run_ranks;
using namespace std::chrono_literals;

Operation barrier() {
  Operation op;
  op.kind = CollectiveKind::kBarrier;
  return op;
}

Operation receive(int* data, int tag) {
  Operation op;
  op.kind = CollectiveKind::kRecv;
  op.type = DataType::kI32;
  op.out = data;
  op.count = 1;
  op.peer = 1;
  op.tag = tag;
  return op;
}

/// Whether a work ends soon; a wait would progress it, and is not to.
bool ends(const Work& work) {
  return testing::ForkedRanks::await([&] { return work.done(); }, 20s);
}

/// Whether a thread of this process sleeps in the kernel.
bool sleeps(pid_t thread) {
  std::string line;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), line);
  return line.find(") S ") != line.npos;
}

TEST(Callback, OfAMessageMayQueueMore) {
  run_ranks(2, [](Communicator& comm) {
    int first = 0, second = 0;
    if (comm.rank() == 1) {
      const int value = 7;
      EXPECT_TRUE(comm.send(&value, 1, DataType::kI32, 0, 1).ok());
      EXPECT_TRUE(comm.send(&value, 1, DataType::kI32, 0, 2).ok());
      EXPECT_TRUE(comm.barrier().ok());
      return;
    }
    std::promise<std::shared_ptr<Work>> queued;
    comm.enqueue(receive(&first, 1))->on_done([&](const Status& s) {
      EXPECT_TRUE(s.ok());
      queued.set_value(comm.enqueue(receive(&second, 2)));
    });
    auto answer = queued.get_future();
    ASSERT_EQ(answer.wait_for(20s), std::future_status::ready) << "the callback is locked out";
    EXPECT_TRUE(ends(*answer.get()));
    EXPECT_EQ(second, 7);
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST(Callback, OfAMessageMayShutDown) {
  run_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 1) {
      const int value = 7;
      EXPECT_TRUE(comm.send(&value, 1, DataType::kI32, 0, 2).ok());
      return;
    }
    int before = 0, data = 0, after = 0;
    const auto earlier = comm.enqueue(receive(&before, 1));
    const auto work = comm.enqueue(receive(&data, 2));
    const auto later = comm.enqueue(receive(&after, 3));
    std::promise<void> left;
    work->on_done([&](const Status&) {
      EXPECT_TRUE(comm.shutdown().ok());
      left.set_value();
    });
    ASSERT_EQ(left.get_future().wait_for(20s), std::future_status::ready);
    for (const auto& other : {earlier, later}) {
      EXPECT_TRUE(ends(*other));
      EXPECT_FALSE(other->status().ok());
    }
  });
}

TEST(Shutdown, WorksThatNobodyHasComeToEndAsTheGroupDid) {
  run_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.abort("enough");
      return;
    }
    std::promise<void> go;
    const auto first = comm.enqueue(barrier());
    const auto second = comm.enqueue(barrier());
    // Holds the queue's thread until shutdown() has told it to stop.
    first->on_done([&](const Status&) { go.get_future().wait_for(1s); });
    EXPECT_EQ(first->wait().cause(), Cause::kAborted);
    EXPECT_TRUE(comm.shutdown().ok());
    EXPECT_EQ(second->status().to_string(), first->status().to_string());
    EXPECT_NE(second->status().text().find("enough"), std::string::npos);
  });
}

TEST(Shutdown, EndsInItsLimitForThoseThatWaitForTheirTurnToo) {
  std::atomic<bool> over{false};
  run_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {  // comes too late
      EXPECT_TRUE(testing::ForkedRanks::await([&] { return over.load(); }));
      EXPECT_EQ(comm.barrier().cause(), Cause::kAborted);
      return;
    }
    const std::vector<std::shared_ptr<Work>> works{comm.enqueue(barrier()),
                                                   comm.enqueue(barrier())};
    std::atomic<pid_t> thread{0};
    auto committed = std::async(std::launch::async, [&] {
      thread = ::gettid();
      return comm.commit();
    });
    EXPECT_TRUE(testing::ForkedRanks::await([&] { return thread != 0 && sleeps(thread); }));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(comm.shutdown(20ms).ok());
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5s) << "TOPOCOLL_DRAIN_MS is 10 s";
    over = true;
    for (const auto& work : works) EXPECT_EQ(work->status().cause(), Cause::kAborted);
    ASSERT_EQ(committed.wait_for(20s), std::future_status::ready);
    EXPECT_EQ(committed.get().cause(), Cause::kAborted);
  });
}

TEST(Shutdown, WhatAnotherThreadQueuesMeanwhileEnds) {
  for (int round = 0; round < 10; ++round) {
    run_ranks(2, [](Communicator& comm) {
      if (comm.rank() == 1) return;
      // A group so large that shutdown() comes while it is being queued.
      constexpr int kMessages = 20'000;
      std::vector<int> data(kMessages);
      std::vector<Operation> group;
      for (int i = 0; i < kMessages; ++i)
        group.push_back(receive(&data[static_cast<std::size_t>(i)], i));
      group.push_back(barrier());
      std::vector<std::shared_ptr<Work>> works;
      std::atomic<bool> begun{false};
      std::thread other([&] {
        begun = true;
        works.push_back(comm.enqueue(std::move(group)));
        works.push_back(comm.enqueue(barrier()));
      });
      EXPECT_TRUE(testing::ForkedRanks::await([&] { return begun.load(); }));
      EXPECT_TRUE(comm.shutdown(0ms).ok());
      other.join();
      for (const auto& work : works) {
        ASSERT_TRUE(ends(*work));
        EXPECT_FALSE(work->status().ok());
      }
    });
  }
}

}  // namespace
}  // namespace topocoll
