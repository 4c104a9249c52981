#include "topology/findings/slow_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace topocoll {

void PairFigures::add(const std::string& from, const std::string& to, const Figure& figure) {
  const double now = *figure.measured;
  if (evidence.empty() || now < gbps) {
    gbps = now;
    high = figure.spread ? figure.spread->high : now;
  }
  std::tie(a, b) = std::minmax(from, to);
  evidence += fmt::format("{}{} → {} {:.3g} GB/s", evidence.empty() ? "" : ", ", from, to, now);
}

SlowOnes find_slow(const std::vector<PairFigures>& members,
                   const std::function<bool(const PairFigures&)>& is_slow) {
  std::map<std::string, std::pair<int, int>> count;  // slow pairs, all pairs
  std::vector<const PairFigures*> slow;
  for (const PairFigures& pair : members) {
    const bool found = is_slow(pair);
    if (found) slow.push_back(&pair);
    for (const std::string& end : {pair.a, pair.b}) {
      count[end].first += found ? 1 : 0;
      count[end].second += 1;
    }
  }
  // Of an end that is slow with everybody, not each pair but the end is to blame.
  const auto blamed = [&](const std::string& end) {
    return count[end].second > 1 && count[end].first == count[end].second;
  };
  SlowOnes result;
  for (const PairFigures* pair : slow) {
    if (blamed(pair->a) != blamed(pair->b)) result.ends[blamed(pair->a) ? pair->a : pair->b];
  }
  for (const PairFigures* pair : slow) {
    bool explained = false;
    for (const std::string& end : {pair->a, pair->b}) {
      const auto bad = result.ends.find(end);
      if (bad == result.ends.end()) continue;
      explained = true;
      if (bad->second == nullptr || pair->gbps < bad->second->gbps) bad->second = pair;
    }
    if (!explained) result.pairs.push_back(pair);
  }
  return result;
}

}  // namespace topocoll
