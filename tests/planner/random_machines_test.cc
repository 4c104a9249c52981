// plan_collective() and simulate_plan() on random machines: no plan beats its bound, and none
// wastes what the bound promises. A failure prints the seed.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "planner/bound.h"
#include "planner/make_topology.h"
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

/// Of an all_gather, with the plan that is chosen for a gigabyte.
double gbps_of_the_choice(const Topology& topology) {
  const auto choices = choose_plans(topology, {Kind::kAllGather, 0, 4}, {});
  EXPECT_TRUE(choices.ok()) << choices.status().to_string();
  for (const PlanChoice& choice : *choices) {
    if (choice.min_bytes <= kGigabyte && kGigabyte <= choice.max_bytes)
      return simulated_gbps(topology, choice.plan);
  }
  return 0;
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
    if (gbps >= 0.9 * report->bound_gbps) continue;
    // Many small chunks cost more than they bring (27 of these 1,000): the choice by size sees
    // that. Links that are shared fairly instead of by the plan's weights still take more than a
    // tenth on 8.
    const double chosen = gbps_of_the_choice(topology);
    EXPECT_GE(chosen, 0.82 * report->bound_gbps);
    if (chosen < 0.9 * report->bound_gbps) ++below;
  }
  EXPECT_LE(below, kSeeds / 100);
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
