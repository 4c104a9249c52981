#include "planner/fair_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "planner/graphs.h"

namespace topocoll::testing {
namespace {

using Loads = std::vector<Load>;

TEST(FairShare, SplitsOneResourceEvenly) {
  for (int k = 1; k <= 64; ++k) {
    FairShare shares({25});
    for (int i = 0; i < k; ++i) shares.add(Loads{{0, 1}});
    EXPECT_EQ(shares.update().size(), static_cast<std::size_t>(k));
    for (int i = 0; i < k; ++i) EXPECT_DOUBLE_EQ(shares.rate(i), 25.0 / k);
  }
}

TEST(FairShare, GivesTheLongFlowItsShareOnALine) {
  FairShare shares({1, 1});
  const int both = shares.add(Loads{{0, 1}, {1, 1}});
  const int first = shares.add(Loads{{0, 1}});
  const int second = shares.add(Loads{{1, 1}});
  shares.update();
  EXPECT_DOUBLE_EQ(shares.rate(both), 0.5);
  EXPECT_DOUBLE_EQ(shares.rate(first), 0.5);
  EXPECT_DOUBLE_EQ(shares.rate(second), 0.5);
}

TEST(FairShare, GivesWhatOthersCannotUse) {
  FairShare shares({10, 4});
  const int wide = shares.add(Loads{{0, 1}});
  const int crossing = shares.add(Loads{{0, 1}, {1, 1}});
  const int narrow = shares.add(Loads{{1, 1}});
  shares.update();
  EXPECT_DOUBLE_EQ(shares.rate(wide), 8);
  EXPECT_DOUBLE_EQ(shares.rate(crossing), 2);
  EXPECT_DOUBLE_EQ(shares.rate(narrow), 2);
  shares.remove(narrow);
  EXPECT_EQ(shares.update(), (std::vector<int>{wide, crossing}));
  EXPECT_DOUBLE_EQ(shares.rate(wide), 6);
  EXPECT_DOUBLE_EQ(shares.rate(crossing), 4);
}

TEST(FairShare, CountsLoadsThatAreNotOne) {
  FairShare shares({12});
  const int twice = shares.add(Loads{{0, 2}});
  const int once = shares.add(Loads{{0, 1}});
  shares.update();
  EXPECT_DOUBLE_EQ(shares.rate(twice), 4);
  EXPECT_DOUBLE_EQ(shares.rate(once), 4);
}

/// Max-min fair: no resource is over full, and each flow has a full resource on which no other flow
/// is faster.
void expect_fair(const FairShare& shares, const std::map<int, Loads>& flows,
                 const std::vector<double>& capacities, std::uint64_t seed) {
  std::vector<double> used(capacities.size(), 0);
  std::vector<double> fastest(capacities.size(), 0);
  for (const auto& [flow, loads] : flows) {
    for (const Load& l : loads) {
      const auto r = static_cast<std::size_t>(l.resource);
      used[r] += l.load * shares.rate(flow);
      fastest[r] = std::max(fastest[r], shares.rate(flow));
    }
  }
  for (std::size_t r = 0; r < used.size(); ++r) {
    EXPECT_LE(used[r], capacities[r] * (1 + 1e-9)) << "seed " << seed;
  }
  for (const auto& [flow, loads] : flows) {
    const bool held = std::any_of(loads.begin(), loads.end(), [&, f = flow](const Load& l) {
      const auto r = static_cast<std::size_t>(l.resource);
      return used[r] >= capacities[r] * (1 - 1e-9) && shares.rate(f) >= fastest[r] * (1 - 1e-9);
    });
    EXPECT_TRUE(held) << "seed " << seed << ": flow " << flow << " could be faster";
  }
}

TEST(FairShare, StaysFairAsFlowsComeAndGo) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    std::vector<double> capacities;
    for (int r = 0; r < 2 + random.below(20); ++r) capacities.push_back(1 + random.below(30));
    FairShare shares(capacities);
    std::map<int, Loads> flows;
    for (int round = 0; round < 30; ++round) {
      for (int k = 0; k < 1 + random.below(4); ++k) {
        if (!flows.empty() && random.below(2) == 0) {
          const auto victim =
              std::next(flows.begin(), random.below(static_cast<int>(flows.size())));
          shares.remove(victim->first);
          flows.erase(victim);
          continue;
        }
        std::map<int, double> loads;
        for (int l = 0; l < 1 + random.below(4); ++l) {
          loads[random.below(static_cast<int>(capacities.size()))] = 0.5 * (1 + random.below(4));
        }
        Loads list;
        for (const auto& [resource, load] : loads) list.push_back({resource, load});
        const int flow = shares.add(list);
        flows[flow] = list;
      }
      shares.update();
      expect_fair(shares, flows, capacities, seed);
    }
  }
}

}  // namespace
}  // namespace topocoll::testing
