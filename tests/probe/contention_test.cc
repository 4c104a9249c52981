#include "probe/contention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/index.h"
#include "probe/gpu_ports.h"
#include "support/simulated_gpus.h"

namespace topocoll {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::FaultOs;
using testing::SimulatedGpus;
using Gpus = std::vector<int>;

/// A machine, and what a probe knows of it before it joins flows.
class Contention : public ::testing::Test {
 protected:
  Contention() { os_.set_clock(TimePoint{}); }

  JointRates rates() {
    return [this](const std::vector<GpuFlow>& flows) {
      ++tests_;
      return bench_.move(flows);
    };
  }
  MemoryWays ways(std::vector<int> near) {
    MemoryWays ways{std::move(near), {}};
    for (int g = 0; g < static_cast<int>(ways.near.size()); ++g) {
      const int memory = ways.near[static_cast<std::size_t>(g)];
      ways.alone.push_back(memory < 0 ? Carried()
                                      : Carried{bench_.move({up_flow(g, memory)})->front(),
                                                bench_.move({down_flow(g, memory)})->front()});
    }
    return ways;
  }
  ContentionTree infer(const MemoryWays& ways) {
    tests_ = 0;
    auto tree = infer_tree(ways, rates());
    EXPECT_TRUE(tree.ok()) << tree.status().to_string();
    return tree.ok() ? *tree : ContentionTree();
  }

  FaultOs os_;
  SimulatedGpus bench_{os_};
  int tests_ = 0;
};

std::vector<Gpus> sets(const ContentionTree& tree) {
  std::vector<Gpus> sets;
  for (const GpuCluster& cluster : tree.clusters) sets.push_back(cluster.gpus);
  return sets;
}

TEST_F(Contention, FindsTheSwitchesOfTwoSockets) {
  const int host = bench_.add_switch(-1, 0, 0);
  std::vector<int> near;
  for (int socket = 0; socket < 2; ++socket) {
    const int root = bench_.add_switch(host, 40, 40);
    bench_.add_memory(root, socket, 200);
    for (int i = 0; i < 2; ++i) {
      const int port = bench_.add_switch(root, 24, 26);
      for (int gpu = 0; gpu < 2; ++gpu) bench_.add_gpu(port, 25, 27), near.push_back(socket);
    }
  }
  const ContentionTree tree = infer(ways(near));
  EXPECT_THAT(sets(tree), ElementsAre(Gpus{0, 1}, Gpus{2, 3}, Gpus{4, 5}, Gpus{6, 7}));
  for (const GpuCluster& cluster : tree.clusters) {
    EXPECT_EQ(cluster.parent, -1);
    EXPECT_THAT(cluster.carried.up_gbps, DoubleNear(24, 24 * 0.03));
    EXPECT_THAT(cluster.carried.down_gbps, DoubleNear(26, 26 * 0.03));
  }
  EXPECT_LE(tests_, 2 * (28 + 4 + 6 + 20)) << "one test for each pair and direction, two if shared";
}

TEST_F(Contention, FindsSwitchesBelowSwitches) {
  testing::build_nested_switches(bench_);
  const ContentionTree tree = infer(ways({0, 0, 0, 0, 0, 0}));
  ASSERT_THAT(sets(tree), ElementsAre(Gpus{0, 1, 2, 3}, Gpus{0, 1}, Gpus{2, 3}));
  EXPECT_EQ(tree.clusters[1].parent, 0);
  EXPECT_EQ(tree.clusters[2].parent, 0);
  EXPECT_NEAR(tree.clusters[0].carried.up_gbps, 40, 0.1);
}

TEST_F(Contention, FindsALinkThatIsWideEnoughForTwo) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 500);
  const int wide = bench_.add_switch(host, 60, 60);
  for (int gpu = 0; gpu < 6; ++gpu) bench_.add_gpu(gpu < 4 ? wide : host, 25, 25);
  const ContentionTree tree = infer(ways({0, 0, 0, 0, 0, 0}));
  ASSERT_THAT(sets(tree), ElementsAre(Gpus{0, 1, 2, 3}));
  EXPECT_NEAR(tree.clusters[0].carried.down_gbps, 60, 0.1);
}

TEST_F(Contention, FindsAWideLinkBelowALimitOfAllWhereTheTreeNamesIt) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 100);  // all together meet this first
  const int a = bench_.add_switch(host, 60, 60);
  const int b = bench_.add_switch(host, 60, 60);
  for (int gpu = 0; gpu < 6; ++gpu) bench_.add_gpu(gpu < 3 ? a : b, 25, 25);
  MemoryWays known = ways({0, 0, 0, 0, 0, 0});
  known.declared = {{0, 1, 2}, {3, 4, 5}};
  EXPECT_THAT(sets(infer(known)), ElementsAre(Gpus{0, 1, 2}, Gpus{3, 4, 5}));
}

