#include "probe/gpu_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "probe/measure.h"
#include "support/gpu_machines.h"
#include "support/simulated_gpus.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using testing::DeclaredMachine;
using testing::FaultOs;
using testing::gpu_bdf;
using testing::gpu_id;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::SimulatedGpus;

class GpuProbe : public ::testing::Test {
 protected:
  GpuProbe() { os_.set_clock(TimePoint{}); }

  std::size_t measure(Topology& topology, std::uint64_t seed = 1) {
    GpuProbeRequest request;
    request.seed = seed;
    return measure_gpus(os_, bench_, request, topology);
  }
  /// GPUs at an NVSwitch and, with `memory`, at one memory.
  DeclaredMachine nvswitch(int gpus, bool memory = true) {
    DeclaredMachine machine;
    const int host = bench_.add_switch(-1, 0, 0);
    for (int g = 0; g < gpus; ++g) bench_.add_gpu(host, 50, 55);
    bench_.add_nvswitch(400);
    if (memory) bench_.add_memory(host, 0, 1000);
    machine.numa(0).nvswitch("hidden");
    for (int g = 0; g < gpus; ++g) {
      machine.gpu(g, "host", 63).nvlink(gpu_id(g), "nvswitch:hidden", 478, 18);
    }
    return machine;
  }

  FaultOs os_;
  SimulatedGpus bench_{os_};
};

const TopologyEdge* edge(const Topology& t, const std::string& from, const std::string& to,
                         const std::string& kind = "transfer") {
  for (const TopologyEdge& e : t.edges) {
    if (e.from == from && e.to == to && e.kind == kind) return &e;
  }
  return nullptr;
}

double figure(const TopologyEdge* edge, const char* name) {
  if (edge == nullptr || !edge->figures.contains(name)) return -1;
  return edge->figures.at(name).measured.value_or(-1);
}

std::size_t transfers(const Topology& t) {
  return static_cast<std::size_t>(std::count_if(
      t.edges.begin(), t.edges.end(), [](const auto& e) { return e.kind == "transfer"; }));
}

TEST_F(GpuProbe, MeasuresEveryPairAtASwitch) {
  for (const int gpus : {2, 4, 8}) {
    SCOPED_TRACE(gpus);
    bench_ = SimulatedGpus(os_);
    Topology t = nvswitch(gpus).topology();
    const TimePoint start = os_.now();
    EXPECT_EQ(measure(t), 0U);
    EXPECT_LE(os_.now() - start, gpus == 2 ? 2s : 10s);
    EXPECT_THAT(t.notes, IsEmpty());
    EXPECT_EQ(transfers(t), static_cast<std::size_t>(gpus * (gpus - 1) + 2 * gpus));
    for (int a = 0; a < gpus; ++a) {
      for (int b = 0; b < gpus; ++b) {
        if (a == b) continue;
        const TopologyEdge* pair = edge(t, gpu_id(a), gpu_id(b));
        ASSERT_NE(pair, nullptr);
        EXPECT_NEAR(pair->bandwidth_gbps.measured.value_or(0), 380, 0.1);
        EXPECT_NEAR(pair->latency_ns.measured.value_or(0), 900, 0.1);
        EXPECT_NEAR(figure(pair, kLoadsGbps), 360, 0.1);
        EXPECT_NEAR(figure(pair, kCopyEngineGbps), 400, 0.1);
        EXPECT_NEAR(figure(pair, kDuplexGbps), 380, 0.1);
        EXPECT_NEAR(figure(pair, kClassGbps), 380, 0.1);
        EXPECT_NEAR(figure(pair, kLoadedLatencyNs), 2700, 0.1);
        EXPECT_TRUE(pair->fault.empty());
        EXPECT_EQ(pair->bandwidth_gbps.spread->samples, 6);
      }
      const TopologyEdge* up = edge(t, gpu_id(a), "numa:0");
      const TopologyEdge* down = edge(t, "numa:0", gpu_id(a));
      ASSERT_TRUE(up != nullptr && down != nullptr);
      EXPECT_NEAR(up->bandwidth_gbps.measured.value_or(0), 50, 0.1);
      EXPECT_NEAR(down->bandwidth_gbps.measured.value_or(0), 55, 0.1);
      EXPECT_NEAR(figure(up, kCopyEngineGbps), 50, 0.1);
      EXPECT_NEAR(figure(down, kDuplexGbps), 55, 0.1);
      EXPECT_TRUE(down->latency_ns.measured.has_value());
      EXPECT_FALSE(up->latency_ns.measured.has_value()) << "stores wait for nobody";
      for (const auto& [from, to] :
           {std::pair<std::string, std::string>(gpu_id(a), "nvswitch:hidden"),
            {"nvswitch:hidden", gpu_id(a)}}) {
        const TopologyEdge* link = edge(t, from, to, "nvlink");
        EXPECT_NEAR(link->bandwidth_gbps.measured.value_or(0), 380, 0.1);
        EXPECT_EQ(link->bandwidth_gbps.declared, 478);
        EXPECT_NEAR(link->latency_ns.measured.value_or(0), 450, 0.1);
      }
      const TopologyEdge* tree = edge(t, "host", gpu_id(a), "pci");
      EXPECT_NEAR(tree->bandwidth_gbps.measured.value_or(0), 55, 0.1);
      EXPECT_NEAR(tree->upward_gbps.measured.value_or(0), 50, 0.1);
    }
    EXPECT_TRUE(t.of_kind(NodeKind::kSwitch).empty()) << "nothing is shared";
  }
}

