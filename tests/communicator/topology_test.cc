// Communicator::topology(): one graph for all ranks.
#include "topocoll/probe.h"
#include "topocoll/topology.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include "support/ranks.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::ForkedRanks;
using testing::Report;
using testing::run_ranks;

TEST(JobTopology, IsTheSameOnEveryRankAndThisMachines) {
  for (const int size : {1, 3}) {
    std::mutex mutex;
    std::set<std::string> seen;
    run_ranks(size, [&](Communicator& comm) {
      const auto t = comm.topology();
      ASSERT_TRUE(t.ok()) << t.status().to_string();
      const std::lock_guard lock(mutex);
      seen.insert(to_json(*t));
    });
    ASSERT_EQ(seen.size(), 1u);
    const Topology t = topology_from_json(*seen.begin()).value();
    EXPECT_EQ(t.fingerprint(), known_topology().value().fingerprint());
    EXPECT_EQ(t.find("host")->attributes.at("ranks"), size == 1 ? "0" : "0-2");
  }
}

TEST(JobTopology, OperationsGoOnAfterIt) {
  run_ranks(2, [&](Communicator& comm) {
    ASSERT_TRUE(comm.topology().ok());
    int in = comm.rank() + 1;
    int out = 0;
    ASSERT_TRUE(comm.all_reduce(&in, &out, 1, DataType::kI32, ReduceOp::kSum).ok());
    EXPECT_EQ(out, 3);
  });
}

TEST(JobTopology, ARankWithoutOneIsEveryRanksError) {
  // A cache directory that is no absolute path is an error of its rank.
  TOPOCOLL_FORKS_RANKS();
  ForkedRanks ranks(3, [](Communicator& comm, Report& report) {
    if (comm.rank() == 1) ::setenv("TOPOCOLL_CACHE_DIR", "relative", 1);
    report.note(comm.topology().status());
  });
  ranks.join_all();
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(ranks.report(r).culprit, 1);
    EXPECT_NE(std::string(ranks.report(r).text).find("rank 1 has no topology: TOPOCOLL_CACHE_DIR"),
              std::string::npos)
        << ranks.report(r).text;
  }
}

TEST(JobTopology, ADeathEndsIt) {
  TOPOCOLL_FORKS_RANKS();
  ForkedRanks ranks(3, [](Communicator& comm, Report& report) {
    report.ready = true;
    if (comm.rank() == 2) ::pause();
    report.note(comm.topology().status());
  });
  ASSERT_TRUE(ranks.await_ready());
  ::kill(ranks.pid(2), SIGKILL);
  for (const int r : {0, 1}) {
    ranks.reap(r);
    EXPECT_EQ(ranks.report(r).cause, static_cast<int>(Cause::kPeerDied)) << ranks.report(r).text;
    EXPECT_EQ(ranks.report(r).culprit, 2);
  }
}

}  // namespace
}  // namespace topocoll
