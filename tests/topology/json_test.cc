#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/measured_gpus.h"
#include "topocoll/topology.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;

Topology sample() {
  Topology t = synthetic_topology("pack:2 numa:1 l3:1 core:1 pu:1").value();
  t.host = "node \"7\" \xc3\xa9";
  t.nodes[1].label = "Some CPU";
  t.nodes[1].attributes = {{"CPUVendor", "X"}, {"CPUStepping", "2"}};
  t.edges.push_back({"numa:0", "numa:1", "interconnect", {25.6, 21.300000000000001}, {{}, 131.0}});
  t.edges.back().latency_ns.spread = Spread{130.5, 132.25, 129, 33};
  t.edges.push_back({"numa:1", "numa:0", "interconnect", {{}, {}}, {1e-3, {}}});
  t.notes = {"first", "second\n"};
  return t;
}

bool equal(const Figure& a, const Figure& b) {
  return a.declared == b.declared && a.measured == b.measured;
}

void expect_equal(const Topology& a, const Topology& b) {
  EXPECT_EQ(a.host, b.host);
  EXPECT_EQ(a.notes, b.notes);
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    const TopologyNode& x = a.nodes[i];
    const TopologyNode& y = b.nodes[i];
    EXPECT_TRUE(x.id == y.id && x.kind == y.kind && x.label == y.label && x.level == y.level)
        << x.id;
    EXPECT_TRUE(x.os_index == y.os_index && x.size_bytes == y.size_bytes) << x.id;
    EXPECT_EQ(x.cpus, y.cpus);
    EXPECT_EQ(x.attributes, y.attributes);
  }
  ASSERT_EQ(a.edges.size(), b.edges.size());
  for (std::size_t i = 0; i < a.edges.size(); ++i) {
    const TopologyEdge& x = a.edges[i];
    const TopologyEdge& y = b.edges[i];
    EXPECT_TRUE(x.from == y.from && x.to == y.to && x.kind == y.kind) << i;
    EXPECT_TRUE(equal(x.bandwidth_gbps, y.bandwidth_gbps)) << i;
    EXPECT_TRUE(equal(x.latency_ns, y.latency_ns)) << i;
  }
}

TEST(TopologyJson, RoundTripKeepsEverything) {
  const std::vector<Topology> all = {sample(), Topology(), discover_topology().value(),
                                     synthetic_topology("pack:8 numa:4 l3:4 core:16 pu:2").value()};
  for (const Topology& t : all) {
    const std::string text = to_json(t);
    const auto back = topology_from_json(text);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    expect_equal(*back, t);
    EXPECT_EQ(to_json(*back), text);
    EXPECT_EQ(back->fingerprint(), t.fingerprint());
  }
}

TEST(TopologyJson, TheTextIsAsPublished) {
  Topology t;
  t.host = "h";
  t.nodes.push_back({"numa:0", NodeKind::kNumaNode, "", 0, 1024, {}, {0, 1}, {{"a", "b"}}});
  t.nodes.push_back({"l2:0", NodeKind::kCache, "x", {}, {}, 2, {}, {}});
  t.edges.push_back({"numa:0", "l2:0", "contains", {204.8, {}}, {{}, 90.5}});
  t.notes = {"n"};
  EXPECT_EQ(to_json(t), R"({
"topocoll_topology": 1,
"host": "h",
"nodes": [
  {"id": "numa:0", "kind": "numa", "os_index": 0, "size_bytes": 1024, "cpus": [0, 1], "attributes": {"a": "b"}},
  {"id": "l2:0", "kind": "cache", "label": "x", "level": 2, "cpus": []}],
"edges": [
  {"from": "numa:0", "to": "l2:0", "kind": "contains", "bandwidth_gbps": {"declared": 204.8}, "latency_ns": {"measured": 90.5}}],
"notes": [
  "n"]
}
)");
}