TEST_F(GpuProbe, SameSeedSameBytesAndAgainTheSame) {
  const Topology declared = nvswitch(4).topology();
  const auto run = [&](std::uint64_t seed, Topology t) {
    bench_.set_noise(0.02, seed);
    EXPECT_EQ(measure(t, seed), 0U);
    return t;
  };
  const Topology once = run(1, declared);
  EXPECT_EQ(to_json(run(1, declared)), to_json(once));
  Topology again = run(1, once);
  again.notes = once.notes;
  EXPECT_EQ(to_json(again), to_json(once)) << "what was there before is replaced";
  EXPECT_NE(to_json(run(2, declared)), to_json(once));
  EXPECT_EQ(once.fingerprint(), declared.fingerprint());
}

TEST_F(GpuProbe, AWayThatChangesDataGetsAFaultAndNoFigure) {
  Topology t = nvswitch(4).topology();
  bench_.set_fault(1, 2, Mover::kStores, "3 of 262144 words differ");
  bench_.set_fault(1, 2, Mover::kCopyEngine, "all words are 0");
  EXPECT_EQ(measure(t), 0U);
  const TopologyEdge* pair = edge(t, gpu_id(1), gpu_id(2));
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(pair->fault, "stores: 3 of 262144 words differ; copy engine: all words are 0");
  EXPECT_FALSE(pair->bandwidth_gbps.measured || pair->latency_ns.measured);
  EXPECT_THAT(pair->figures, IsEmpty());
  const TopologyEdge* back = edge(t, gpu_id(2), gpu_id(1));
  EXPECT_TRUE(back->bandwidth_gbps.measured.has_value());
  EXPECT_TRUE(back->fault.empty());
  EXPECT_EQ(figure(back, kDuplexGbps), -1) << "flags and data would go the bad way too";
  EXPECT_FALSE(back->latency_ns.measured.has_value());
  EXPECT_GT(figure(back, kClassGbps), 0);
}

TEST_F(GpuProbe, AWayThatIsNotThereIsANoteAndNotMissing) {
  Topology t = nvswitch(3).topology();
  bench_.set_unsupported(0, 1);
  EXPECT_EQ(measure(t), 0U);
  EXPECT_EQ(edge(t, gpu_id(0), gpu_id(1)), nullptr);
  EXPECT_NE(edge(t, gpu_id(1), gpu_id(0)), nullptr);
  EXPECT_THAT(t.notes, ::testing::ElementsAre(
                           "not measured: peer access is not supported between the two (" +
                           gpu_id(0) + " → " + gpu_id(1) + ", stores and 2 more)"));
}

TEST_F(GpuProbe, OneSlowPairIsSlowAlone) {
  Topology t = nvswitch(4).topology();
  bench_.narrow(3, 0, 100);
  EXPECT_EQ(measure(t), 0U);
  EXPECT_NEAR(edge(t, gpu_id(3), gpu_id(0))->bandwidth_gbps.measured.value_or(0), 95, 0.1);
  EXPECT_NEAR(edge(t, gpu_id(0), gpu_id(3))->bandwidth_gbps.measured.value_or(0), 380, 0.1);
  EXPECT_NEAR(figure(edge(t, gpu_id(3), gpu_id(0)), kClassGbps), 95, 0.1);
  EXPECT_NEAR(edge(t, gpu_id(3), "nvswitch:hidden", "nvlink")->bandwidth_gbps.measured.value_or(0),
              380, 0.1)
      << "of three pairs one is slow";
}

TEST_F(GpuProbe, OneGpuAndNoGpu) {
  Topology t = nvswitch(1).topology();
  EXPECT_EQ(measure(t), 0U);
  EXPECT_EQ(transfers(t), 2U);
  bench_ = SimulatedGpus(os_);
  Topology none = DeclaredMachine().topology();
  EXPECT_EQ(measure(none), 0U);
  EXPECT_EQ(transfers(none), 0U);
  EXPECT_EQ(bench_.calls(), 0);
}

