// Whether a plan belongs to a machine: its fingerprint, its routes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "planner/make_graphs.h"
#include "planner/make_topology.h"
#include "topocoll/planning.h"

namespace topocoll::testing {
namespace {

using ::testing::HasSubstr;

Topology machine(double gbps) { return topology_of(full_mesh(4, gbps)); }

/// Two H200 behind a switch that the driver hides (tests/topology/h200_test.cc): 478 GB/s are
/// declared, and 363.8 pass.
TEST(MachineOf, AProbedMachineIsPlannedOnWhatWasMeasured) {
  std::ifstream file(std::string(TOPOCOLL_TEST_DATA) + "/topologies/h200_vm_2gpu.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto t = topology_from_json(text);
  ASSERT_TRUE(t.ok()) << t.status().to_string();
  const auto report = plan_collective(*t, {CollectiveKind::kAllGather, 0, 4});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->declared_links, 0);
  EXPECT_EQ(report->measured_links, 4);
  EXPECT_NEAR(report->bound_gbps, 2 * 364, 8) << "on a grid of 1 %";
  EXPECT_EQ(report->plan_gbps, report->bound_gbps);
}

TEST(PlanFingerprint, RanksThatAreBoundToCoresSeeTheSameMachine) {
  const auto whole = synthetic_topology("pack:2 numa:1 core:4 pu:2");
  ASSERT_TRUE(whole.ok());
  Topology bound = *whole;
  std::erase_if(bound.nodes,
                [](const TopologyNode& n) { return n.kind == NodeKind::kCpu && *n.os_index > 2; });
  for (TopologyNode& node : bound.nodes) node.cpus = {0, 1, 2};
  ASSERT_NE(bound.fingerprint(), whole->fingerprint());
  EXPECT_EQ(plan_fingerprint(bound), plan_fingerprint(*whole));
  EXPECT_NE(plan_fingerprint(*synthetic_topology("pack:1 numa:2 core:4 pu:2")),
            plan_fingerprint(*whole));
}

TEST(PlanFingerprint, WhatConnectsTheGpusCounts) {
  Topology other = machine(25);
  other.edges.pop_back();
  EXPECT_NE(plan_fingerprint(other), plan_fingerprint(machine(25)));
  EXPECT_EQ(plan_fingerprint(enumerated_otherwise(machine(25), 3)), plan_fingerprint(machine(25)));
}

TEST(MachineOf, InferredSwitchesBelongToTheTreeAndNotToTheFabric) {
  Topology t = machine(25);
  const Plan plain = plan_collective(t, {CollectiveKind::kAllGather, 0, 4})->plan;
  t.nodes.push_back({"host", NodeKind::kHost});
  t.nodes.push_back({"switch:inferred:0", NodeKind::kSwitch});
  t.nodes.back().attributes[kInferredFrom] = "contention";
  for (int i = 0; i < 5; ++i) {  // four GPUs and the host
    const std::string end = t.nodes[static_cast<std::size_t>(i)].id;
    t.edges.push_back({end, "switch:inferred:0", "link", {{}, 250.0}, {}});
    t.edges.push_back({"switch:inferred:0", end, "link", {{}, 250.0}, {}});
  }
  EXPECT_EQ(plan_collective(t, {CollectiveKind::kAllGather, 0, 4})->plan.routes, plain.routes);
}

TEST(PlanFingerprint, WhatWasInferredDoesNotCount) {
  Topology t = machine(25);
  t.nodes.push_back({"numa:0", NodeKind::kNumaNode});
  t.nodes.push_back({"numa:1", NodeKind::kNumaNode});
  const std::string before = plan_fingerprint(t);
  t.nodes.push_back({"switch:inferred:0", NodeKind::kSwitch});
  t.nodes.back().attributes[kInferredFrom] = "contention";
  t.edges.push_back({t.nodes[0].id, "switch:inferred:0", "link", {{}, 25.0}, {}});
  t.edges.push_back({"numa:0", "numa:1", "interconnect", {{}, 25.0}, {}});
  EXPECT_EQ(plan_fingerprint(t), before);
  t.edges.back().bandwidth_gbps.declared = 20;
  EXPECT_NE(plan_fingerprint(t), before) << "a declared link is part of the make-up";
}

TEST(CheckMadeFor, NamesBothMachinesAndTheWayOut) {
  const auto report = plan_collective(machine(25), {CollectiveKind::kAllGather, 0, 4});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->plan.topology_fingerprint, plan_fingerprint(machine(25)));
  EXPECT_TRUE(check_made_for(report->plan, machine(25)).ok());
  Topology other = machine(25);
  other.host = "node7";
  other.nodes[0].label = "another model";
  const Status wrong = check_made_for(report->plan, other);
  EXPECT_EQ(wrong.cause(), Cause::kInvalidArgument);
  for (const std::string& part :
       {report->plan.topology_fingerprint, plan_fingerprint(other), std::string("node7"),
        std::string("topocoll plan make"), std::string("--any-machine")}) {
    EXPECT_THAT(wrong.text(), HasSubstr(part));
  }
  Plan any = report->plan;
  any.topology_fingerprint.clear();
  EXPECT_TRUE(check_made_for(any, other).ok());
}

TEST(CheckFits, LinksMustExistAndSuffice) {
  const auto report = plan_collective(machine(25), {CollectiveKind::kAllGather, 0, 4});
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(check_fits(report->plan, machine(25)).ok());
  // Bandwidths are no part of the fingerprint: what was found to be slower is the same machine.
  EXPECT_THAT(check_fits(report->plan, machine(20)).text(),
              HasSubstr("has 20 GB/s and is to carry 25"));
  Plan any = report->plan;
  any.topology_fingerprint.clear();
  EXPECT_THAT(check_fits(any, topology_of(star(4, 100))).text(), HasSubstr("no link leads from"));
  EXPECT_THAT(check_fits(any, topology_of(full_mesh(5, 25))).text(),
              HasSubstr("4 ranks, but the graph has 5"));
}

}  // namespace
}  // namespace topocoll::testing
