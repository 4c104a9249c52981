// The topology type: look-up, fingerprint, text.
#include "topocoll/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "support/measured_gpus.h"
#include "topocoll/findings.h"
#include "topocoll/topology_formats.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;

Topology machine(const char* description) {
  auto topology = synthetic_topology(description);
  EXPECT_TRUE(topology.ok()) << topology.status().to_string();
  return topology.ok() ? *topology : Topology();
}

TEST(Topology, FindsNodesByIdAndKind) {
  const Topology t = machine("pack:2 numa:1 l3:1 core:4 pu:2");
  ASSERT_NE(t.find("core:2"), nullptr);
  EXPECT_EQ(t.find("core:2")->kind, NodeKind::kCore);
  EXPECT_EQ(t.find("core:1"), nullptr);  // named after its lowest CPU
  EXPECT_EQ(t.find(""), nullptr);
  EXPECT_EQ(t.of_kind(NodeKind::kCore).size(), 8U);
  EXPECT_EQ(t.of_kind(NodeKind::kCpu).size(), 16U);
  EXPECT_EQ(t.of_kind(NodeKind::kHost).size(), 1U);
}

TEST(Topology, FingerprintIsThatOfTheMakeUp) {
  const Topology original = machine("pack:2 numa:1 l3:1 core:4 pu:2");
  const std::string print = original.fingerprint();
  EXPECT_EQ(print.size(), 16U);
  EXPECT_EQ(print.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(machine("pack:2 numa:1 l3:1 core:4 pu:2").fingerprint(), print);

  Topology same = original;
  same.host = "other";
  same.notes.emplace_back("a note");
  same.nodes[0].attributes["OSRelease"] = "7.0";
  same.edges[0].bandwidth_gbps.measured = 12.5;
  same.edges.push_back({"cpu:0", "cpu:1", "coherence", {{}, 10}, {}});
  same.edges.push_back({"numa:0", "cpu:0", "memory", {{}, 10}, {}});
  for (TopologyNode& node : same.nodes) {
    if (node.kind == NodeKind::kNumaNode) *node.size_bytes += 4096;
  }
  std::reverse(same.nodes.begin(), same.nodes.end());
  std::reverse(same.edges.begin(), same.edges.end());
  EXPECT_EQ(same.fingerprint(), print);

  const auto differs = [&](auto change) {
    Topology other = original;
    change(other);
    return other.fingerprint() != print;
  };
  EXPECT_TRUE(differs([](Topology& t) { t.nodes[1].label = "Other CPU"; }));
  EXPECT_TRUE(differs([](Topology& t) { t.nodes[0].cpus.pop_back(); }));
  EXPECT_TRUE(differs([](Topology& t) { t.edges.pop_back(); }));
  EXPECT_TRUE(differs([](Topology& t) {
    for (TopologyNode& node : t.nodes) {
      if (node.kind == NodeKind::kCache) *node.size_bytes *= 2;
    }
  }));
  EXPECT_NE(machine("pack:2 numa:1 l3:1 core:4 pu:1").fingerprint(), print);
  EXPECT_NE(machine("pack:1 numa:2 l3:1 core:4 pu:2").fingerprint(), print);
}

TEST(TopologyText, TwoPackages) {
  EXPECT_EQ(render_text(
                machine("pack:2 numa:1(memory=64GB) l3:1(size=32MB) l2:2(size=512kB) core:1 pu:2")),
            "synthetic  cpus 0-7\n"
            "├─ package 0  cpus 0-3\n"
            "│  └─ NUMA node 0 59.6 GiB · L3 30.5 MiB  cpus 0-3\n"
            "│     ├─ L2 500 KiB · core 0  cpus 0-1\n"
            "│     └─ L2 500 KiB · core 2  cpus 2-3\n"
            "└─ package 1  cpus 4-7\n"
            "   └─ NUMA node 1 59.6 GiB · L3 30.5 MiB  cpus 4-7\n"
            "      ├─ L2 500 KiB · core 4  cpus 4-5\n"
            "      └─ L2 500 KiB · core 6  cpus 6-7\n");
}

TEST(TopologyText, CoresThatLookAlikeShareALine) {
  const std::string text = render_text(machine("pack:1 numa:1 core:96 pu:2"));
  EXPECT_THAT(text, HasSubstr("└─ 96 × core  cpus 0-191, 2 each\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'),
            5);  // host, package, NUMA node, cores, note
}

TEST(TopologyText, FiguresLinksAndNotes) {
  Topology t = machine("pack:1 numa:2 core:1 pu:1");
  for (TopologyEdge& edge : t.edges) {
    if (edge.to == "numa:1") edge.bandwidth_gbps = {204.8, 171.25};
  }
  t.edges.push_back(
      {"numa:0", "numa:1", "interconnect", {{}, 21.5, Spread{21, 22, 23, 9}}, {{}, 130.0}});
  t.nodes.back().cpus.clear();
  t.nodes[t.nodes.size() - 2].cpus.clear();
  t.notes = {"something could not be read"};
  const std::string text = render_text(t);
  EXPECT_THAT(text, HasSubstr("NUMA node 1 1 GiB, 204.8 GB/s declared, 171.2 GB/s measured"));
  EXPECT_THAT(
      text,
      HasSubstr("numa:0 → numa:1  interconnect, 21.5 GB/s measured (21 to 22), 130 ns measured\n"));
  EXPECT_THAT(text, HasSubstr("core 1  no usable CPU\n"));
  EXPECT_THAT(text, HasSubstr("note: something could not be read\n"));
}

TEST(TopologyText, ATransferIsALineWithAllItsFigures) {
  Topology t = testing::measured_gpus();
  TopologyEdge& edge = testing::transfer_between(t, testing::gpu_id(0), testing::gpu_id(1));
  edge.bandwidth_gbps.spread.reset();
  testing::transfer_between(t, testing::gpu_id(0), testing::gpu_id(2)) = {
      testing::gpu_id(0), testing::gpu_id(2), "transfer", {}, {}};
  testing::transfer_between(t, testing::gpu_id(0), testing::gpu_id(2)).fault = "stores: 3 differ";
  const std::string text = render_text(t);
  EXPECT_THAT(
      text,
      HasSubstr(
          "\ngpu:0000:01:00.0 → gpu:0000:02:00.0  stores 50 GB/s, latency 1.1 us "
          "(1.089 to 1.111), all at once 35 GB/s (34.65 to 35.35), copy engine 53 GB/s "
          "(52.47 to 53.53), both ways at once 36 GB/s (35.64 to 36.36), loaded latency 2.5 us "
          "(2.475 to 2.525), loads 33 GB/s (32.67 to 33.33)\n"));
  EXPECT_THAT(text,
              HasSubstr("\ngpu:0000:01:00.0 → gpu:0000:03:00.0  WRONG DATA: stores: 3 differ\n"));
  EXPECT_THAT(text, HasSubstr("\nnuma:0 → gpu:0000:01:00.0  loads 52 GB/s (51.48 to 52.52), "
                              "latency 900 ns (891 to 909), copy engine "));
}

TEST(TopologyText, LargeFiguresHaveNoExponent) {
  Topology t = machine("pack:1 numa:2 core:1 pu:1");
  t.edges.push_back({"numa:0", "numa:1", "a", {12345.6, {}}, {999.4, {}}});
  t.edges.push_back(
      {"numa:0", "numa:1", "b", {}, {{}, 480'300.0, Spread{470'000, 2'500'000, 1, 9}}});
  t.edges.push_back({"numa:0", "numa:1", "c", {}, {1.5e6, 2.25e9}});
  const std::string text = render_text(t);
  EXPECT_THAT(text, HasSubstr("  a, 12346 GB/s declared, 999.4 ns declared\n"));
  EXPECT_THAT(text, HasSubstr("  b, 480.3 us measured (470 to 2500)\n"));
  EXPECT_THAT(text, HasSubstr("  c, 1.5 ms declared, 2.25 s measured\n"));
}

/// Whoever wrote a file does not reach the terminal of whoever looks at it.
TEST(TopologyText, ControlCharactersAreNotPassedOn) {
  const std::string evil = "\x1b]0;title\a\x1b[2J\r\t\x7f";
  Topology t = testing::measured_gpus();
  t.nodes.back().label = t.host = evil;
  t.notes.push_back(evil);
  testing::transfer_between(t, testing::gpu_id(0), testing::gpu_id(1)).fault = evil;
  for (const std::string& text : {render_text(t), *render_matrix(t), render_text(check_topology(t)),
                                  render_text(diff_topologies(t, testing::measured_gpus()))}) {
    EXPECT_THAT(text, HasSubstr("?]0;title??[2J???"));
    EXPECT_EQ(text.find_first_of("\x1b\a\r\t\x7f"), text.npos) << text;
  }
}

TEST(TopologyText, HostsOfANetworkHaveTheirNamesAndSayNothingOfCpus) {
  Topology t;
  t.host = "vm";
  for (const std::string host : {"vm", "other"}) {
    t.nodes.push_back({host + "/host", NodeKind::kHost, host});
    t.nodes.push_back({host + "/port:eth0", NodeKind::kNicPort, "eth0"});
    t.edges.push_back({host + "/host", host + "/port:eth0", "contains", {}, {}});
  }
  const std::string text = render_text(t);
  EXPECT_EQ(text.rfind("vm\n└─ ", 0), 0U) << text;
  EXPECT_THAT(text, HasSubstr("\nother\n└─ "));
}

TEST(TopologyText, GraphsThatAreNoTreesEnd) {
  Topology t;
  for (int i = 0; i < 200; ++i) {
    t.nodes.push_back({"numa:" + std::to_string(i), NodeKind::kNumaNode, "", {}, {}, {}, {}, {}});
    if (i > 0)
      t.edges.push_back(
          {t.nodes[static_cast<std::size_t>(i) - 1].id, t.nodes.back().id, "contains", {}, {}});
  }
  EXPECT_THAT(render_text(t), HasSubstr("deeper levels are left out"));
  t.edges.push_back({"numa:199", "numa:0", "contains", {}, {}});
  t.edges.push_back({"numa:5", "nowhere", "contains", {}, {}});
  EXPECT_EQ(render_text(t), "");
  EXPECT_EQ(render_text(Topology()), "");
}

}  // namespace
}  // namespace topocoll