TEST(TopologyJson, SpreadsBelongToWhatWasMeasured) {
  const auto error = [](const std::string& figure) {
    return topology_from_json(R"({"topocoll_topology": 1, "host": "h", "nodes": [
{"id": "a", "kind": "cpu", "cpus": [0]}, {"id": "b", "kind": "cpu", "cpus": [1]}], "notes": [],
"edges": [{"from": "a", "to": "b", "kind": "coherence", "latency_ns": )" +
                              figure + "}]}")
        .status()
        .text();
  };
  const std::string spread = R"("spread": {"low": 4, "high": 6, "best": 3, "samples": 9}})";
  EXPECT_EQ(error(R"({"measured": 5, )" + spread), "");
  EXPECT_EQ(
      error(R"({"declared": 5, )" + spread),
      "topology: edges[0].latency_ns.spread: belongs to a measured figure, and there is none");
  EXPECT_EQ(error(R"({"measured": 7, )" + spread),
            "topology: edges[0].latency_ns.spread: 4 to 6 does not hold the measured 7");
  EXPECT_THAT(error(R"({"measured": 5, "spread": {"low": 4, "high": 6, "best": 3}})"),
              HasSubstr("spread.samples: is missing"));
  EXPECT_THAT(error(R"({"measured": 5, "spread": {"low": 4, "high": 6, "best": 3, "samples": 0}})"),
              HasSubstr("spread.samples: expected an integer from 1"));
}

TEST(TopologyJson, TransfersKeepTheirFiguresAndFaults) {
  Topology t = testing::measured_gpus();
  TopologyEdge& bad = testing::transfer_between(t, testing::gpu_id(0), testing::gpu_id(1));
  bad.fault = "stores: 3 of 4096 words differ";
  bad.figures["later_ns"] = {};  // nothing is known of it
  const std::string text = to_json(t);
  EXPECT_THAT(text, HasSubstr(R"("figures": {"class_gbps": {"measured": 35, "spread": )"));
  EXPECT_THAT(text, HasSubstr(R"(, "fault": "stores: 3 of 4096 words differ"})"));
  auto back = topology_from_json(text);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(to_json(*back), text);
  TopologyEdge& read = testing::transfer_between(*back, testing::gpu_id(0), testing::gpu_id(1));
  EXPECT_EQ(read.fault, bad.fault);
  bad.figures.erase("later_ns");
  EXPECT_EQ(read.figures, bad.figures);
}

TEST(TopologyJson, OnlyTransfersHaveFiguresAndFaultsAndTheirNamesEndInAUnit) {
  const auto error = [](const std::string& kind, const std::string& members) {
    return topology_from_json(R"({"topocoll_topology": 1, "host": "h", "nodes": [
{"id": "a", "kind": "gpu", "cpus": []}, {"id": "b", "kind": "gpu", "cpus": []}], "notes": [],
"edges": [{"from": "a", "to": "b", "kind": ")" +
                              kind + "\", " + members + "}]}")
        .status()
        .text();
  };
  EXPECT_EQ(error("transfer", R"("figures": {"loads_gbps": {"measured": 5}}, "fault": "x")"), "");
  EXPECT_EQ(error("nvlink", R"("figures": {"loads_gbps": {"measured": 5}})"),
            "topology: edges[0].figures: only transfers have them");
  EXPECT_EQ(error("nvlink", R"("fault": "x")"),
            "topology: edges[0].fault: only transfers have one");
  EXPECT_EQ(error("transfer", R"("fault": "")"), "topology: edges[0].fault: is empty");
  // Nor may they be the names of what stands beside them.
  for (const std::string name : {"loads", "loads_mbps", "_gbps", "_ns", "", "gbps", "Loads_ns",
                                 "bandwidth_gbps", "latency_ns", "upward_gbps"}) {
    EXPECT_EQ(
        error("transfer", R"("figures": {")" + name + R"(": {"measured": 5}})"),
        "topology: edges[0].figures: expected a name of a further figure that ends in _gbps or "
        "_ns, found \"" +
            name + "\"");
  }
  const std::string longest = std::string(57, 'a') + "_ns";
  EXPECT_EQ(error("transfer", "\"figures\": {\"" + longest + R"(": {"measured": 5}})"), "");
  EXPECT_THAT(error("transfer", "\"figures\": {\"a" + longest + R"(": {"measured": 5}})"),
              HasSubstr("expected a name of a further figure"));
  EXPECT_THAT(error("transfer", R"("figures": {"loads_gbps": {"guessed": 5}})"),
              HasSubstr("edges[0].figures.loads_gbps: unknown member \"guessed\""));
  std::string many;
  for (int i = 0; i < 33; ++i) {
    many += (i == 0 ? "\"" : ", \"") + std::to_string(i) + "_ns\": {\"measured\": 5}";
  }
  EXPECT_EQ(error("transfer", "\"figures\": {" + many + "}"),
            "topology: edges[0].figures: 33 members, 32 are allowed");
}

