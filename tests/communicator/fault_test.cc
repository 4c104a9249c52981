// What survivors see when ranks die, stop, leave, abort, or call different operations.
#include <gtest/gtest.h>

#include <fcntl.h>

#include <random>

#include "support/ranks.h"

namespace topocoll {
namespace {

using testing::ForkedRanks;
using testing::Report;
using namespace std::chrono_literals;

/// Reduces until an error comes; the group's sum is checked at every step.
void reduce_until_error(Communicator& comm, Report& report, std::size_t count) {
  std::vector<float> in(count), out(count);
  for (std::uint64_t i = 0;; ++i) {
    std::fill(in.begin(), in.end(), static_cast<float>(i % 1000));
    const Status s = comm.all_reduce(in.data(), out.data(), count, DataType::kF32, ReduceOp::kSum);
    if (!s.ok()) return report.note(s);
    const float expected = static_cast<float>(i % 1000) * static_cast<float>(comm.size());
    if (out.front() != expected || out.back() != expected) {
      return report.note(Status(Cause::kInternal, "wrong result"));
    }
    ++report.operations;
    report.ready = true;
  }
}

struct KillCase {
  int ranks;
  std::size_t bytes;
  CommitMode mode;
};

class Kill : public ::testing::TestWithParam<KillCase> {};

TEST_P(Kill, SurvivorsAgreeOnTheOperationAndTheCulprit) {
  TOPOCOLL_FORKS_RANKS();
  const KillCase c = GetParam();
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  for (int trial = 0; trial < 6; ++trial) {
    ForkedRanks ranks(c.ranks, [&](Communicator& comm, Report& report) {
      reduce_until_error(comm, report, c.bytes / sizeof(float));
    }, c.mode);
    ASSERT_TRUE(ranks.await_ready());
    const int victim = static_cast<int>(random() % static_cast<unsigned>(c.ranks));
    const std::uint64_t later = ranks.report(0).operations + random() % 200;
    ASSERT_TRUE(ForkedRanks::await([&] { return ranks.report(0).operations >= later; }));
    kill(ranks.pid(victim), SIGKILL);
    ranks.reap(victim);
    std::uint64_t seq = 0;
    std::string text;
    for (int r = 0; r < c.ranks; ++r) {
      if (r == victim) continue;
      const int status = ranks.reap(r);
      Report& report = ranks.report(r);
      EXPECT_TRUE(WIFEXITED(status)) << "rank " << r << " died by signal";
      EXPECT_EQ(report.cause, static_cast<int>(Cause::kPeerDied)) << report.text;
      EXPECT_EQ(report.culprit, victim) << report.text;
      // In strict mode everything that was reported is committed, and nothing else.
      if (c.mode == CommitMode::kStrict) {
        EXPECT_EQ(report.operations + 1, report.seq) << report.text;
      }
      if (seq == 0) {
        seq = report.seq;
        text = report.text;
      }
      EXPECT_EQ(report.seq, seq) << report.text;
      EXPECT_EQ(report.text, text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Kill,
    ::testing::Values(KillCase{2, 8, CommitMode::kStrict}, KillCase{4, 1024, CommitMode::kStrict},
                      KillCase{4, 1024, CommitMode::kChained}, KillCase{4, 1 << 20, CommitMode::kStrict},
                      KillCase{8, 1024, CommitMode::kStrict}, KillCase{3, 8 << 20, CommitMode::kChained}));

TEST(Fault, ADeathIsNoticedByRanksThatSleep) {
  TOPOCOLL_FORKS_RANKS();
  ForkedRanks ranks(3, [](Communicator& comm, Report& report) {
    report.ready = true;
    if (comm.rank() == 2) pause();
    report.note(comm.barrier());
  });
  ASSERT_TRUE(ranks.await_ready());
  // Long enough for the others to have gone from spinning to sleeping.
  std::this_thread::sleep_for(300ms);
  const auto killed = std::chrono::steady_clock::now().time_since_epoch().count();
  kill(ranks.pid(2), SIGKILL);
  for (int r : {0, 1}) {
    ranks.reap(r);
    EXPECT_EQ(ranks.report(r).cause, static_cast<int>(Cause::kPeerDied)) << ranks.report(r).text;
    EXPECT_LT(ranks.report(r).failed_at_ns - killed, (1000ms).count() * 1'000'000);
  }
}

TEST(Fault, AStoppedRankIsNamedAtTheDeadlineAndFailsWhenItWakes) {
  TOPOCOLL_FORKS_RANKS();
  ForkedRanks ranks(3, [](Communicator& comm, Report& report) { reduce_until_error(comm, report, 256); },
                    CommitMode::kStrict, 700ms);
  ASSERT_TRUE(ranks.await_ready());
  kill(ranks.pid(1), SIGSTOP);
  for (int r : {0, 2}) {
    ranks.reap(r);
    EXPECT_EQ(ranks.report(r).cause, static_cast<int>(Cause::kTimeout)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).culprit, 1) << ranks.report(r).text;
  }
  kill(ranks.pid(1), SIGCONT);
  ranks.reap(1);
  EXPECT_EQ(ranks.report(1).cause, static_cast<int>(Cause::kTimeout)) << ranks.report(1).text;
  EXPECT_EQ(ranks.report(1).seq, ranks.report(0).seq);
}

TEST(Fault, ARankThatStopsHalfWayThroughALargeOperationIsNamed) {
  TOPOCOLL_FORKS_RANKS();
  // Wherever the rank stops: before the operation, within its pipeline, or at its end.
  for (int trial = 0; trial < 4; ++trial) {
    ForkedRanks ranks(3, [](Communicator& comm, Report& report) { reduce_until_error(comm, report, 4 << 20); },
                      CommitMode::kStrict, 1500ms);
    ASSERT_TRUE(ranks.await_ready());
    std::this_thread::sleep_for(3ms * trial);
    kill(ranks.pid(1), SIGSTOP);
    for (int r : {0, 2}) {
      ranks.reap(r);
      EXPECT_EQ(ranks.report(r).cause, static_cast<int>(Cause::kTimeout)) << ranks.report(r).text;
      EXPECT_EQ(ranks.report(r).culprit, 1) << ranks.report(r).text;
    }
  }
}

TEST(Fault, ARankThatLeavesIsTheCulprit) {
  testing::run_ranks(3, [](Communicator& comm) {
    EXPECT_TRUE(comm.barrier().ok());
    if (comm.rank() == 2) return;  // its communicator is destroyed
    const Status s = comm.barrier();
    EXPECT_EQ(s.cause(), Cause::kPeerLeft) << s.to_string();
    EXPECT_EQ(s.culprit(), 2);
    EXPECT_EQ(s.seq(), 2u);
  });
}

TEST(Fault, AnAbortReachesEveryRankWithItsReason) {
  testing::run_ranks(3, [](Communicator& comm) {
    EXPECT_TRUE(comm.barrier().ok());
    if (comm.rank() == 1) {
      comm.abort("loss is NaN");
    }
    const Status s = comm.barrier();
    EXPECT_EQ(s.cause(), Cause::kAborted) << s.to_string();
    EXPECT_EQ(s.culprit(), 1);
    EXPECT_NE(s.text().find("loss is NaN"), std::string::npos) << s.text();
    EXPECT_EQ(comm.health().cause(), Cause::kAborted);
  });
}

TEST(Fault, AnAbortWakesAThreadThatWaits) {
  testing::run_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 1) {
      std::vector<std::byte> b(8);
      EXPECT_EQ(comm.recv(b.data(), 8, DataType::kU8, 0).status().cause(), Cause::kAborted);
      return;
    }
    std::thread other([&] { comm.abort("enough"); });
    const Status s = comm.barrier();
    other.join();
    EXPECT_EQ(s.cause(), Cause::kAborted) << s.to_string();
  });
}

struct MismatchCase {
  const char* name;
  std::function<Status(Communicator&)> odd;  ///< what the last rank calls
};

TEST(Fault, DifferentCallsRaiseMismatchOnEveryRankBeforeAnyOutput) {
  static float in[64];
  const std::vector<MismatchCase> cases = {
      {"count", [](Communicator& c) { float o[64]; return c.all_reduce(in, o, 5, DataType::kF32, ReduceOp::kSum); }},
      {"type", [](Communicator& c) { float o[64]; return c.all_reduce(in, o, 4, DataType::kI32, ReduceOp::kSum); }},
      {"op", [](Communicator& c) { float o[64]; return c.all_reduce(in, o, 4, DataType::kF32, ReduceOp::kMax); }},
      {"kind", [](Communicator& c) { float o[64]; return c.broadcast(in, o, 4, DataType::kF32, 0); }},
      {"size", [](Communicator& c) {
         std::vector<float> o(1 << 20);
         return c.all_reduce(o.data(), o.data(), o.size(), DataType::kF32, ReduceOp::kSum);
       }},
      {"barrier", [](Communicator& c) { return c.barrier(); }},
  };
  for (int n : {2, 3, 5}) {
    for (const MismatchCase& odd : cases) {
      SCOPED_TRACE(odd.name);
      testing::run_ranks(n, [&](Communicator& comm) {
        float out[64];
        std::fill(std::begin(out), std::end(out), -7.0f);
        const bool last = comm.rank() == comm.size() - 1;
        const Status s = last ? odd.odd(comm) : comm.all_reduce(in, out, 4, DataType::kF32, ReduceOp::kSum);
        EXPECT_EQ(s.cause(), Cause::kMismatch) << s.to_string();
        EXPECT_EQ(s.culprit(), comm.size() - 1);
        EXPECT_EQ(s.seq(), 1u);
        EXPECT_NE(s.text().find("all_reduce(f32 x 4, sum)"), std::string::npos) << s.text();
        if (!last) {
          EXPECT_EQ(out[0], -7.0f);
        }
      });
    }
  }
}

TEST(Fault, TheRankThatDiffersFromMostIsToBlame) {
  testing::run_ranks(4, [](Communicator& comm) {
    float x[8] = {};
    const std::size_t count = comm.rank() == 0 ? 5 : 4;
    const Status s = comm.all_reduce(x, x, count, DataType::kF32, ReduceOp::kSum);
    EXPECT_EQ(s.cause(), Cause::kMismatch) << s.to_string();
    EXPECT_EQ(s.culprits(), std::vector<int>{0});
    EXPECT_NE(s.text().find("rank 0 called all_reduce(f32 x 5, sum), ranks 1, 2, 3 called all_reduce(f32 x 4, sum)"),
              std::string::npos)
        << s.text();
  });
}

TEST(Fault, WhoseCountsDifferFromThoseOfManyIsToBlame) {
  testing::run_ranks(4, [](Communicator& comm) {
    std::int32_t in[32] = {}, out[32] = {};
    const std::size_t count = comm.rank() == 0 ? 5 : 4;
    const Status s = comm.all_to_all(in, out, count, DataType::kI32);
    EXPECT_EQ(s.cause(), Cause::kMismatch) << s.to_string();
    EXPECT_EQ(s.culprits(), std::vector<int>{0});
    EXPECT_EQ(s.text(),
              "rank 0 called all_to_all(i32 x 5), ranks 1, 2, 3 called all_to_all(i32 x 4)");
  });
  testing::run_ranks(4, [](Communicator& comm) {
    std::int32_t in[32] = {}, out[32] = {};
    std::vector<ConstBlock> to;
    std::vector<Block> from;
    for (int r = 0; r < 4; ++r) {
      to.push_back({in, comm.rank() == 2 && r != 2 ? 1u : 2u});
      from.push_back({out + 4 * r, 2});
    }
    const Status s = comm.all_to_all_v(to, from, DataType::kI32);
    EXPECT_EQ(s.cause(), Cause::kMismatch) << s.to_string();
    EXPECT_EQ(s.culprits(), std::vector<int>{2});
    EXPECT_EQ(s.text(),
              "rank 2 has 1 element for rank 0, which expects 2 (ranks 0, 1, 3 called "
              "all_to_all_v(i32 x 8), "
              "rank 2 called all_to_all_v(i32 x 5))");
  });
}

TEST(Fault, AListOfOneRankAloneIsNamedAsOne) {
  testing::run_ranks(3, [](Communicator& comm) {
    std::int32_t in[4] = {}, out[16] = {};
    std::vector<Block> from = {{out, 1}, {out + 1, 3}, {out + 4, 2}};
    const Status s = comm.rank() == 2 ? comm.all_gather_v({in, 2}, from, DataType::kI32)
                                      : comm.all_gather(in, out, 2, DataType::kI32);
    EXPECT_EQ(s.cause(), Cause::kMismatch) << s.to_string();
    EXPECT_EQ(s.text(),
              "ranks 0, 1 called all_gather(i32 x 2), rank 2 called all_gather_v(i32 x 6)");
  });
}

TEST(Fault, ErrorsOfAPartOfAJobNameTheJobsRanksToo) {
  const auto error_of = [](std::vector<int> job_ranks) {
    auto store = make_memory_store();
    std::vector<Status> ended(2);
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        CommunicatorOptions o;
        o.rank = r;
        o.size = 2;
        o.store = store;
        o.job_ranks = job_ranks;
        auto made = Communicator::create(o);
        if (!made.ok()) {
          ended[static_cast<std::size_t>(r)] = made.status();
        } else {
          if (r == 1) (*made)->abort("enough");
          ended[static_cast<std::size_t>(r)] = (*made)->barrier();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(ended[0].text(), ended[1].text());
    EXPECT_EQ(ended[0].cause(), ended[1].cause());
    return ended[0];
  };
  const std::string plain = "rank 1 aborted: enough";
  EXPECT_EQ(error_of({}).text(), plain);
  EXPECT_EQ(error_of({0, 1}).text(), plain) << "the group is the job";
  const Status part = error_of({4, 7});
  EXPECT_EQ(part.text(), plain + " (rank 1 of this group is rank 7 of the job)");
  EXPECT_EQ(part.culprits(), std::vector<int>{1});
  EXPECT_EQ(error_of({4}).cause(), Cause::kInvalidArgument);
}

TEST(Fault, AForkedChildIsRefusedAndItsParentUnharmed) {
  TOPOCOLL_FORKS_RANKS();
  testing::run_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 0) {
      const pid_t child = fork();
      if (child == 0) {
        const Cause cause = comm.barrier().cause();
        comm.abort("from the child");
        static_cast<void>(comm.shutdown());
        _exit(cause == Cause::kUnsupported ? 0 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST(Fault, BadArgumentsLeaveTheGroupIntact) {
  testing::run_ranks(2, [](Communicator& comm) {
    float x = 1;
    float y = 0;
    if (comm.rank() == 0) {
      EXPECT_EQ(comm.broadcast(&x, &x, 1, DataType::kF32, 2).cause(), Cause::kInvalidArgument);
      EXPECT_EQ(comm.all_reduce(nullptr, &y, 1, DataType::kF32, ReduceOp::kSum).cause(), Cause::kInvalidArgument);
      EXPECT_EQ(comm.all_reduce(&x, &y, 1, DataType::kF32, ReduceOp::kBand).cause(), Cause::kUnsupported);
      EXPECT_EQ(comm.send(&x, 1, DataType::kF32, 7).cause(), Cause::kInvalidArgument);
      EXPECT_EQ(comm.all_reduce(&x, &y, ~std::size_t(0) / 2, DataType::kF32, ReduceOp::kSum).cause(),
                Cause::kInvalidArgument);
    }
    EXPECT_TRUE(comm.all_reduce(&x, &y, 1, DataType::kF32, ReduceOp::kSum).ok());
    EXPECT_EQ(y, 2.0f);
    EXPECT_EQ(comm.sequence(), 1u);
  });
}

TEST(Fault, NothingLeaksFromAGroupThatFailed) {
  const auto open_descriptors = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) != -1;
    return count;
  };
  const int before = open_descriptors();
  for (int i = 0; i < 5; ++i) {
    testing::run_ranks(3, [](Communicator& comm) {
      if (comm.rank() == 0) comm.abort("on purpose");
      static_cast<void>(comm.barrier());
    });
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace topocoll
