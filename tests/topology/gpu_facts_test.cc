#include "topology/gpu_facts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace topocoll {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kFirst = "gpu:0000:01:00.0";
constexpr const char* kSecond = "gpu:0000:02:00.0";

/// Two GPUs as /sys shows them.
Topology machine() {
  Topology t = synthetic_topology("numa:1 core:1 pu:1").value();
  for (const char* bdf : {"0000:01:00.0", "0000:02:00.0"}) {
    TopologyNode gpu;
    gpu.id = std::string("gpu:") + bdf;
    gpu.kind = NodeKind::kGpu;
    gpu.bdf = bdf;
    gpu.attributes["vendor"] = "0x10de";
    t.edges.push_back({"numa:0", gpu.id, "pci", {}, {}});
    t.nodes.push_back(gpu);
  }
  return t;
}

NvmlLink link(int number, const std::string& bdf, const std::string& kind, bool active = true) {
  NvmlLink l;
  l.number = number;
  l.active = active;
  l.remote_bdf = bdf;
  l.remote_kind = kind;
  l.crc_errors = 2;
  return l;
}

NvmlReport report() {
  NvmlReport r;
  for (const char* bdf : {"0000:01:00.0", "0000:02:00.0"}) {
    NvmlDevice gpu;
    gpu.bdf = bdf;
    gpu.uuid = std::string("GPU-") + bdf;
    gpu.name = "H200";
    gpu.link_gbps = 25;
    r.devices.push_back(gpu);
  }
  return r;
}

const TopologyEdge* nvlink(const Topology& t, const std::string& from, const std::string& to) {
  const auto found = std::find_if(t.edges.begin(), t.edges.end(), [&](const TopologyEdge& e) {
    return e.kind == "nvlink" && e.from == from && e.to == to;
  });
  return found == t.edges.end() ? nullptr : &*found;
}

TEST(GpuFacts, NamesAndStatesComeToTheirNodes) {
  Topology t = machine();
  NvmlReport r = report();
  NvmlDevice& gpu = r.devices[1];
  gpu.pcie_generation = 1;
  gpu.max_pcie_generation = 5;
  gpu.max_pcie_width = 16;
  gpu.ecc_uncorrected = 3;
  gpu.throttled_by = {"hw_thermal", "sw_power_cap"};
  r.notes = {"a note"};
  t.nodes.back().pci_link.max_width = 8;
  add_gpu_facts(r, t);
  const TopologyNode& node = *t.find(kSecond);
  EXPECT_EQ(node.uuid, "GPU-0000:02:00.0");
  EXPECT_EQ(node.label, "H200");
  EXPECT_EQ(node.pci_link.speed_gts, 2.5);
  EXPECT_EQ(node.pci_link.max_speed_gts, 32);
  EXPECT_EQ(node.pci_link.max_width, 8) << "what /sys says stays";
  EXPECT_EQ(node.attributes.at("ecc_uncorrected"), "3");
  EXPECT_EQ(node.attributes.at("throttled_by"), "hw_thermal,sw_power_cap");
  EXPECT_FALSE(node.attributes.contains("temperature_c") ||
               node.attributes.contains("nvlinks_down"));
  EXPECT_THAT(t.notes, Contains("a note"));
  EXPECT_TRUE(topology_from_json(to_json(t)).ok());
}

TEST(GpuFacts, LinksBetweenGpusAreCountedInPairs) {
  Topology t = machine();
  NvmlReport r = report();
  for (const int n : {0, 1, 2}) {
    r.devices[0].links.push_back(link(n, "0000:02:00.0", "gpu", n != 2));
    r.devices[1].links.push_back(link(n, "0000:01:00.0", "gpu", n != 2));
  }
  add_gpu_facts(r, t);
  for (const auto& [from, to] : {std::pair{kFirst, kSecond}, {kSecond, kFirst}}) {
    const TopologyEdge* edge = nvlink(t, from, to);
    ASSERT_NE(edge, nullptr);
    EXPECT_EQ(edge->count, 2) << "one is down";
    EXPECT_EQ(edge->bandwidth_gbps.declared, 50);
  }
  EXPECT_EQ(t.find(kFirst)->attributes.at("nvlinks_down"), "1");
  EXPECT_EQ(t.find(kFirst)->attributes.at("nvlink_errors"), "6");
  EXPECT_TRUE(topology_from_json(to_json(t)).ok()) << "no edge is doubled";
}

TEST(GpuFacts, SwitchesThatTheTreeHasNotAreMade) {
  for (const std::string bdf : {"", "0000:c3:00.0"}) {
    Topology t = machine();
    NvmlReport r = report();
    for (NvmlDevice& gpu : r.devices) {
      for (int n = 0; n < 18; ++n) gpu.links.push_back(link(n, bdf, "switch"));
    }
    r.devices[0].link_gbps.reset();
    add_gpu_facts(r, t);
    const std::string id = "nvswitch:" + (bdf.empty() ? "hidden" : bdf);
    ASSERT_EQ(t.of_kind(NodeKind::kNvSwitch).size(), 1u);
    EXPECT_EQ(t.parent(id)->id, "host");
    ASSERT_NE(nvlink(t, id, kSecond), nullptr);
    EXPECT_EQ(nvlink(t, id, kSecond)->count, 18);
    EXPECT_EQ(nvlink(t, kSecond, id)->bandwidth_gbps.declared, 450);
    EXPECT_FALSE(nvlink(t, kFirst, id)->bandwidth_gbps.declared.has_value());
    EXPECT_TRUE(topology_from_json(to_json(t)).ok());
  }
}