TEST(TopologyJson, FiguresThatAreNoNumbersAreUnknown) {
  Topology t = sample();
  t.edges[0].latency_ns.measured = std::numeric_limits<double>::quiet_NaN();
  t.edges[0].bandwidth_gbps.declared = std::numeric_limits<double>::infinity();
  const auto back = topology_from_json(to_json(t));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_FALSE(back->edges[0].latency_ns.measured.has_value());
  EXPECT_FALSE(back->edges[0].bandwidth_gbps.declared.has_value());
}

constexpr char kSmall[] = R"({"topocoll_topology": 1, "host": "h", "nodes": [
{"id": "host", "kind": "host", "cpus": [0, 1]},
{"id": "numa:0", "kind": "numa", "os_index": 0, "size_bytes": 5, "cpus": [0, 1], "attributes": {"a": "b"}},
{"id": "l2:0", "kind": "cache", "label": "x", "level": 2, "cpus": [0]}],
"edges": [{"from": "host", "to": "numa:0", "kind": "contains", "bandwidth_gbps": {"declared": 2.5}},
{"from": "numa:0", "to": "l2:0", "kind": "contains"}], "notes": ["n"]})";

TEST(TopologyJson, EveryFieldIsChecked) {
  ASSERT_TRUE(topology_from_json(kSmall).ok()) << topology_from_json(kSmall).status().to_string();
  struct Case {
    const char* from;
    const char* to;
    const char* error;
  };
  const std::vector<Case> cases = {
      {"\"topocoll_topology\": 1", "\"topocoll_topology\": 7",
       "topology: topocoll_topology: expected 1, found 7"},
      {"\"host\": \"h\"", "\"host\": 3", "topology: host: expected text"},
      {"\"host\": \"h\", ", "", "topology: host: is missing"},
      {"\"notes\": [\"n\"]", "\"notes\": [4]", "notes[0]: expected text"},
      {", \"notes\": [\"n\"]", "", "notes: is missing"},
      {"\"host\": \"h\"", "\"host\": \"h\", \"rack\": 1", "topology: unknown member \"rack\""},
      {"\"id\": \"numa:0\", ", "", "nodes[1].id: is missing"},
      {"\"id\": \"numa:0\"", "\"id\": \"\"", "nodes[1].id: is empty"},
      {"\"id\": \"numa:0\"", "\"id\": \"host\"",
       "nodes[1].id: \"host\" is given to another node too"},
      {"\"kind\": \"numa\"", "\"kind\": \"tpu\"",
       "nodes[1].kind: expected one of host, package, numa, cache, core, cpu, pci_bridge, "
       "pci_device, gpu, nvswitch, switch, nic, nic_port, found \"tpu\""},
      {"\"os_index\": 0", "\"os_index\": -1", "nodes[1].os_index: expected an integer from 0"},
      {"\"os_index\": 0", "\"os_index\": 2147483648",
       "nodes[1].os_index: expected an integer from 0"},
      {"\"size_bytes\": 5", "\"size_bytes\": -5",
       "nodes[1].size_bytes: expected an integer from 0"},
      {"\"size_bytes\": 5", "\"size_bytes\": 5.5",
       "nodes[1].size_bytes: expected an integer from 0"},
      {"\"level\": 2", "\"level\": 0", "nodes[2].level: expected an integer from 1 to 9"},
      {"\"label\": \"x\"", "\"label\": null",
       "nodes[2].label: expected text of at most 4096 bytes, found null"},
      {"\"cpus\": [0]", "\"cpus\": 0", "nodes[2].cpus: expected an array, found 0"},
      {", \"cpus\": [0]", "", "nodes[2].cpus: is missing"},
      {"\"cpus\": [0]", "\"cpus\": [-1]", "nodes[2].cpus[0]: expected an integer from 0"},
      {"\"cpus\": [0]", "\"cpus\": [0, 0]", "nodes[2].cpus[1]: expected an integer from 1"},
      {"\"cpus\": [0]", "\"cpus\": [999999]",
       "nodes[2].cpus[0]: expected an integer from 0 to 65536"},
      {"{\"a\": \"b\"}", "{\"a\": 1}", "nodes[1].attributes.a: expected text"},
      {"{\"a\": \"b\"}", "[]", "nodes[1].attributes: expected an object, found an array"},
      {"{\"a\": \"b\"}", "{\"a\": \"b\", \"a\": \"c\"}", "member \"a\" is given twice"},
      {"\"from\": \"numa:0\"", "\"from\": \"numa:9\"",
       "edges[1].from: there is no node \"numa:9\""},
      {"\"to\": \"numa:0\"", "\"to\": \"gone\"", "edges[0].to: there is no node \"gone\""},
      {"\"to\": \"l2:0\"", "\"to\": \"numa:0\"", "edges[1].to: the edge ends where it begins"},
      {"\"from\": \"numa:0\", \"to\": \"l2:0\"", "\"from\": \"host\", \"to\": \"numa:0\"",
       "edges[1].to: \"numa:0\" is contained in \"host\" already"},
      {"\"kind\": \"contains\"}", "\"kind\": \"wire\"}",
       "edges[1].kind: expected one of contains, pci, nvlink, xgmi, c2c, interconnect, network, "
       "link, coherence, memory, transfer, found \"wire\""},
      {"{\"declared\": 2.5}", "{\"declared\": -1}",
       "edges[0].bandwidth_gbps.declared: expected a number from 0"},
      {"{\"declared\": 2.5}", "{\"declared\": 1e30}",
       "edges[0].bandwidth_gbps.declared: expected a number from 0"},
      {"{\"declared\": 2.5}", "{\"declared\": 1e999}", "not JSON at byte"},
      {"{\"declared\": 2.5}", "{\"guessed\": 2.5}",
       "edges[0].bandwidth_gbps: unknown member \"guessed\""},
      {"{\"declared\": 2.5}", "2.5", "edges[0].bandwidth_gbps: expected an object, found 2.5"},
  };
  for (const Case& c : cases) {
    std::string text = kSmall;
    const std::size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    const auto t = topology_from_json(text.replace(at, std::string(c.from).size(), c.to));
    ASSERT_FALSE(t.ok()) << c.error;
    EXPECT_EQ(t.status().cause(), Cause::kInvalidArgument);
    EXPECT_THAT(t.status().text(), HasSubstr(c.error));
  }
}

