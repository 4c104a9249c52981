#include "probe/gpu_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "probe/cache.h"
#include "probe/gpu_probe.h"
#include "support/gpu_machines.h"
#include "support/simulated_gpus.h"

namespace topocoll {
namespace {

using testing::DeclaredMachine;
using ::testing::ElementsAre;
using testing::FaultOs;
using testing::gpu_id;
using ::testing::IsEmpty;
using testing::SimulatedGpus;

const TopologyEdge* edge(const Topology& t, const std::string& from, const std::string& to,
                         const std::string& kind) {
  for (const TopologyEdge& e : t.edges) {
    if (e.from == from && e.to == to && e.kind == kind) return &e;
  }
  return nullptr;
}
double gbps(const Topology& t, const std::string& from, const std::string& to,
            const std::string& kind) {
  const TopologyEdge* e = edge(t, from, to, kind);
  return e == nullptr ? -1 : e->bandwidth_gbps.measured.value_or(0);
}
double upward(const Topology& t, const std::string& from, const std::string& to) {
  const TopologyEdge* e = edge(t, from, to, "pci");
  return e == nullptr ? -1 : e->upward_gbps.measured.value_or(0);
}
std::vector<std::string> inferred(const Topology& t) {
  std::vector<std::string> ids;
  for (const TopologyNode& node : t.nodes) {
    if (is_inferred(node)) ids.push_back(node.id);
  }
  return ids;
}

class GpuLinks : public ::testing::Test {
 protected:
  GpuLinks() { os_.set_clock(TimePoint{}); }

  Topology measured(Topology t) {
    EXPECT_EQ(measure_gpus(os_, bench_, {}, t), 0U);
    EXPECT_TRUE(topology_from_json(to_json(t)).ok());
    return t;
  }
  /// Two sockets with two switches each, and two GPUs below each switch.
  void build_sockets() {
    const int host = bench_.add_switch(-1, 0, 0);
    for (int socket = 0; socket < 2; ++socket) {
      const int root = bench_.add_switch(host, 40, 40);
      bench_.add_memory(root, socket, 300);
      for (int i = 0; i < 2; ++i) {
        const int port = bench_.add_switch(root, 24, 26);
        for (int gpu = 0; gpu < 2; ++gpu) bench_.add_gpu(port, 25, 27);
      }
    }
  }
  /// What the system says of them: GPUs in this order, two below each bridge.
  static DeclaredMachine declared_sockets(const std::vector<int>& gpus, double uplink = 31.5) {
    DeclaredMachine machine;
    for (int socket = 0; socket < 2; ++socket) {
      const std::string numa = "numa:" + std::to_string(socket);
      machine.numa(socket);
      for (int i = 0; i < 2; ++i) {
        const std::string name = std::to_string(2 * socket + i);
        machine.bridge("root" + name, numa).bridge(name, "bridge:root" + name, uplink);
        for (int k = 0; k < 2; ++k) {
          machine.gpu(gpus[static_cast<std::size_t>(4 * socket + 2 * i + k)], "bridge:" + name,
                      31.5);
        }
      }
    }
    return machine;
  }

