// plan_collective() and simulate_plan() on random machines: no plan beats its bound, and none
// wastes what the bound promises. A failure prints the seed.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>
#include <string>

#include "planner/bound.h"
#include "planner/choose.h"
#include "planner/machine.h"
#include "planner/make_topology.h"
#include "planner/routes.h"
#include "support/sanitized.h"
#include "topocoll/planning.h"

namespace topocoll::testing {
namespace {

using Kind = CollectiveKind;

constexpr std::uint64_t kSeeds = kSanitized ? 40 : 1000;
constexpr std::uint64_t kGigabyte = 1'000'000'000;
constexpr double kRounding = 1 + 1e-9;

double simulated_gbps(const Topology& topology, const Plan& plan) {
  const auto predicted = simulate_plan(topology, plan, {kGigabyte});
  EXPECT_TRUE(predicted.ok()) << predicted.status().to_string();
  return predicted.ok() ? predicted->front().algbw_gbps : 0;
}

/// The all_gather that is chosen for a gigabyte, as the sizes from 2^29 bytes on are.
Plan chosen_plan(const Topology& topology) {
  const auto machine = machine_of(topology);
  if (!machine.ok()) return {};
  const Graph& graph = machine->graph;
  const Routes routes(graph);
  const auto candidates = make_candidates(Kind::kAllGather, graph, routes, {0, 4});
  EXPECT_TRUE(candidates.ok()) << candidates.status().to_string();
  if (!candidates.ok()) return {};
  ChooseOptions options;
  options.min_bytes = options.max_bytes = std::bit_floor(kGigabyte);
  const auto table = choose(candidates->plans, graph, routes, CostModel::declared(), options);
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return table.ok() ? table->bands.back().plan : Plan();
}

TEST(RandomMachines, AllGatherComesCloseToItsBound) {
  std::set<std::string> algorithms;
  std::uint64_t below = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_graph(seed, seed % 2 == 0);
    const Topology topology = topology_of(graph);
    const auto report = plan_collective(topology, {Kind::kAllGather, 0, 4});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->bound, allgather_bound(graph)->algbw.to_string());
    const Status proof = verify(report->plan);
    EXPECT_TRUE(proof.ok()) << proof.to_string();
    EXPECT_LE(report->plan_gbps, report->bound_gbps * kRounding);
    const double gbps = simulated_gbps(topology, report->plan);
    EXPECT_LE(gbps, report->bound_gbps * kRounding);
    algorithms.insert(report->algorithm);
    const Plan chosen = chosen_plan(topology);
    EXPECT_TRUE(verify(chosen).ok()) << verify(chosen).to_string();
    const double of_chosen = simulated_gbps(topology, chosen);
    EXPECT_LE(of_chosen, report->bound_gbps * kRounding);
    EXPECT_GE(of_chosen, 0.9 * report->bound_gbps);
    // Many small chunks cost more than they bring: the choice by size sees that.
    if (gbps < 0.9 * report->bound_gbps) ++below;
  }
  EXPECT_LE(below, kSeeds * 3 / 100);
  EXPECT_TRUE(algorithms.contains("trees"));
  // The few machines that are tried under sanitizers have none on which a ring is as good.
  EXPECT_TRUE(kSanitized || algorithms.contains("rings"));
}

TEST(RandomMachines, NoCollectiveBeatsItsBound) {
  constexpr Kind kKinds[] = {Kind::kAllReduce, Kind::kReduceScatter, Kind::kBroadcast,
                             Kind::kReduce};
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_graph(seed, seed % 2 == 0);
    const Topology topology = topology_of(graph);
    const int root = static_cast<int>(seed) % graph.ranks();
    const auto report = plan_collective(topology, {kKinds[seed % 4], root, 4});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(verify(report->plan).ok());
    EXPECT_LE(report->plan_gbps, report->bound_gbps * kRounding) << name(report->kind);
    EXPECT_LE(simulated_gbps(topology, report->plan), report->bound_gbps * kRounding)
        << name(report->kind);
  }
}

}  // namespace
}  // namespace topocoll::testing
