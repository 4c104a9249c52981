#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "topocoll/network_probe.h"

namespace topocoll {
namespace {

TEST(Tournament, EverybodyMeetsEverybodyOnceAndNobodyIsInTwoPairsAtOnce) {
  for (int players = 2; players <= 65; ++players) {
    const auto rounds = tournament(players);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(players - 1 + players % 2)) << players;
    std::set<std::pair<int, int>> met;
    for (const auto& round : rounds) {
      EXPECT_EQ(round.size(), static_cast<std::size_t>(players / 2)) << players;
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_TRUE(a >= 0 && a < players && b >= 0 && b < players);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << players;
        EXPECT_TRUE(met.insert(std::minmax(a, b)).second) << players;
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(players * (players - 1) / 2));
  }
}

TEST(Tournament, NobodyToMeet) {
  EXPECT_TRUE(tournament(1).empty());
  EXPECT_TRUE(tournament(0).empty());
  EXPECT_TRUE(tournament(-3).empty());
}

}  // namespace
}  // namespace topocoll