  FaultOs os_;
  SimulatedGpus bench_{os_};
};

TEST_F(GpuLinks, ATreeThatIsAsDeclaredGetsFigures) {
  build_sockets();
  const Topology t = measured(declared_sockets({0, 1, 2, 3, 4, 5, 6, 7}).topology());
  EXPECT_THAT(inferred(t), IsEmpty());
  for (int i = 0; i < 4; ++i) {
    const std::string bridge = "bridge:" + std::to_string(i);
    EXPECT_NEAR(gbps(t, "bridge:root" + std::to_string(i), bridge, "pci"), 26, 26 * 0.03);
    EXPECT_NEAR(upward(t, "bridge:root" + std::to_string(i), bridge), 24, 24 * 0.03);
    EXPECT_NEAR(gbps(t, "numa:" + std::to_string(i / 2), "bridge:root" + std::to_string(i), "pci"),
                26, 26 * 0.03)
        << "nothing was declared of the root port";
    for (int k = 0; k < 2; ++k) {
      EXPECT_NEAR(gbps(t, bridge, gpu_id(2 * i + k), "pci"), 26, 0.1) << "the uplink's share";
      EXPECT_NEAR(upward(t, bridge, gpu_id(2 * i + k)), 24, 0.1);
    }
  }
  EXPECT_NEAR(gbps(t, "numa:0", "numa:1", "interconnect"), 40, 0.1);
  EXPECT_NEAR(gbps(t, "numa:1", "numa:0", "interconnect"), 40, 0.1);
  EXPECT_EQ(t.fingerprint(), declared_sockets({0, 1, 2, 3, 4, 5, 6, 7}).topology().fingerprint());
}

TEST_F(GpuLinks, AFlatMachineGetsTheSwitchesThatItHides) {
  build_sockets();
  DeclaredMachine flat;
  flat.numa(0).numa(1);
  for (int g = 0; g < 8; ++g) flat.gpu(g, "host", 31.5);
  const Topology t = measured(flat.topology());
  EXPECT_THAT(inferred(t), ElementsAre("switch:inferred:0", "switch:inferred:1",
                                       "switch:inferred:2", "switch:inferred:3"));
  for (int g = 0; g < 8; ++g) {
    const std::string above = "switch:inferred:" + std::to_string(g / 2);
    EXPECT_NEAR(gbps(t, gpu_id(g), above, "link"), 24, 0.1);
    EXPECT_NEAR(gbps(t, above, gpu_id(g), "link"), 26, 0.1);
    EXPECT_NEAR(gbps(t, above, "host", "link"), 24, 24 * 0.03);
    EXPECT_NEAR(gbps(t, "host", above, "link"), 26, 26 * 0.03);
    EXPECT_NE(edge(t, "host", above, "contains"), nullptr);
    EXPECT_EQ(gbps(t, "host", gpu_id(g), "pci"), 0) << "not this link was measured";
  }
  EXPECT_EQ(t.find("switch:inferred:0")->attributes.at(kInferredFrom), "contention");
  EXPECT_EQ(t.fingerprint(), flat.topology().fingerprint());
}

TEST_F(GpuLinks, CopyEnginesShowTheSameTreeWhereNothingElseRuns) {
  build_sockets();
  bench_.set_engines_only();
  DeclaredMachine flat;
  flat.numa(0).numa(1);
  for (int g = 0; g < 8; ++g) flat.gpu(g, "host", 31.5);
  const Topology t = measured(flat.topology());
  EXPECT_EQ(inferred(t).size(), 5U)
      << "the far socket is one: latency would tell, and is not known";
  EXPECT_NEAR(gbps(t, gpu_id(3), "switch:inferred:1", "link"), 24, 0.1);
  EXPECT_NEAR(gbps(t, "switch:inferred:1", "host", "link"), 24, 24 * 0.03);
  EXPECT_FALSE(edge(t, gpu_id(3), "numa:0", "transfer")->bandwidth_gbps.measured.has_value());
  EXPECT_TRUE(edge(t, gpu_id(0), gpu_id(1), "transfer")->figures.contains(kCopyEngineGbps));
}

TEST_F(GpuLinks, AWrongTreeIsReplacedWhereItIsWrong) {
  build_sockets();
  const Topology t = measured(declared_sockets({0, 2, 1, 3, 4, 5, 6, 7}).topology());
  EXPECT_THAT(inferred(t), ElementsAre("switch:inferred:0", "switch:inferred:1"));
  EXPECT_GT(gbps(t, gpu_id(1), "switch:inferred:0", "link"), 0);
  EXPECT_GT(gbps(t, gpu_id(2), "switch:inferred:1", "link"), 0);
  EXPECT_GT(gbps(t, "numa:0", "switch:inferred:0", "link"), 0);
  EXPECT_EQ(gbps(t, "bridge:0", gpu_id(0), "pci"), 0);
  EXPECT_GT(gbps(t, "bridge:2", gpu_id(4), "pci"), 0);
  EXPECT_GT(gbps(t, "bridge:root2", "bridge:2", "pci"), 0);
}

TEST_F(GpuLinks, GpusOnTheWrongSocketStandByTheMemoryNearThem) {
  build_sockets();
  const Topology t = measured(declared_sockets({0, 4, 2, 3, 1, 5, 6, 7}).topology());
  EXPECT_THAT(inferred(t), ElementsAre("switch:inferred:0", "switch:inferred:1"));
  EXPECT_GT(gbps(t, "switch:inferred:0", "numa:0", "link"), 0);
  EXPECT_GT(gbps(t, "switch:inferred:1", "numa:1", "link"), 0);
}

TEST_F(GpuLinks, NestedSwitchesStandBelowEachOther) {
  testing::build_nested_switches(bench_);
  DeclaredMachine flat;
  flat.numa(0);
  for (int g = 0; g < 6; ++g) flat.gpu(g, "host", 31.5);
  const Topology t = measured(flat.topology());
  EXPECT_THAT(inferred(t),
              ElementsAre("switch:inferred:0", "switch:inferred:1", "switch:inferred:2"));
  EXPECT_NEAR(gbps(t, "switch:inferred:0", "host", "link"), 40, 0.1);
  EXPECT_NEAR(gbps(t, "switch:inferred:1", "switch:inferred:0", "link"), 25, 0.1);
  EXPECT_NEAR(gbps(t, "switch:inferred:0", "switch:inferred:2", "link"), 25, 0.1);
  EXPECT_NEAR(gbps(t, gpu_id(3), "switch:inferred:2", "link"), 25, 0.1);
  EXPECT_NEAR(gbps(t, "host", gpu_id(4), "pci"), 25, 0.1) << "this one stands where it is said to";
}

TEST_F(GpuLinks, AWideUplinkThatThreeGpusFillIsASwitchToo) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 500);
  const int wide = bench_.add_switch(host, 60, 60);
  for (int gpu = 0; gpu < 6; ++gpu) bench_.add_gpu(gpu < 4 ? wide : host, 25, 25);
  DeclaredMachine flat;
  flat.numa(0);
  for (int g = 0; g < 6; ++g) flat.gpu(g, "host", 31.5);
  const Topology t = measured(flat.topology());
  EXPECT_THAT(inferred(t), ElementsAre("switch:inferred:0"));
  EXPECT_NEAR(gbps(t, "switch:inferred:0", "host", "link"), 60, 60 * 0.03);
}

