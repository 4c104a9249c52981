#include "topocoll/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "probe/cache.h"
#include "probe/measure.h"
#include "support/cpus.h"
#include "support/fault_os.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using testing::FaultOs;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::two_cpus;
namespace fs = std::filesystem;

/// Tests have a cache of their own, and no variable of the user's.
class Probe : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/topocoll_probe_" + std::to_string(::getpid());
    fs::remove_all(directory_);
    ::setenv("TOPOCOLL_CACHE_DIR", directory_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TOPOCOLL_CACHE_DIR");
    fs::remove_all(directory_);
  }
  /// What these tests keep says nothing of GPUs, so that a probe measures those anew.
  static bool has_gpus() { return !discover_topology().value().of_kind(NodeKind::kGpu).empty(); }
  std::string directory_;
};

int measurements(const Topology& t, const std::string& kind) {
  return static_cast<int>(std::count_if(t.edges.begin(), t.edges.end(), [&](const TopologyEdge& e) {
    return e.kind == kind && (e.bandwidth_gbps.measured || e.latency_ns.measured);
  }));
}

TEST_F(Probe, MeasuresWhatThereIs) {
  std::vector<int> steps;
  ProbeOptions options;
  options.on_progress = [&](int done, int total) {
    EXPECT_LE(done, total);
    EXPECT_TRUE(steps.empty() || steps.back() <= done || done == 0) << "only GPUs begin at 0 again";
    steps.push_back(done);
  };
  const auto t = probe_topology(options);
  ASSERT_TRUE(t.ok()) << t.status().to_string();
  if (two_cpus()[0] != two_cpus()[1] && measurements(*t, "coherence") == 0) {
    EXPECT_THAT(t->notes, Contains(AnyOf(HasSubstr("busy"), HasSubstr("for them were over"))))
        << "what is not there has a reason";
  }
  if (measurements(*t, "memory") == 0) {
    EXPECT_THAT(t->notes, Contains(HasSubstr("not measured")));
  }
  EXPECT_GE(steps.size(), 2u);
  EXPECT_EQ(t->fingerprint(), known_topology().value().fingerprint())
      << "what was measured is no part of the make-up";
  EXPECT_TRUE(topology_from_json(to_json(*t)).ok());
}

TEST_F(Probe, AKeptResultIsKnownAndOneThatHoldsIsUsed) {
  if (has_gpus()) GTEST_SKIP() << "this machine has GPUs";
  Topology machine = known_topology().value();
  const auto cpus = two_cpus();
  if (cpus[0] == cpus[1]) GTEST_SKIP() << "this process may use one CPU only";
  // An interval that holds whatever is measured now.
  const Spread wide{0, 1e12, 1, 9};
  machine.edges.push_back({"cpu:" + std::to_string(cpus[0]),
                           "cpu:" + std::to_string(cpus[1]),
                           "coherence",
                           {{}, 12345.0, wide},
                           {{}, 67890.0, wide}});
  machine.notes = {"somebody else was at work"};
  ASSERT_TRUE(keep(directory_, machine).ok());
  const auto known = known_topology();
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(known->edges.back().latency_ns.measured, 67890.0);
  EXPECT_THAT(known->notes, Contains("when it was measured: somebody else was at work"));
  const auto checked = probe_topology();
  ASSERT_TRUE(checked.ok());
  EXPECT_EQ(checked->edges.back().latency_ns.measured, 67890.0);
  EXPECT_THAT(checked->notes,
              Contains(HasSubstr("measured by an earlier probe, checked now: " + directory_)));
  EXPECT_THAT(checked->notes, Contains("when it was measured: somebody else was at work"));
}

/// What discovery has to say is not said twice.
TEST_F(Probe, OnlyNotesAboutMeasuringAreKept) {
  ASSERT_TRUE(probe_topology({.budget = 1ms}).ok());
  const auto machine = discover_topology();
  ASSERT_TRUE(machine.ok());
  const auto kept = load_kept(directory_, known_topology().value());
  ASSERT_TRUE(kept.ok()) << kept.status().to_string();
  ASSERT_TRUE(kept->has_value());
  EXPECT_THAT((*kept)->topology.notes, Contains(HasSubstr("the 1 ms for them were over")));
  for (const std::string& note : machine->notes) {
    EXPECT_THAT((*kept)->topology.notes, Not(Contains(note)));
  }
}

