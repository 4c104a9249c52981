#include <utility>
#include <vector>

#include "topocoll/network_probe.h"

namespace topocoll {

/// The circle method: the last player stays, all others move on by one seat a round, and opposite
/// seats meet.
std::vector<std::vector<std::pair<int, int>>> tournament(int players) {
  std::vector<std::vector<std::pair<int, int>>> rounds;
  if (players < 2) return rounds;
  const int seats = players + players % 2;  // whoever meets the empty seat pauses
  const int moving = seats - 1;
  for (int round = 0; round < moving; ++round) {
    auto& pairs = rounds.emplace_back();
    if (seats == players) pairs.emplace_back(round, players - 1);
    for (int k = 1; k < seats / 2; ++k) {
      pairs.emplace_back((round + k) % moving, (round + moving - k) % moving);
    }
  }
  return rounds;
}

}  // namespace topocoll