TEST_F(GpuLinks, WhatPassesRefutesADeclarationOfLess) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 500);
  for (int gpu = 0; gpu < 3; ++gpu) bench_.add_gpu(host, 25, 25);
  DeclaredMachine vm;  // bridges of a hypervisor
  vm.numa(0).bridge("a", "numa:0", 0.25).bridge("b", "numa:0", 0.25).bridge("c", "bridge:b", 100);
  vm.gpu(0, "bridge:a", 31.5).gpu(1, "bridge:c", 31.5).gpu(2, "bridge:c", 0.25);
  const Topology t = measured(vm.topology());
  EXPECT_THAT(inferred(t), IsEmpty());
  EXPECT_NEAR(gbps(t, "numa:0", "bridge:a", "pci"), 25, 0.1);
  EXPECT_NEAR(gbps(t, "numa:0", "bridge:b", "pci"), 50, 0.1);
  EXPECT_NEAR(upward(t, "numa:0", "bridge:b"), 50, 0.1);
  EXPECT_EQ(gbps(t, "bridge:b", "bridge:c", "pci"), 0) << "nobody has seen what it can carry";
  EXPECT_NEAR(gbps(t, "bridge:c", gpu_id(2), "pci"), 25, 0.1);
}

TEST_F(GpuLinks, PortsAreSplitOverTheirSwitches) {
  const int host = bench_.add_switch(-1, 0, 0);
  for (int g = 0; g < 4; ++g) bench_.add_gpu(host, 50, 50);
  bench_.add_nvswitch(400);
  DeclaredMachine machine;
  machine.nvswitch("a").nvswitch("b");
  for (int g = 0; g < 4; ++g) {
    machine.gpu(g, "host").nvlink(gpu_id(g), "nvswitch:a", 300, 12);
    machine.nvlink(gpu_id(g), "nvswitch:b", 100, 4);
  }
  const Topology t = measured(machine.topology());
  EXPECT_NEAR(gbps(t, gpu_id(1), "nvswitch:a", "nvlink"), 285, 0.1);
  EXPECT_NEAR(gbps(t, "nvswitch:b", gpu_id(1), "nvlink"), 95, 0.1);
  EXPECT_THAT(t.groups, IsEmpty());
}

TEST_F(GpuLinks, DirectLinksGetTheirPairsFiguresAndNoneWithAFault) {
  const int host = bench_.add_switch(-1, 0, 0);
  for (int g = 0; g < 4; ++g) bench_.add_gpu(host, 50, 50);
  DeclaredMachine machine;
  for (int a = 0; a < 4; ++a) machine.gpu(a, "host");
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      bench_.add_direct(a, b, 100), bench_.add_direct(b, a, 100);
      machine.nvlink(gpu_id(a), gpu_id(b), 120, 4);
    }
  }
  bench_.set_fault(0, 1, Mover::kStores, "wrong");
  bench_.set_unsupported(2, 3);
  const Topology t = measured(machine.topology());
  EXPECT_NEAR(gbps(t, gpu_id(0), gpu_id(2), "nvlink"), 95, 0.1);
  EXPECT_GT(edge(t, gpu_id(0), gpu_id(2), "nvlink")->latency_ns.measured.value_or(0), 0);
  EXPECT_EQ(gbps(t, gpu_id(0), gpu_id(1), "nvlink"), 0);
  EXPECT_NEAR(gbps(t, gpu_id(1), gpu_id(0), "nvlink"), 95, 0.1) << "of its class, not of both ways";
  EXPECT_EQ(gbps(t, gpu_id(2), gpu_id(3), "nvlink"), 0);
  EXPECT_THAT(t.groups, IsEmpty());
}