TEST_F(Probe, AKeptResultThatNoLongerHoldsIsReplaced) {
  if (has_gpus()) GTEST_SKIP() << "this machine has GPUs";
  Topology machine = known_topology().value();
  const auto cpus = two_cpus();
  if (cpus[0] == cpus[1]) GTEST_SKIP() << "this process may use one CPU only";
  const Spread narrow{1e9, 1e9, 1e9, 9};  // flags that take a second
  machine.edges.push_back({"cpu:" + std::to_string(cpus[0]),
                           "cpu:" + std::to_string(cpus[1]),
                           "coherence",
                           {},
                           {{}, 1e9, narrow}});
  ASSERT_TRUE(keep(directory_, machine).ok());
  const auto fresh = probe_topology();
  ASSERT_TRUE(fresh.ok());
  EXPECT_THAT(fresh->notes, Contains(HasSubstr("measured anew: the latency of cpu:")));
  const Topology known = known_topology().value();
  for (const TopologyEdge& e : known.edges) {
    EXPECT_LT(e.latency_ns.measured.value_or(0), 1e9) << "the old result was kept";
  }
}

TEST_F(Probe, AnIncompleteResultIsMeasuredAnewAndReplacesNoFullerOne) {
  ProbeOptions none;
  none.budget = 0ms;
  ASSERT_TRUE(probe_topology(none).ok());
  const auto missing = [&] {
    return load_kept(directory_, known_topology().value()).value()->missing;
  };
  const std::size_t all = missing();
  ASSERT_GT(all, 0u);
  EXPECT_THAT(known_topology().value().notes, Contains(HasSubstr(" lacks " + std::to_string(all))));
  const auto again = probe_topology();
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(again->notes, Contains(AllOf(HasSubstr("measured anew: an earlier probe"),
                                           HasSubstr(" lacks " + std::to_string(all)))));
  EXPECT_THAT(again->notes, Not(Contains(HasSubstr("checked now"))));
  const std::size_t left = missing();
  if (left == all) GTEST_SKIP() << "this machine is too busy to measure anything";
  const auto poor = probe_topology(none);
  ASSERT_TRUE(poor.ok());
  EXPECT_THAT(poor->notes, Contains(HasSubstr("the result is not kept: it lacks " +
                                              std::to_string(all) + " measurement")));
  EXPECT_EQ(missing(), left) << "a poorer result took a fuller one's place";
}

TEST_F(Probe, AKeptResultThatCannotBeCheckedIsMeasuredAnewAndStays) {
  if (has_gpus()) GTEST_SKIP() << "this machine has GPUs";
  Topology machine = known_topology().value();
  machine.edges.push_back(
      {"numa:0", "cpu:" + std::to_string(two_cpus()[0]), "memory", {{}, 5.0}, {}});
  ASSERT_TRUE(keep(directory_, machine).ok());
  ProbeOptions none;
  none.budget = 0ms;
  const auto t = probe_topology(none);
  ASSERT_TRUE(t.ok());
  EXPECT_THAT(t->notes, Contains(AllOf(HasSubstr("measured anew: an earlier probe"),
                                       HasSubstr("could not be checked: "),
                                       HasSubstr("the 0 ms for them were over"))));
  EXPECT_THAT(t->notes, Contains(HasSubstr("the result is not kept: it lacks ")));
  EXPECT_EQ(load_kept(directory_, machine).value()->missing, 0u);
}

