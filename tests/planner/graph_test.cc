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

/// Two ranks with a link each way.
GraphDescription two_ranks() {
  GraphDescription d;
  d.nodes = {{"a", true, "nodes[0]"}, {"b", true, "nodes[1]"}};
  d.links = {{"a", "b", 5, false, std::nullopt, "edges[0]"},
             {"b", "a", 5, false, std::nullopt, "edges[1]"}};
  return d;
}

std::string error_of(const GraphDescription& description) {
  const Result<Graph> graph = make_graph(description, "bad.json");
  return graph.ok() ? "accepted" : graph.status().text();
}

/// What is said of two ranks after `change` of their description.
template <class Change>
std::string error_after(Change change) {
  GraphDescription d = two_ranks();
  change(d);
  return error_of(d);
}

TEST(Graph, NamesWhatIsWrongWithNodesAndEdges) {
  EXPECT_EQ(error_of(two_ranks()), "accepted");
  for (const double gbps : {0.0, -1.0, 1e30, std::nan("")}) {
    EXPECT_THAT(error_after([&](auto& d) { d.links[1].gbps = gbps; }),
                HasSubstr("bad.json: edges[1]: bandwidth"))
        << gbps;
  }
  EXPECT_THAT(error_after([](auto& d) { d.links[0].latency_ns = -1; }),
              HasSubstr("edges[0]: latency -1 ns"));
  EXPECT_THAT(error_after([](auto& d) { d.links[0].to = "a"; }),
              HasSubstr("edges[0]: a link from \"a\" to itself"));
  EXPECT_THAT(error_after([](auto& d) { d.links[0].to = "c"; }),
              HasSubstr("edges[0]: no node is called \"c\""));
  EXPECT_THAT(error_after([](auto& d) {
                d.nodes.push_back({"a", false, "nodes[2]"});
              }),
              HasSubstr("nodes[2]: node \"a\" was given before, as nodes[0]"));
  EXPECT_THAT(error_after([](auto& d) { d.nodes[1].id = ""; }),
              HasSubstr("nodes[1]: the id is empty"));
  EXPECT_THAT(error_after([](auto& d) { d.links.clear(); }),
              HasSubstr("edges: \"a\" cannot reach \"b\""));
  EXPECT_THAT(error_after([](auto& d) { d.links.pop_back(); }),
              HasSubstr("edges: \"b\" cannot reach \"a\""));
  EXPECT_THAT(error_after([](auto& d) { d.nodes[1].is_rank = false; }),
              HasSubstr("nodes: 1 of them can be ranks"));
  EXPECT_THAT(error_after([](auto& d) {
                d.links[0].gbps = 1.23456789012345;
                d.links[1].gbps = 999999.999999;
              }),
              HasSubstr("fewer digits"));
}

TEST(Graph, NamesWhatIsWrongWithGroups) {
  const auto shared = [](std::vector<std::int64_t> links, double gbps) {
    return error_after([&](auto& d) {
      d.groups.push_back({"port", std::move(links), gbps, false, "shared[0]"});
    });
  };
  EXPECT_EQ(shared({0, 1}, 6), "accepted");
  EXPECT_THAT(shared({0, 2}, 6), HasSubstr("shared[0]: there is no link 2, only 0 to 1"));
  EXPECT_THAT(shared({0, 0}, 6), HasSubstr("shared[0]: link 0 is named twice"));
  EXPECT_THAT(shared({0}, 6), HasSubstr("shared[0]: 1 links"));
  EXPECT_THAT(shared({0, 1}, 11), HasSubstr("limits nothing"));
  EXPECT_THAT(shared({0, 1}, 4), HasSubstr("link 0 of it alone has 5"));
  EXPECT_THAT(shared({0, 1}, -4), HasSubstr("shared[0]: bandwidth -4 GB/s"));
}

TEST(Graph, RefusesWhatIsTooLarge) {
  GraphDescription d;
  for (int i = 0; i < 10000; ++i) d.nodes.push_back({fmt::format("g{}", i), true, "node"});
  EXPECT_THAT(error_of(d), HasSubstr("nodes: 10000 ranks, 4096 are allowed"));
  for (auto& node : d.nodes) node.is_rank = false;
  for (int i = 0; i < 10000; ++i) d.nodes.push_back({fmt::format("s{}", i), i < 2, "node"});
  EXPECT_THAT(error_of(d), HasSubstr("nodes: 20000 are given, 16384 are allowed"));
  d = two_ranks();
  d.links.resize(kMaxGraphLinks + 1, d.links[0]);
  EXPECT_THAT(error_of(d), HasSubstr("edges: 131073 are given, 131072 are allowed"));
}

}  // namespace
}  // namespace topocoll