TEST_F(GpuLinks, AMeshWhosePortsAreNarrowerThanItsLinksGetsGroups) {
  GpuConclusions known;
  DeclaredMachine machine;
  for (int a = 0; a < 3; ++a) machine.gpu(a, "host"), known.gpus.push_back(gpu_id(a));
  Topology t = machine.topology();
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) {
      if (a == b) continue;
      t.edges.push_back({gpu_id(a), gpu_id(b), "xgmi", {}, {}});
      TopologyEdge transfer{gpu_id(a), gpu_id(b), "transfer", {{}, 50.0}, {}};
      transfer.figures[kClassGbps].measured = 48;
      t.edges.push_back(transfer);
    }
  }
  known.near = {-1, -1, -1};
  known.ports = {{false, false, 70, 96}, {false, false, 96, 96}, {false, false, 96, 96}};
  for (int times = 0; times < 2; ++times) {
    write_gpu_links(known, t);
    ASSERT_EQ(t.groups.size(), 1U);
    EXPECT_EQ(t.groups[0].id, "measured: out of " + gpu_id(0));
    EXPECT_EQ(t.groups[0].bandwidth_gbps.measured, 70);
    EXPECT_THAT(t.groups[0].members, ElementsAre(EdgeDirection{gpu_id(0), gpu_id(1), "xgmi"},
                                                 EdgeDirection{gpu_id(0), gpu_id(2), "xgmi"}));
  }
  known.ports.clear();
  write_gpu_links(known, t);
  EXPECT_THAT(t.groups, IsEmpty());
}

TEST_F(GpuLinks, AnotherRunReplacesWhatWasInferred) {
  build_sockets();
  DeclaredMachine flat;
  flat.numa(0).numa(1);
  for (int g = 0; g < 8; ++g) flat.gpu(g, "host", 31.5);
  const Topology once = measured(flat.topology());
  EXPECT_EQ(to_json(measured(once)), to_json(once));
  bench_ = SimulatedGpus(os_);
  const int host = bench_.add_switch(-1, 0, 0);
  for (int g = 0; g < 8; ++g) bench_.add_gpu(host, 25, 25);
  bench_.add_memory(host, 0, 500);
  bench_.add_memory(host, 1, 500);
  const Topology other = measured(once);
  EXPECT_THAT(inferred(other), IsEmpty());
  EXPECT_FALSE(std::any_of(other.edges.begin(), other.edges.end(),
                           [](const TopologyEdge& e) { return e.kind == "link"; }));
  EXPECT_NEAR(gbps(other, "host", gpu_id(0), "pci"), 25, 0.1);
}

TEST_F(GpuLinks, AllOfItIsKept) {
  build_sockets();
  DeclaredMachine flat;
  flat.numa(0).numa(1);
  for (int g = 0; g < 8; ++g) flat.gpu(g, "host", 31.5);
  bench_.set_fault(0, 1, Mover::kLoads, "wrong");
  Topology kept = measured(flat.topology());
  kept.groups.push_back({"measured: out of " + gpu_id(0), {{}, 5.0}, {}});
  Topology now = flat.topology();
  for (TopologyNode& node : kept.nodes) {
    if (node.id == gpu_id(0)) {
      node.attributes = {{"link_state", "under load"}, {"idle_link", "2.5 GT/s x16"}};
      node.pci_link.speed_gts = 32;
    }
  }
  for (int times = 0; times < 2; ++times) {
    copy_measurements(kept, now);
    EXPECT_EQ(to_json(now).size(), to_json(kept).size());
    EXPECT_EQ(inferred(now), inferred(kept));
    EXPECT_EQ(now.groups.size(), 1U);
    EXPECT_EQ(now.find(gpu_id(0))->attributes, kept.find(gpu_id(0))->attributes);
    EXPECT_EQ(now.find(gpu_id(0))->pci_link, kept.find(gpu_id(0))->pci_link);
    EXPECT_EQ(edge(now, gpu_id(0), gpu_id(1), "transfer")->fault, "loads: wrong");
    EXPECT_EQ(edge(now, gpu_id(0), gpu_id(2), "transfer")->figures,
              edge(kept, gpu_id(0), gpu_id(2), "transfer")->figures);
    EXPECT_EQ(gbps(now, "numa:0", "numa:1", "interconnect"),
              gbps(kept, "numa:0", "numa:1", "interconnect"));
  }
}

}  // namespace
}  // namespace topocoll