TEST_F(Contention, WhatMemoryLimitsIsNoSwitch) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 40);
  for (int gpu = 0; gpu < 4; ++gpu) bench_.add_gpu(host, 25, 25);
  MemoryWays known = ways({0, 0, 0, 0});
  EXPECT_TRUE(infer(known).clusters.empty());
  known.memory_gbps = {45};
  EXPECT_TRUE(infer(known).clusters.empty());
  known.memory_gbps = {400};
  EXPECT_THAT(sets(infer(known)), ElementsAre(Gpus{0, 1, 2, 3})) << "CPUs read ten times as much";
}

TEST_F(Contention, ASwitchThatOneGpuFillsIsOneAlsoIfAllAreBelowIt) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 300);
  const int port = bench_.add_switch(host, 25, 25);
  for (int gpu = 0; gpu < 2; ++gpu) bench_.add_gpu(port, 25, 25);
  EXPECT_THAT(sets(infer(ways({0, 0}))), ElementsAre(Gpus{0, 1}));
}

TEST_F(Contention, ADirectionOfItsOwnCountsToo) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 300);
  const int port = bench_.add_switch(host, 30, 0);  // narrow upwards only
  for (int gpu = 0; gpu < 3; ++gpu) bench_.add_gpu(gpu < 2 ? port : host, 25, 25);
  const ContentionTree tree = infer(ways({0, 0, 0}));
  ASSERT_THAT(sets(tree), ElementsAre(Gpus{0, 1}));
  EXPECT_NEAR(tree.clusters[0].carried.up_gbps, 30, 0.1);
  EXPECT_NEAR(tree.clusters[0].carried.down_gbps, 50, 0.1);
}

TEST_F(Contention, GpusWithoutMemoryTakeNoPart) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 300);
  const int port = bench_.add_switch(host, 25, 25);
  for (int gpu = 0; gpu < 3; ++gpu) bench_.add_gpu(port, 25, 25);
  MemoryWays known = ways({0, -1, 0});
  known.declared = {{0, 1, 2}};
  const ContentionTree tree = infer(known);
  EXPECT_THAT(sets(tree), ElementsAre(Gpus{0, 2}));
  EXPECT_NEAR(tree.declared.at(0).up_gbps, 25, 0.1);
  EXPECT_TRUE(infer(ways({-1})).clusters.empty());
  EXPECT_TRUE(infer(MemoryWays()).clusters.empty());
}

TEST_F(Contention, AFailingTestEndsIt) {
  const int host = bench_.add_switch(-1, 0, 0);
  bench_.add_memory(host, 0, 300);
  for (int gpu = 0; gpu < 4; ++gpu) bench_.add_gpu(host, 25, 25);
  const MemoryWays known = ways({0, 0, 0, 0});
  ASSERT_TRUE(infer_tree(known, rates()).ok());
  const int all = tests_;
  for (int call = 1; call <= all; ++call) {
    bench_.fail_from(bench_.calls() + call, Status(Cause::kSystem, "gone"));
    EXPECT_EQ(infer_tree(known, rates()).status().text(), "gone") << "test " << call;
  }
}

/// A tree whose links are clearly narrower than what is below them, or not narrow at all.
class RandomTree {
 public:
  RandomTree(std::uint64_t seed, SimulatedGpus& bench) : random_(seed), bench_(bench) {
    const int host = bench_.add_switch(-1, 0, 0);
    bench_.add_memory(host, 0, 1e4);
    const int gpus = 2 + below(7);
    std::vector<int> parts = split(gpus);
    for (const int part : parts) grow(host, part, false);
    std::sort(expected_.begin(), expected_.end(), [](const Gpus& a, const Gpus& b) {
      return a.size() != b.size() ? a.size() > b.size() : a < b;
    });
  }
  [[nodiscard]] const std::vector<Gpus>& expected() const { return expected_; }

 private:
  struct Grown {
    Gpus gpus;
    std::array<double, 2> gbps;  ///< up and down, by all of them
  };

  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  double between(double low, double high) { return low + (high - low) * below(1000) / 1000.0; }
  /// Two parts or more.
  std::vector<int> split(int gpus) {
    std::vector<int> parts;
    while (gpus > 0) {
      parts.push_back(1 + below(std::min(gpus, parts.empty() ? gpus - 1 : gpus)));
      gpus -= parts.back();
    }
    return parts;
  }
  /// What is below a place decides how wide the way to it is, so the places come first.
  Grown grow(int above, int gpus, bool below_wide) {
    if (gpus == 1) {
      const double gbps = between(20, 25);
      return {{bench_.add_gpu(above, gbps, gbps)}, {gbps, gbps}};
    }
    const int place = bench_.add_switch(above, 0, 0);
    const std::vector<int> parts = split(gpus);
    // Below a link that is full only with three parts no other such is looked for.
    const bool narrow = parts.size() == 2 || below(2) == 0;
    std::vector<Grown> grown;
    for (const int part : parts) grown.push_back(grow(place, part, below_wide || !narrow));
    Grown all{{}, {0, 0}};
    for (const Grown& part : grown) {
      all.gpus.insert(all.gpus.end(), part.gpus.begin(), part.gpus.end());
      for (const int way : {0, 1}) all.gbps[at(way)] += part.gbps[at(way)];
    }
    if (narrow || !below_wide) limit(place, grown, narrow, all);
    return all;
  }