TEST(TopologyJson, CyclesAndDoubledLinksAreFound) {
  const auto text = [](const std::string& edges) {
    return topology_from_json(R"({"topocoll_topology": 1, "host": "", "nodes": [
      {"id": "a", "kind": "numa", "cpus": []}, {"id": "b", "kind": "numa", "cpus": []},
      {"id": "c", "kind": "numa", "cpus": []}, {"id": "d", "kind": "numa", "cpus": []}],
      "notes": [], "edges": [)" +
                              edges + "]}")
        .status()
        .text();
  };
  const auto edge = [](const char* from, const char* to, const char* kind = "contains") {
    return std::string("{\"from\": \"") + from + "\", \"to\": \"" + to + "\", \"kind\": \"" + kind +
           "\"}";
  };
  EXPECT_EQ(text(edge("a", "b") + "," + edge("b", "c") + "," + edge("c", "d")), "");
  EXPECT_THAT(
      text(edge("d", "a") + "," + edge("a", "b") + "," + edge("b", "c") + "," + edge("c", "a")),
      HasSubstr("is contained in \"d\" already"));
  EXPECT_THAT(
      text(edge("c", "d") + "," + edge("a", "b") + "," + edge("b", "c") + "," + edge("c", "a")),
      HasSubstr("edges[0]: a cycle: \"c\" contains itself"));
  EXPECT_THAT(text(edge("a", "b") + "," + edge("b", "a")), HasSubstr("edges[0]: a cycle"));
  EXPECT_EQ(text(edge("a", "b", "interconnect") + "," + edge("b", "a", "interconnect")), "");
  EXPECT_THAT(text(edge("a", "b", "interconnect") + "," + edge("a", "b", "interconnect")),
              HasSubstr("edges[1]: is given twice"));
}

