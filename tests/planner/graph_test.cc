#include "planner/graph.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "planner/graphs.h"

namespace topocoll {
namespace {

using testing::fixture_names;
using ::testing::HasSubstr;
using testing::load_fixture;

TEST(Rational, IsExactAndInLowestTerms) {
  EXPECT_EQ(Rational::make(2400, 14)->to_string(), "1200/7");
  EXPECT_EQ(Rational::make(6, -4)->to_string(), "-3/2");
  EXPECT_EQ(Rational::from_decimal(12.5)->to_string(), "25/2");
  EXPECT_EQ(Rational::from_decimal(0.1)->to_string(), "1/10");
  EXPECT_EQ(Rational::from_decimal(300)->to_string(), "300");
  EXPECT_EQ(Rational::from_decimal(1e-6)->to_string(), "1/1000000");
  EXPECT_EQ(*Rational::parse("-3/6"), *Rational::make(-1, 2));
  EXPECT_LT(*Rational::make(1, 3), *Rational::make(334, 1000));
  EXPECT_EQ(Rational::make(2, 3)->plus(*Rational::make(1, 6))->to_string(), "5/6");
  EXPECT_EQ(Rational::make(2, 3)->times(*Rational::make(3, 4))->to_string(), "1/2");
  EXPECT_EQ(Rational::make(2, 3)->over(*Rational::make(4, 3))->to_string(), "1/2");
}

TEST(Rational, RefusesWhatDoesNotFit) {
  constexpr std::int64_t kBig = std::numeric_limits<std::int64_t>::max();
  EXPECT_FALSE(Rational::make(1, 0));
  EXPECT_FALSE(Rational(kBig).plus(Rational(1)));
  EXPECT_FALSE(Rational(kBig).times(Rational(2)));
  EXPECT_FALSE(Rational(1).over(Rational()));
  for (const double bad : {std::nan(""), HUGE_VAL, 1e30, 1e-40}) {
    EXPECT_FALSE(Rational::from_decimal(bad)) << bad;
  }
  for (const char* bad : {"", "/", "1/", "1/0", "x", "1/2/3", " 1"}) {
    EXPECT_FALSE(Rational::parse(bad)) << bad;
  }
}

TEST(Rational, SimplestFractionIsTheOneThatWasPrinted) {
  EXPECT_EQ(Rational::simplest(15.753846153846155)->to_string(), "1024/65");
  EXPECT_EQ(Rational::simplest(63.01538461538462)->to_string(), "4096/65");
  EXPECT_EQ(Rational::simplest(12.5)->to_string(), "25/2");
  EXPECT_EQ(Rational::simplest(1e-6)->to_string(), "1/1000000");
  for (const double value : {3.14159265358979, 0.001234567891, 999999.123456789}) {
    const auto near = Rational::simplest(value);
    ASSERT_TRUE(near) << value;
    EXPECT_NEAR(near->to_double() / value, 1, 1e-9) << value;
  }
  for (const double bad : {0.0, -1.0, 1e30, 1e-30, HUGE_VAL, std::nan("")}) {
    EXPECT_FALSE(Rational::simplest(bad)) << bad;
  }
}

TEST(Rational, QuantisationStaysWithinHalfAPercent) {
  for (double v = 0.00123; v < 1e5; v *= 1.0137) {
    EXPECT_NEAR(quantised(v) / v, 1, 0.00501) << v;
    EXPECT_EQ(quantised(quantised(v)), quantised(v)) << v;
  }
  EXPECT_EQ(quantised(43.47), 43.4);
  EXPECT_EQ(quantised(245.3), 246);
  EXPECT_EQ(quantised(9.99), 10);
}

TEST(Graph, ReadsEveryFixture) {
  for (const std::string& name : fixture_names()) {
    const auto [graph, expect] = load_fixture(name);
    EXPECT_EQ(graph.ranks(), expect["n"]) << name;
  }
  const Graph dgx = load_fixture("dgx1v_8xV100").graph;
  EXPECT_EQ(dgx.unit, Rational(25));
  EXPECT_EQ(dgx.links[0].capacity, 1);
  const Graph ndv2 = load_fixture("ndv2_x2_relay").graph;
  EXPECT_EQ(ndv2.unit, *Rational::make(25, 2));
}

TEST(Graph, MeasuredBandwidthsAreQuantised) {
  GraphDescription d;
  d.nodes = {{"a", true, "nodes[0]"}, {"b", true, "nodes[1]"}};
  d.links = {{"a", "b", 43.472913, true, std::nullopt, "edges[0]"},
             {"b", "a", 43.4, false, std::nullopt, "edges[1]"}};
  const Result<Graph> graph = make_graph(d, "two");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->links[0].capacity, graph->links[1].capacity);
  EXPECT_EQ(graph->unit, *Rational::make(217, 5));
}

TEST(Graph, FindsTheUnitOfBandwidthsThatHaveNoneAsDecimals) {
  GraphDescription d;
  d.nodes = {{"a", true, "nodes[0]"}, {"b", true, "nodes[1]"}};
  d.links = {{"a", "b", 15.753846153846155, false, std::nullopt, "edges[0]"},
             {"b", "a", 63.01538461538462, false, std::nullopt, "edges[1]"},
             {"a", "b", 12.5, false, std::nullopt, "edges[2]"}};
  const Result<Graph> graph = make_graph(d, "pcie");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->unit, *Rational::make(1, 130));
  EXPECT_EQ(graph->links[0].capacity, 2048);
  EXPECT_EQ(graph->links[1].capacity, 8192);
  EXPECT_EQ(graph->links[2].capacity, 1625);
}