TEST_F(GpuProbe, WithoutMemoryOnlyPairsAreMeasured) {
  Topology t = nvswitch(3, false).topology();
  EXPECT_EQ(measure(t), 0U);
  EXPECT_EQ(transfers(t), 6U);
  EXPECT_THAT(t.notes, Contains("not measured between GPUs and memory: no NUMA node takes part"));
  bench_ = SimulatedGpus(os_);
  Topology other = nvswitch(2).topology();
  other.nodes[1].os_index = 7;
  EXPECT_EQ(measure(other), 0U);
  EXPECT_EQ(transfers(other), 2U);
  EXPECT_THAT(other.notes,
              Contains("not measured between GPUs and memory: NUMA node 0 is not in the topology"));
  EXPECT_GT(edge(other, gpu_id(0), "nvswitch:hidden", "nvlink")->bandwidth_gbps.measured, 0);
}

TEST_F(GpuProbe, GpusAreFoundByAddressOfAnyWidthElseByUuid) {
  Topology t = nvswitch(3).topology();
  for (TopologyNode& node : t.nodes) {
    if (node.id == gpu_id(0)) node.bdf = "00000000:01:00.0";
    if (node.id == gpu_id(1)) node.bdf = "", node.uuid = "GPU-1";
    if (node.id == gpu_id(2)) node.bdf = "";
  }
  EXPECT_EQ(measure(t), 0U);
  EXPECT_NE(edge(t, gpu_id(0), gpu_id(1)), nullptr);
  EXPECT_EQ(edge(t, gpu_id(0), gpu_id(2)), nullptr);
  EXPECT_THAT(t.notes,
              Contains("not measured: the GPU at " + gpu_bdf(2) + " is not in the topology"));
}

TEST_F(GpuProbe, ABudgetThatIsOverLeavesTheRestOut) {
  const Topology declared = nvswitch(4).topology();
  Topology t = declared;
  GpuProbeRequest request;
  request.budget = 0ms;
  const std::size_t all = measure_gpus(os_, bench_, request, t);
  EXPECT_GT(all, 60U);
  EXPECT_EQ(bench_.calls(), 0);
  EXPECT_THAT(t.notes, Contains(AllOf(HasSubstr(" measurements of GPUs were left out: "),
                                      HasSubstr("the 0 ms for them were over"))));
  std::size_t before = all + 1;
  for (const auto budget : {50ms, 250ms, 700ms, 1300ms, 1500ms, 2500ms, 10000ms}) {
    t = declared;
    request.budget = budget;
    const std::size_t missing = measure_gpus(os_, bench_, request, t);
    EXPECT_LE(missing, before) << budget.count();
    before = missing;
  }
  EXPECT_EQ(before, 0U);
}

TEST_F(GpuProbe, ProgressCountsUpToTheEnd) {
  Topology t = nvswitch(2).topology();
  std::vector<std::pair<int, int>> steps;
  GpuProbeRequest request;
  request.on_progress = [&](int done, int total) { steps.emplace_back(done, total); };
  int looks = 0;
  request.under_load = [&] { ++looks; };
  measure_gpus(os_, bench_, request, t);
  EXPECT_EQ(looks, 1);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(steps.front().first, 0);
  EXPECT_EQ(steps.back().first, steps.back().second);
}

TEST_F(GpuProbe, ABenchThatFailsEndsItAtAnyCall) {
  const Topology declared = nvswitch(2).topology();
  Topology whole = declared;
  measure(whole);
  const int all = bench_.calls();
  for (int call = 1; call <= all; ++call) {
    SCOPED_TRACE(call);
    bench_ = SimulatedGpus(os_);
    nvswitch(2);
    bench_.fail_from(call, Status(Cause::kSystem, "the driver is gone"));
    Topology t = declared;
    EXPECT_GT(measure(t), 0U);
    EXPECT_EQ(bench_.calls(), call) << "nothing is asked of it any more";
    EXPECT_THAT(t.notes, Contains(HasSubstr("not measured: the driver is gone (")));
    EXPECT_TRUE(topology_from_json(to_json(t)).ok());
  }
}

TEST_F(GpuProbe, ShortMemoryIsMissingAndDoesNotEndIt) {
  Topology t = nvswitch(2).topology();
  bench_.fail_from(2, Status(Cause::kResource, "no memory"));
  EXPECT_GT(measure(t), 10U);
  EXPECT_THAT(t.notes, Contains(AllOf(HasSubstr("no memory"), HasSubstr(" more)"))));
}

TEST_F(GpuProbe, AMachineThatChangesMeanwhileIsANote) {
  Topology t = nvswitch(2).topology();
  measure(t);
  const int all = bench_.calls();
  bench_ = SimulatedGpus(os_);
  t = nvswitch(2).topology();
  bench_.drift_from(all / 2, 0.5);
  EXPECT_EQ(measure(t), 0U);
  EXPECT_THAT(t.notes, Contains(HasSubstr("the machine changed while its GPUs were measured: " +
                                          gpu_id(0) + " → ")));
}

