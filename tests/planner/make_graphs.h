// Small graphs for tests of rings, simulation and choice.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/graph.h"
#include "planner/graphs.h"

namespace topocoll::testing {

inline std::string rank_name(int r) { return "g" + std::to_string(r); }

class GraphMaker {
 public:
  explicit GraphMaker(int ranks) {
    for (int r = 0; r < ranks; ++r) d_.nodes.push_back({rank_name(r), true, "node"});
  }
  GraphMaker& node(const std::string& id) {
    d_.nodes.push_back({id, false, "node"});
    return *this;
  }
  GraphMaker& link(const std::string& from, const std::string& to, double gbps,
                   std::optional<double> latency_ns = std::nullopt) {
    d_.links.push_back({from, to, gbps, false, latency_ns, "link"});
    return *this;
  }
  GraphMaker& both(const std::string& a, const std::string& b, double gbps,
                   std::optional<double> latency_ns = std::nullopt) {
    return link(a, b, gbps, latency_ns).link(b, a, gbps, latency_ns);
  }
  GraphMaker& group(const std::string& name, std::vector<std::int64_t> links, double gbps) {
    d_.groups.push_back({name, std::move(links), gbps, false, "group"});
    return *this;
  }
  [[nodiscard]] Graph make() const {
    Result<Graph> graph = make_graph(d_, "test");
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    return graph.ok() ? *graph : Graph();
  }

 private:
  GraphDescription d_;
};

inline Graph full_mesh(int ranks, double gbps, std::optional<double> latency_ns = std::nullopt) {
  GraphMaker maker(ranks);
  for (int a = 0; a < ranks; ++a) {
    for (int b = 0; b < ranks; ++b) {
      if (a != b) maker.link(rank_name(a), rank_name(b), gbps, latency_ns);
    }
  }
  return maker.make();
}

/// All ranks on one switch.
/// Two islands of two ranks with 50 GB/s inside; what crosses from one to the other shares `bridge` GB/s.
inline Graph two_islands(double bridge) {
  GraphMaker maker(4);
  std::vector<std::int64_t> crossing;
  std::int64_t link = 0;
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      if (a == b) continue;
      maker.link(rank_name(a), rank_name(b), a / 2 == b / 2 ? 50 : bridge);
      if (a / 2 != b / 2) crossing.push_back(link);
      ++link;
    }
  }
  return maker.group("bridge", crossing, bridge).make();
}

inline Graph star(int ranks, double gbps) {
  GraphMaker maker(ranks);
  maker.node("sw");
  for (int r = 0; r < ranks; ++r) maker.both(rank_name(r), "sw", gbps);
  return maker.make();
}

/// The graph with nodes and links in another order, as when devices are enumerated otherwise.
inline Graph shuffled(const Graph& graph, std::uint64_t seed) {
  Random random(seed);
  GraphDescription d;
  for (const GraphNode& node : graph.nodes) d.nodes.push_back({node.id, node.rank >= 0, "node"});
  for (const GraphLink& link : graph.links) {
    d.links.push_back({graph.nodes[static_cast<std::size_t>(link.from)].id,
                       graph.nodes[static_cast<std::size_t>(link.to)].id,
                       graph.gbps(static_cast<double>(link.capacity)), false, link.latency_ns,
                       "link"});
  }
  shuffle(d.nodes, random);
  shuffle(d.links, random);
  Result<Graph> result = make_graph(d, "shuffled");
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *result : Graph();
}

/// Calls visit(order) for every order of ranks 0..n-1 that begins with rank 0.
template <class Visit>
void for_each_order(int n, Visit visit) {
  std::vector<int> order;
  for (int r = 0; r < n; ++r) order.push_back(r);
  do {
    visit(order);
  } while (std::next_permutation(order.begin() + 1, order.end()));
}

}  // namespace topocoll::testing