TEST_F(Probe, WorksWithoutAUsableCache) {
  std::ofstream(directory_) << "a file";
  const auto t = probe_topology();
  ASSERT_TRUE(t.ok()) << t.status().to_string();
  EXPECT_THAT(t->notes,
              Contains(AllOf(HasSubstr("the result is not kept"), HasSubstr(directory_))));
  ProbeOptions without;
  without.use_cache = false;
  EXPECT_THAT(probe_topology(without)->notes, Not(Contains(HasSubstr("kept"))));
  ::setenv("TOPOCOLL_CACHE_DIR", "relative", 1);
  EXPECT_EQ(probe_topology().status().cause(), Cause::kInvalidArgument);
}

TEST_F(Probe, ABudgetThatIsOverLeavesTheRestOut) {
  ProbeOptions options;
  options.use_cache = false;
  options.budget = 0ms;
  const auto t = probe_topology(options);
  ASSERT_TRUE(t.ok());
  EXPECT_EQ(measurements(*t, "coherence") + measurements(*t, "memory"), 0);
  EXPECT_THAT(t->notes,
              Contains(HasSubstr("measurements were left out: the 0 ms for them were over")));
}

TEST_F(Probe, CpusThatCannotBeHadAreNotes) {
  FaultOs os;
  os.fail("pin_thread", Status(Cause::kSystem, "no"));
  Topology t = synthetic_topology("numa:1 core:2 pu:1").value();
  std::mt19937_64 random(1);
  EXPECT_EQ(measure(os, probe_tasks(t, random), {}, t), 0u) << "another try is as vain";
  EXPECT_EQ(measurements(t, "coherence") + measurements(t, "memory"), 0);
  EXPECT_THAT(t.notes, Contains(HasSubstr("not measured: CPU ")));
}

TEST(Sentinels, AreOneOfEachClassAndAMemory) {
  Topology t = synthetic_topology("pack:2 numa:1 core:2 pu:1").value();
  for (const auto& [a, b] : {std::pair{"cpu:0", "cpu:1"}, {"cpu:2", "cpu:3"}, {"cpu:0", "cpu:2"}}) {
    t.edges.push_back({a, b, "coherence", {}, {{}, 5.0}});
  }
  t.edges.push_back({"numa:0", "package:0", "memory", {{}, 5.0}, {}});
  t.edges.push_back({"numa:0", "cpu:1", "memory", {{}, 5.0}, {}});
  const auto tasks = sentinel_tasks(t, t);
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(std::get<CpuPair>(tasks[0]).near, "numa");
  EXPECT_EQ(std::get<CpuPair>(tasks[1]).near, "host");
  EXPECT_EQ(std::get<MemoryRead>(tasks[2]).cpus, std::vector{1});
}

TEST(Contradict, NeedsBothDistanceAndIntervalsThatAreApart) {
  const Figure a{{}, 100.0, Spread{95, 105, 90, 9}};
  EXPECT_FALSE(contradict(a, {{}, 120.0, Spread{110, 130, 100, 9}})) << "a fifth is noise";
  EXPECT_FALSE(contradict(a, {{}, 200.0, Spread{100, 300, 100, 9}})) << "the intervals overlap";
  EXPECT_TRUE(contradict(a, {{}, 200.0, Spread{190, 210, 180, 9}}));
  EXPECT_TRUE(contradict({{}, 200.0, Spread{190, 210, 180, 9}}, a));
  EXPECT_FALSE(contradict(a, {}));
}

TEST(Contradictions, NameTheFigureOfATransfer) {
  Topology kept;
  kept.edges.push_back({"gpu:a", "gpu:b", "transfer", {}, {}});
  Topology fresh = kept;
  kept.edges[0].figures[kDuplexGbps] = {{}, 100.0, Spread{95, 105, 110, 9}};
  fresh.edges[0].figures[kDuplexGbps] = {{}, 50.0, Spread{45, 55, 60, 9}};
  fresh.edges[0].figures[kLoadsGbps] = {{}, 50.0, Spread{45, 55, 60, 9}};
  EXPECT_THAT(contradictions(kept, fresh),
              ::testing::ElementsAre("duplex_gbps of gpu:a → gpu:b (transfer) was 100 and is 50"));
}

}  // namespace
}  // namespace topocoll
