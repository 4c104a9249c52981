#include "planner/channels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/index.h"

namespace topocoll {

void ChannelTable::divide(const std::vector<const Hop*>& chunks, int most) {
  std::map<Path, int> count;
  for (const Hop* hop : chunks) ++count[{hop->from, hop->to, hop->path}];
  int least = std::numeric_limits<int>::max();
  int highest = 0;
  for (const auto& [path, carried] : count) {
    least = std::min(least, carried);
    highest = std::max(highest, carried);
  }
  // What one channel carries: all that the least loaded path does, unless that makes too many.
  const double unit = std::max<double>(least, static_cast<double>(highest) / most);
  for (const auto& [path, carried] : count) {
    const int channels = static_cast<int>(std::lround(carried / unit));
    if (channels > 1) divided_[path] = channels;
  }
}

ChannelTable::Use& ChannelTable::entry(const Hop& hop) {
  Pair& pair = pairs_[{hop.from, hop.to}];
  const auto [known, added] = pair.paths.try_emplace(hop.path);
  Use& use = known->second;
  if (!added) return use;
  const auto divided = divided_.find({hop.from, hop.to, hop.path});
  if (divided != divided_.end()) use.channels = divided->second;
  use.first = pair.channels;
  pair.channels += use.channels;
  return use;
}

int ChannelTable::most() const {
  int most = 1;
  for (const auto& [ranks, pair] : pairs_) most = std::max(most, pair.channels);
  return most;
}

std::vector<Route> ChannelTable::routes(const Graph& graph, double chunk_gbps) const {
  std::vector<Route> routes;
  for (const auto& [ranks, pair] : pairs_) {
    for (const auto& [path, use] : pair.paths) {
      Route route{ranks.first, ranks.second, 0, {graph.rank_id(ranks.first)}, 0};
      for (const int l : path) {
        route.path.push_back(graph.nodes[at(graph.links[at(l)].to)].id);
      }
      for (int k = 0; k < use.channels; ++k) {
        const int chunks = (use.sent + use.channels - 1 - k) / use.channels;
        route.channel = use.first + k;
        route.gbps = chunk_gbps * chunks;
        routes.push_back(route);
      }
    }
  }
  std::sort(routes.begin(), routes.end(), [](const Route& a, const Route& b) {
    return std::tie(a.from, a.to, a.channel) < std::tie(b.from, b.to, b.channel);
  });
  return routes;
}

int ScratchPool::take() {
  const auto free = std::find(used_.begin(), used_.end(), false);
  const auto index = free - used_.begin();
  if (free == used_.end()) used_.push_back(true);
  used_[static_cast<std::size_t>(index)] = true;
  return static_cast<int>(index);
}

}  // namespace topocoll