TEST(TopologyJson, TreesDeeperThanAnyMachineAreRefused) {
  const auto chain = [](int edges) {
    Topology t;
    t.nodes.emplace_back().id = "0";
    for (int i = 1; i <= edges; ++i) {
      t.nodes.emplace_back().id = std::to_string(i);
      t.edges.push_back({std::to_string(i - 1), std::to_string(i), "contains", {}, {}});
    }
    return topology_from_json(to_json(t));
  };
  EXPECT_TRUE(chain(127).ok()) << chain(127).status().to_string();
  EXPECT_THAT(chain(128).status().text(),
              HasSubstr("edges[127]: \"128\" stands below more than 127 others"));
  EXPECT_FALSE(chain(20'000).ok());
  EXPECT_LT(render_text(*chain(127)).size(), 1U << 20);
}

TEST(TopologyJson, HostileTexts) {
  const auto text = [](const std::string& json) {
    return topology_from_json(json).status().text();
  };
  EXPECT_THAT(text(""), HasSubstr("topology: not JSON at byte"));
  EXPECT_THAT(text("null"), HasSubstr("topology: expected an object, found null"));
  EXPECT_THAT(text(std::string(1000000, '[')), HasSubstr("nested more than 8 deep"));
  EXPECT_THAT(text(std::string((32U << 20) + 1, '[')),
              HasSubstr("33554433 bytes, 33554432 are allowed"));
}

TEST(TopologyJson, TruncationsAreErrors) {
  const std::string text = to_json(sample());
  for (std::size_t n = 0; n + 1 < text.size(); ++n) {
    if (n > 1000 && n % 7 != 0) continue;
    ASSERT_FALSE(topology_from_json(text.substr(0, n)).ok()) << n;
  }
}

TEST(TopologyJson, MutationsNeverCrashAndWhatIsReadIsStable) {
  std::mt19937 random(4);
  const std::string alphabet = "0123456789-,:{}[]\"aeno. \xc3";
  const std::string original = to_json(sample());
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = original;
    for (std::size_t m = 0; m <= random() % 3; ++m) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 4);
          break;
        case 1:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
          break;
        default:
          text[at] = alphabet[random() % alphabet.size()];
      }
    }
    const auto t = topology_from_json(text);
    if (!t.ok()) {
      ASSERT_EQ(t.status().text().substr(0, 10), "topology: ");
      continue;
    }
    ++read;
    ASSERT_FALSE(render_text(*t).empty());
    ASSERT_EQ(to_json(topology_from_json(to_json(*t)).value()), to_json(*t));
  }
  EXPECT_GT(read, 20);
}

}  // namespace
}  // namespace topocoll