  void limit(int place, const std::vector<Grown>& grown, bool narrow, Grown& all) {
    std::array<double, 2> gbps{};
    for (const int way : {0, 1}) {
      std::vector<double> widest;
      double least = 0;  // clearly more than each part has
      for (const Grown& part : grown) {
        widest.push_back(part.gbps[at(way)]);
        if (part.gpus.size() > 1) least = std::max(least, 1.25 * part.gbps[at(way)]);
      }
      std::sort(widest.rbegin(), widest.rend());
      const double two = widest[0] + widest[1];
      const double low = std::max(least, narrow ? 0.35 * two : 0.96 * two);
      const double high = narrow ? 0.8 * two : 0.8 * all.gbps[at(way)];
      if (low >= high) return;
      gbps[at(way)] = between(low, high);
    }
    bench_.widen(place, gbps[0], gbps[1]);
    all.gbps = gbps;
    expected_.push_back(all.gpus);
  }

  std::mt19937_64 random_;
  SimulatedGpus& bench_;
  std::vector<Gpus> expected_;
};

TEST(RandomTrees, AreFoundUnderNoise) {
  std::size_t switches = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    FaultOs os;
    os.set_clock(TimePoint{});
    SimulatedGpus bench(os);
    const RandomTree tree(seed, bench);
    bench.set_noise(0.01, seed);
    const auto count = bench.gpus().size();
    MemoryWays ways{std::vector<int>(count, 0), {}};
    ways.memory_gbps = {1e4};
    for (int g = 0; g < static_cast<int>(count); ++g) {
      ways.alone.push_back(
          {bench.move({up_flow(g, 0)})->front(), bench.move({down_flow(g, 0)})->front()});
    }
    const auto found =
        infer_tree(ways, [&](const std::vector<GpuFlow>& flows) { return bench.move(flows); });
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(sets(*found), tree.expected()) << "seed " << seed;
    switches += tree.expected().size();
    EXPECT_LE(bench.moves(), static_cast<int>(10 * count * count)) << "seed " << seed;
  }
  EXPECT_GT(switches, 200U) << "the trees are too poor to show anything";
}

std::vector<std::vector<double>> stores_alone(SimulatedGpus& bench) {
  const std::size_t count = bench.gpus().size();
  std::vector<std::vector<double>> alone(count, std::vector<double>(count, 0));
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  for (int a = 0; a < static_cast<int>(count); ++a) {
    for (int b = 0; b < static_cast<int>(count); ++b) {
      if (a == b) continue;
      const auto rates =
          bench.move({{{GpuPlace::Kind::kGpu, a}, {GpuPlace::Kind::kGpu, b}, Mover::kStores}});
      if (rates.ok()) alone[at(a)][at(b)] = rates->front();
    }
  }
  return alone;
}

TEST_F(Contention, PortsOfSwitchesAreSharedAndThoseOfMeshesAreNot) {
  for (const bool mesh : {false, true}) {
    FaultOs os;
    SimulatedGpus bench(os);
    const int host = bench.add_switch(-1, 0, 0);
    for (int gpu = 0; gpu < 4; ++gpu) bench.add_gpu(host, 50, 50);
    if (!mesh) bench.add_nvswitch(400);
    for (int a = 0; mesh && a < 4; ++a) {
      for (int b = 0; b < 4; ++b) {
        if (a != b) bench.add_direct(a, b, 100);
      }
    }
    bench.set_unsupported(0, 1);
    const auto ports = infer_ports(stores_alone(bench),
                                   [&](const std::vector<GpuFlow>& f) { return bench.move(f); });
    ASSERT_TRUE(ports.ok()) << ports.status().to_string();
    for (const GpuPort& port : *ports) {
      EXPECT_EQ(port.shared_out, !mesh);
      EXPECT_EQ(port.shared_in, !mesh);
    }
    EXPECT_NEAR(ports->at(2).out_gbps, mesh ? 285 : 380, 1);
    EXPECT_NEAR(ports->at(0).out_gbps, mesh ? 190 : 380, 1);
  }
}

TEST_F(Contention, OnePeerOrNoneIsAPortToo) {
  EXPECT_EQ(infer_ports({{0}}, rates())->at(0).out_gbps, 0);
  const auto two = infer_ports({{0, 7}, {0, 0}}, rates());
  EXPECT_EQ(two->at(0).out_gbps, 7);
  EXPECT_EQ(two->at(1).in_gbps, 7);
  EXPECT_EQ(two->at(1).out_gbps, 0);
  EXPECT_EQ(tests_, 0);
}

}  // namespace
}  // namespace topocoll