/// What a driver may say of a GPU that has fallen off the bus.
TEST(GpuFacts, NonsenseOfTheDriverCanBeSavedAndLoaded) {
  for (const int width : {0, 33, 1'000'000}) {
    Topology t = machine();
    NvmlReport r = report();
    for (NvmlDevice& gpu : r.devices) {
      gpu.pcie_generation = 9;
      gpu.pcie_width = gpu.max_pcie_width = width;
      gpu.links = {link(0, "no address", "switch"), link(1, "0000:c3:00.0 ", "gpu")};
      gpu.links[0].replays = gpu.links[0].recoveries = ~std::uint64_t{0};
    }
    r.devices[1].bdf = "\x01";
    add_gpu_facts(r, t);
    add_busy_links(r, t);
    const TopologyNode& gpu = *t.find(kFirst);
    EXPECT_EQ(gpu.pci_link, PciLink());
    EXPECT_FALSE(gpu.attributes.contains("link_state"));
    EXPECT_EQ(gpu.attributes.at("nvlink_errors"), "18446744073709551615") << "no sum of more";
    EXPECT_NE(nvlink(t, kFirst, "nvswitch:hidden"), nullptr);
    EXPECT_THAT(t.notes, Contains("the driver knows a GPU and not its PCI address"));
    const auto back = topology_from_json(to_json(t));
    EXPECT_TRUE(back.ok()) << back.status().to_string();
  }
}

/// In a time that does not grow with switches times switches.
TEST(GpuFacts, ManySwitchesAreMade) {
  constexpr int kGpus = 400;
  Topology t = machine();
  NvmlReport r;
  for (int g = 0; g < kGpus; ++g) {
    TopologyNode gpu;
    gpu.bdf = fmt::format("1{:03x}:00:00.0", g);
    gpu.id = "gpu:" + gpu.bdf;
    gpu.kind = NodeKind::kGpu;
    t.nodes.push_back(gpu);
    r.devices.emplace_back().bdf = gpu.bdf;
    for (int n = 0; n < 64; ++n) {
      r.devices.back().links.push_back(link(n, fmt::format("2{:03x}:{:02x}:00.0", g, n), "switch"));
    }
  }
  add_gpu_facts(r, t);
  EXPECT_EQ(t.of_kind(NodeKind::kNvSwitch).size(), 64U * kGpus);
}

TEST(GpuFacts, WhatIsNotInTheTreeIsNoted) {
  Topology t = machine();
  NvmlReport r = report();
  r.devices[1].bdf = "0000:99:00.0";
  add_gpu_facts(r, t);
  EXPECT_THAT(t.notes, Contains(HasSubstr("knows a GPU at 0000:99:00.0")));
  EXPECT_EQ(t.find(kFirst)->uuid, "GPU-0000:01:00.0");
}

TEST(GpuFacts, CudaSaysWhatNcclWantsToKnow) {
  Topology t = machine();
  cuda::DeviceFacts first{0, "0000:01:00.0", "GPU-1", 132, 90, true};
  cuda::DeviceFacts elsewhere{1, "0000:09:00.0", "GPU-9", 132, 90, true};
  add_cuda_facts({first, elsewhere}, t);
  EXPECT_EQ(t.find(kFirst)->attributes.at("cuda_sm"), "90");
  EXPECT_EQ(t.find(kFirst)->attributes.at("cuda_gdr"), "1");
  EXPECT_FALSE(t.find(kSecond)->attributes.contains("cuda_sm"));
}

TEST(GpuFacts, LinksThatAreBusyAreSeenAsTheyAreThen) {
  Topology t = machine();
  t.nodes[t.find(kFirst) - t.nodes.data()].pci_link = {2.5, 16, 32, 16};
  NvmlReport busy = report();
  busy.devices[0].pcie_generation = 5;
  busy.devices[0].pcie_width = 8;
  add_busy_links(busy, t);
  const TopologyNode& first = *t.find(kFirst);
  EXPECT_EQ(first.pci_link, (PciLink{32, 8, 32, 16}));
  EXPECT_EQ(first.attributes.at("link_state"), "under load");
  EXPECT_EQ(first.attributes.at("idle_link"), "2.5 GT/s x16");
  // Of the second NVML says nothing.
  EXPECT_FALSE(t.find(kSecond)->attributes.contains("link_state"));
}

TEST(GpuFacts, OnlyNvidiasGpusAreAskedAbout) {
  Topology t = machine();
  EXPECT_TRUE(has_nvidia_gpu(t));
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kGpu) node.attributes["vendor"] = "0x1002";
  }
  EXPECT_FALSE(has_nvidia_gpu(t));
  EXPECT_FALSE(has_nvidia_gpu(Topology()));
}

}  // namespace
}  // namespace topocoll