TEST_F(GpuProbe, SentinelsTellAnotherMachine) {
  for (const int gpus : {1, 4, 5}) {
    SCOPED_TRACE(gpus);
    bench_ = SimulatedGpus(os_);
    const Topology declared = nvswitch(gpus).topology();
    Topology kept = declared;
    measure(kept);
    Topology fresh = declared;
    const TimePoint start = os_.now();
    EXPECT_EQ(measure_gpu_sentinels(os_, bench_, 3, kept, fresh), 0U);
    EXPECT_LT(os_.now() - start, 1s);
    EXPECT_EQ(transfers(fresh), static_cast<std::size_t>(gpus / 2 * 2 + 1));
    EXPECT_THAT(contradictions(kept, fresh), IsEmpty());
    bench_.drift_from(0, 0.5);
    fresh = declared;
    measure_gpu_sentinels(os_, bench_, 3, kept, fresh);
    EXPECT_EQ(contradictions(kept, fresh).size(), static_cast<std::size_t>(gpus / 2 * 2 + 1));
  }
}

/// Without a compiler of kernels copies are all that is kept.
TEST_F(GpuProbe, SentinelsCopyWhereNothingElseIsKept) {
  const Topology declared = nvswitch(4).topology();
  bench_.set_engines_only();
  Topology kept = declared;
  measure(kept);
  Topology fresh = declared;
  EXPECT_EQ(measure_gpu_sentinels(os_, bench_, 3, kept, fresh), 0U);
  EXPECT_EQ(transfers(fresh), 5U);
  EXPECT_THAT(contradictions(kept, fresh), IsEmpty());
  bench_.drift_from(0, 0.5);
  fresh = declared;
  measure_gpu_sentinels(os_, bench_, 3, kept, fresh);
  EXPECT_EQ(contradictions(kept, fresh).size(), 5U);
}

/// As CUDA_VISIBLE_DEVICES, full memory or a missing driver may leave it.
TEST_F(GpuProbe, TellsWhichGpusAnEarlierProbeCouldNotUse) {
  Topology kept = nvswitch(3).topology();
  EXPECT_THAT(unmeasured_gpus(bench_, kept),
              ::testing::ElementsAre(gpu_id(0), gpu_id(1), gpu_id(2)));
  measure(kept);
  EXPECT_THAT(unmeasured_gpus(bench_, kept), IsEmpty());
  std::erase_if(kept.edges, [](const TopologyEdge& e) {
    return e.kind == "transfer" && (e.from == gpu_id(1) || e.to == gpu_id(1));
  });
  EXPECT_THAT(unmeasured_gpus(bench_, kept), ::testing::ElementsAre(gpu_id(1)));
  std::erase_if(kept.nodes, [](const TopologyNode& n) { return n.id == gpu_id(1); });
  EXPECT_THAT(unmeasured_gpus(bench_, kept), IsEmpty()) << "what the tree has not is not measured";
}

TEST_F(GpuProbe, SentinelsSeeDataThatArrivesWrongNow) {
  const Topology declared = nvswitch(2).topology();
  Topology kept = declared;
  measure(kept);
  bench_.set_fault(0, 1, Mover::kLoads, "1 of 8 words differs");
  Topology fresh = declared;
  EXPECT_EQ(measure_gpu_sentinels(os_, bench_, 1, kept, fresh), 0U);
  EXPECT_THAT(contradictions(kept, fresh),
              ::testing::ElementsAre(gpu_id(0) + " → " + gpu_id(1) +
                                     " (transfer) has a new fault: loads: 1 of 8 words differs"));
}

TEST_F(GpuProbe, SentinelsLeaveOutWhatIsNotKept) {
  Topology declared = nvswitch(2).topology();
  Topology kept = declared;
  bench_.set_fault(0, 1, Mover::kStores, "wrong");
  measure(kept);
  Topology fresh = declared;
  EXPECT_EQ(measure_gpu_sentinels(os_, bench_, 1, kept, fresh), 0U);
  EXPECT_EQ(edge(fresh, gpu_id(0), gpu_id(1)), nullptr);
  EXPECT_NE(edge(fresh, gpu_id(1), gpu_id(0)), nullptr);
  fresh = declared;
  EXPECT_EQ(measure_gpu_sentinels(os_, bench_, 1, declared, fresh), 0U);
  EXPECT_EQ(transfers(fresh), 0U);
  bench_.fail_from(0, Status(Cause::kTimeout, "stuck"));
  EXPECT_GT(measure_gpu_sentinels(os_, bench_, 1, kept, fresh), 0U);
  EXPECT_THAT(fresh.notes, Contains(HasSubstr("stuck")));
}

}  // namespace
}  // namespace topocoll
