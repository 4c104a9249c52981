#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "topocoll/findings.h"

namespace topocoll {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Hosts a, b, c, … with one port each, and a full mesh that reaches `gbps` both ways.
Topology mesh(int hosts, double gbps) {
  Topology t;
  const auto port = [](int i) { return std::string(1, static_cast<char>('a' + i)) + "/port:eth0"; };
  for (int i = 0; i < hosts; ++i) {
    const std::string host(1, static_cast<char>('a' + i));
    TopologyNode node;
    node.id = host + "/host";
    t.nodes.push_back(node);
    node.id = port(i);
    node.kind = NodeKind::kNicPort;
    node.label = "eth0";
    node.attributes = {{"addresses", "10.0.0." + std::to_string(i) + " fd00::1"},
                       {"speed", "1000"}};
    t.edges.push_back({host + "/host", node.id, "contains", {}, {}});
    t.nodes.push_back(node);
    for (int j = 0; j < i; ++j) {
      t.edges.push_back({port(j), port(i), "network", {{}, gbps}, {}});
      t.edges.push_back({port(i), port(j), "network", {{}, gbps}, {}});
    }
  }
  return t;
}

TopologyEdge& edge(Topology& t, const std::string& from, const std::string& to) {
  for (TopologyEdge& e : t.edges) {
    if (e.from == from && e.to == to) return e;
  }
  ADD_FAILURE() << from << " " << to;
  return t.edges.front();
}

TEST(NetworkFindings, EqualsAreNoFinding) {
  Topology t = mesh(4, 0.1);
  EXPECT_THAT(check_topology(t), IsEmpty());
  edge(t, "a/port:eth0", "b/port:eth0").bandwidth_gbps.measured = 0.085;  // within what varies
  EXPECT_THAT(check_topology(t), IsEmpty());
}

TEST(NetworkFindings, OneSlowPairInAClassOfEquals) {
  Topology t = mesh(4, 0.1);
  edge(t, "b/port:eth0", "a/port:eth0").bandwidth_gbps.measured = 0.02;
  const auto found = check_topology(t);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].code, "network-pair-slow");
  EXPECT_THAT(found[0].nodes, ElementsAre("a/port:eth0", "b/port:eth0"));
  EXPECT_NEAR(*found[0].loss_percent, 80, 0.1);
  EXPECT_THAT(found[0].evidence, HasSubstr("b/port:eth0 → a/port:eth0 0.02 GB/s"));
  EXPECT_THAT(found[0].evidence, HasSubstr("equals reach 0.1 GB/s"));
  EXPECT_THAT(found[0].fix,
              HasSubstr("on a: topocoll topo probe-net --interface eth0 --peer 10.0.0.1;"));
}

TEST(NetworkFindings, ASlowMedianThatMayBeAsFastIsNoFinding) {
  Topology t = mesh(4, 0.1);
  auto& figure = edge(t, "b/port:eth0", "a/port:eth0").bandwidth_gbps;
  figure.measured = 0.07;
  figure.spread = Spread{0.05, 0.11, 0.12, 9};
  EXPECT_THAT(check_topology(t), IsEmpty());
  figure.spread->high = 0.09;
  EXPECT_THAT(check_topology(t), SizeIs(1));
}

TEST(NetworkFindings, APortThatIsSlowWithEverybodyIsToBlame) {
  for (const int hosts : {3, 5}) {
    Topology t = mesh(hosts, 0.1);
    for (TopologyEdge& e : t.edges) {
      if (e.kind == "network" && (e.from[0] == 'c' || e.to[0] == 'c')) {
        e.bandwidth_gbps.measured = 0.03;
      }
    }
    const auto found = check_topology(t);
    ASSERT_THAT(found, SizeIs(1)) << hosts;
    EXPECT_EQ(found[0].code, "network-port-slow");
    EXPECT_THAT(found[0].nodes, ElementsAre("c/port:eth0"));
  }
}

TEST(NetworkFindings, PortsOfOtherSpeedsAreOtherClasses) {
  Topology t = mesh(4, 0.1);
  for (TopologyNode& node : t.nodes) {
    if (node.id == "d/port:eth0") node.attributes["speed"] = "100";
  }
  for (TopologyEdge& e : t.edges) {
    if (e.kind == "network" && (e.from[0] == 'd' || e.to[0] == 'd')) {
      e.bandwidth_gbps.measured = 0.01;
    }
  }
  EXPECT_THAT(check_topology(t), IsEmpty());
}

TEST(NetworkFindings, TwoPairsSayNothingOfEachOther) {
  Topology t = mesh(2, 0.1);
  edge(t, "b/port:eth0", "a/port:eth0").bandwidth_gbps.measured = 0.01;
  EXPECT_THAT(check_topology(t), IsEmpty());
}

TEST(NetworkFindings, AnInterfaceThatReachesNoneOfAHost) {
  Topology t = mesh(2, 0.1);
  t.nodes[1].attributes["unreached b"] = "b/port:eth0 (10.0.0.1 from 10.0.0.0: no answer)";
  const auto found = check_topology(t);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].code, "network-unreachable");
  EXPECT_EQ(found[0].severity, Severity::kError);
  EXPECT_THAT(found[0].nodes, ElementsAre("a/port:eth0", "b/host"));
  EXPECT_EQ(found[0].loss_percent, 100.0);
  EXPECT_THAT(found[0].evidence, HasSubstr("no answer"));
  EXPECT_THAT(found[0].fix, HasSubstr("on a: ping -c 3 -I eth0 10.0.0.1; ip route get 10.0.0.1"));
}

}  // namespace
}  // namespace topocoll