std::string error_of(const std::string& nodes, const std::string& edges,
                     const std::string& more = "") {
  const auto text = fmt::format(R"({{"nodes": [{}], "edges": [{}]{}}})", nodes, edges, more);
  const Result<Graph> graph = graph_from_json(text, "bad.json");
  return graph.ok() ? "accepted" : graph.status().text();
}

constexpr const char* kTwo = R"({"id": "a", "kind": "gpu"}, {"id": "b", "kind": "gpu"})";
constexpr const char* kPair = R"(["a", "b", 5], ["b", "a", 5])";

TEST(Graph, NamesWhatIsWrongWithNodesAndEdges) {
  const std::string two = kTwo;
  EXPECT_EQ(error_of(two, kPair), "accepted");
  EXPECT_THAT(error_of(two, R"(["a", "b", 0])"),
              HasSubstr("bad.json: edges[0][2]: expected a number"));
  EXPECT_THAT(error_of(two, R"(["a", "b", 5], ["b", "a", -1])"), HasSubstr("edges[1][2]"));
  EXPECT_THAT(error_of(two, R"(["a", "b", 1e30])"), HasSubstr("edges[0][2]"));
  EXPECT_THAT(error_of(two, R"(["a", "b", NaN])"), HasSubstr("not JSON at byte"));
  EXPECT_THAT(error_of(two, R"(["a", "b", "5"])"), HasSubstr("edges[0][2]"));
  EXPECT_THAT(error_of(two, R"(["a", "b"])"), HasSubstr("edges[0]: expected [from, to, GB/s]"));
  EXPECT_THAT(error_of(two, R"(["a", "a", 5])"),
              HasSubstr("edges[0]: a link from \"a\" to itself"));
  EXPECT_THAT(error_of(two, R"(["a", "c", 5])"), HasSubstr("edges[0]: no node is called \"c\""));
  EXPECT_THAT(error_of(two + R"(, {"id": "a", "kind": "sw"})", kPair),
              HasSubstr("nodes[2]: node \"a\" was given before, as nodes[0]"));
  EXPECT_THAT(error_of(two, ""), HasSubstr("edges: \"a\" cannot reach \"b\""));
  EXPECT_THAT(error_of(two, R"(["a", "b", 5])"), HasSubstr("edges: \"b\" cannot reach \"a\""));
  EXPECT_THAT(error_of(R"({"id": "a", "kind": "gpu"})", ""),
              HasSubstr("nodes: 1 of them can be ranks"));
  EXPECT_THAT(error_of(R"({"id": "a", "kind": "tpu"})", ""),
              HasSubstr("nodes[0].kind: expected gpu"));
  EXPECT_THAT(error_of(two, R"(["a", "b", 1.23456789012345], ["b", "a", 999999.999999])"),
              HasSubstr("fewer digits"));
  EXPECT_THAT(error_of(two, kPair, R"(, "unit": "furlongs")"), HasSubstr("unit: expected GB/s"));
}

TEST(Graph, NamesWhatIsWrongWithGroupsAndLatencies) {
  const auto shared = [](const std::string& edges, const std::string& gbps) {
    return error_of(
        kTwo, kPair,
        fmt::format(R"(, "shared": [{{"name": "port", "edges": [{}], "gbps": {}}}])", edges, gbps));
  };
  EXPECT_EQ(shared("0, 1", "6"), "accepted");
  EXPECT_THAT(shared("0, 2", "6"), HasSubstr("shared[0]: there is no link 2, only 0 to 1"));
  EXPECT_THAT(shared("0, 0", "6"), HasSubstr("shared[0]: link 0 is named twice"));
  EXPECT_THAT(shared("0", "6"), HasSubstr("shared[0]: 1 links"));
  EXPECT_THAT(shared("0, 1", "11"), HasSubstr("limits nothing"));
  EXPECT_THAT(shared("0, 1", "4"), HasSubstr("link 0 of it alone has 5"));
  EXPECT_THAT(shared("0, 1", "-4"), HasSubstr("shared[0].gbps"));
  EXPECT_EQ(error_of(kTwo, kPair, R"(, "latency_ns": [700, null])"), "accepted");
  EXPECT_THAT(error_of(kTwo, kPair, R"(, "latency_ns": [700])"),
              HasSubstr("1 latencies for 2 edges"));
  EXPECT_THAT(error_of(kTwo, kPair, R"(, "latency_ns": [1, -1])"), HasSubstr("latency_ns[1]"));
}

TEST(Graph, RefusesWhatIsTooLargeOrCutShort) {
  std::string nodes;
  for (int i = 0; i < 10000; ++i)
    nodes += fmt::format("{}{{\"id\":\"g{}\",\"kind\":\"gpu\"}}", i ? "," : "", i);
  EXPECT_THAT(error_of(nodes, ""), HasSubstr("nodes: 10000 ranks, 4096 are allowed"));
  EXPECT_THAT(error_of(kTwo, std::string(10 << 20, ' ')), HasSubstr("bytes, 8388608 are allowed"));
  const std::string whole = testing::fixture_text("dgx1v_8xV100.json");
  for (std::size_t length = 0; length + 2 < whole.size(); length += 97) {
    EXPECT_FALSE(graph_from_json(whole.substr(0, length), "cut").ok()) << length;
  }
}

}  // namespace
}  // namespace topocoll
