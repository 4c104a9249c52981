#include "planner/channels.h"

#include <algorithm>
#include <tuple>

#include "planner/index.h"

namespace topocoll {

ChannelTable::Use& ChannelTable::entry(const Hop& hop) {
  auto& paths = paths_[{hop.from, hop.to}];
  const auto [known, added] = paths.try_emplace(hop.path);
  if (added) known->second.channel = static_cast<int>(paths.size()) - 1;
  return known->second;
}

int ChannelTable::most() const {
  std::size_t most = 1;
  for (const auto& [pair, paths] : paths_) most = std::max(most, paths.size());
  return static_cast<int>(most);
}

std::vector<Route> ChannelTable::routes(const Graph& graph, double chunk_gbps) const {
  std::vector<Route> routes;
  for (const auto& [pair, paths] : paths_) {
    for (const auto& [path, use] : paths) {
      Route route{pair.first, pair.second, use.channel, {}, chunk_gbps * use.chunks};
      route.path.push_back(graph.rank_id(pair.first));
      for (const int l : path) {
        route.path.push_back(graph.nodes[at(graph.links[at(l)].to)].id);
      }
      routes.push_back(std::move(route));
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
