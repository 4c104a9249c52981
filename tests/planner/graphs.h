// Graphs for the planner's tests: the fixtures, and random ones from a seed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "planner/graph.h"
#include "planner/graph_topology.h"
#include "topocoll/topology_formats.h"

namespace topocoll::testing {

inline std::string fixture_text(const std::string& name) {
  std::ifstream file(std::string(TOPOCOLL_FIXTURES) + "/" + name);
  EXPECT_TRUE(file.is_open()) << "no fixture " << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Every fixture with known optima; the number of ranks is in the file.
inline const std::vector<std::string>& fixture_names() {
  static const std::vector<std::string> names = {"dgx1p_8xP100",
                                                 "dgx1v_8xV100",
                                                 "dgx1v_degraded_03half_67dead",
                                                 "dgx2_16xV100_nvswitch",
                                                 "dgx2_x2_relay",
                                                 "dgxa100_x1",
                                                 "dgxa100_x2",
                                                 "dgxa100_x4",
                                                 "hgxh100_x1",
                                                 "hgxh100_x2_flat",
                                                 "hgxh100_x2_rail8",
                                                 "mi100_2hives_rome",
                                                 "mi250_1x16",
                                                 "mi250_2x16",
                                                 "mi250_2x8",
                                                 "mi300x_8_full_mesh",
                                                 "nca100v4_4gpu_pairs",
                                                 "ndv2_x2_relay",
                                                 "ndv2_x4_relay",
                                                 "p4d_x2",
                                                 "pcie_8gpu_4plx_2socket",
                                                 "pcie_8gpu_g5_at_x8",
                                                 "rccl_rome_model_52",
                                                 "rccl_rome_model_66",
                                                 "rccl_rome_model_80"};
  return names;
}

struct Fixture {
  Graph graph;
  nlohmann::json expect;
};

inline Fixture load_fixture(const std::string& name) {
  const std::string text = fixture_text(name + ".json");
  const Result<Topology> machine = import_topology(text, name);
  EXPECT_TRUE(machine.ok()) << machine.status().to_string();
  Result<Graph> graph =
      machine.ok() ? graph_from_topology(*machine, {}) : Result<Graph>(machine.status());
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return {graph.ok() ? *graph : Graph(), nlohmann::json::parse(text)["expect"]};
}

/// A small generator with a fixed sequence for each seed on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 0x2545f4914f6cdd1dU) {}
  /// 0 to bound - 1.
  int below(int bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<int>((state_ >> 11) % static_cast<std::uint64_t>(bound));
  }

 private:
  std::uint64_t state_;
};

template <class List>
void shuffle(List& list, Random& random) {
  for (int i = static_cast<int>(list.size()) - 1; i > 0; --i) {
    std::swap(list[static_cast<std::size_t>(i)], list[static_cast<std::size_t>(random.below(i + 1))]);
  }
}

/// 0 to n - 1 in any order.
inline std::vector<int> random_order(Random& random, int n) {
  std::vector<int> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, random);
  return order;
}

/// 2 to 7 ranks and 0 to 3 switches; links mostly in pairs of equal bandwidth, so that switches
/// give out as much as they take in. With `one_way`, ranks get links of their own direction too.
inline GraphDescription random_description(std::uint64_t seed, bool one_way) {
  Random random(seed);
  GraphDescription d;
  const int ranks = 2 + random.below(6);
  const int switches = random.below(4);
  const auto id = [&](int i) {
    return i < ranks ? "g" + std::to_string(i) : "s" + std::to_string(i - ranks);
  };
  for (int i = 0; i < ranks + switches; ++i) d.nodes.push_back({id(i), i < ranks, "node"});
  const auto link = [&](int a, int b, double gbps) {
    d.links.push_back({id(a), id(b), gbps, false, std::nullopt, "link"});
  };
  const auto both = [&](int a, int b) {
    const double gbps = 0.5 * (1 + random.below(20));
    link(a, b, gbps);
    link(b, a, gbps);
  };
  // A random tree first, so that all is connected, then more links.
  for (int i = 1; i < ranks + switches; ++i) both(random.below(i), i);
  const int more = random.below(2 * ranks);
  for (int k = 0; k < more; ++k) {
    const int a = random.below(ranks + switches);
    const int b = random.below(ranks + switches);
    if (a != b) both(a, b);
  }
  for (int k = 0; one_way && k < ranks; ++k) {
    const int a = random.below(ranks);
    const int b = random.below(ranks);
    if (a != b) link(a, b, 0.5 * (1 + random.below(20)));
  }
  return d;
}

inline Graph random_graph(std::uint64_t seed, bool one_way) {
  Result<Graph> graph = make_graph(random_description(seed, one_way), "random");
  EXPECT_TRUE(graph.ok()) << "seed " << seed << ": " << graph.status().to_string();
  return graph.ok() ? *graph : Graph();
}

}  // namespace topocoll::testing
