#include "planner/hierarchy_walk.h"

#include <algorithm>

#include "base/index.h"

namespace topocoll {
namespace {

std::vector<int> oriented(std::vector<int> way, bool mirrored) {
  if (mirrored) std::reverse(way.begin(), way.end());
  return way;
}

std::vector<int> whole(const Lane& lane) {
  std::vector<int> way = lane.out;
  way.insert(way.end(), lane.in.begin(), lane.in.end());
  return way;
}

}  // namespace

HierarchyWalk::HierarchyWalk(const HierarchicalPlan& plan)
    : plan_(plan), place_(plan.order.size()) {
  for (std::size_t p = 0; p < plan.order.size(); ++p)
    place_[at(plan.order[p])] = static_cast<int>(p);
  for (const Phase phase : {reduces(), spreads()}) {
    if (phase.made == nullptr) continue;
    read(phase, own_[phase.mirrored ? 1 : 0], transit_[phase.mirrored ? 1 : 0]);
    add_ways(phase);
  }
}

int HierarchyWalk::Ways::add(int from, int to, std::vector<int> way) {
  auto& ways = of[{from, to}];
  const auto known = std::find(ways.begin(), ways.end(), way);
  const auto result = static_cast<int>(known - ways.begin());
  if (known == ways.end()) ways.push_back(std::move(way));
  return result;
}

HierarchyWalk::Index HierarchyWalk::index(const Tree& tree) const {
  Index result;
  const std::size_t gpus = at(plan_.cluster.gpus());
  result.depth.assign(gpus, 0);
  result.parent.assign(gpus, -1);
  result.children.resize(gpus);
  for (std::size_t h = 0; h < tree.hops.size(); ++h) {
    const Hop& hop = tree.hops[h];
    result.depth[at(hop.to)] = result.depth[at(hop.from)] + 1;
    result.parent[at(hop.to)] = static_cast<int>(h);
    result.children[at(hop.from)].push_back(static_cast<int>(h));
  }
  return result;
}

void HierarchyWalk::read(Phase phase, std::vector<Index>& own, std::vector<Index>& transit) {
  for (std::size_t s = 0; s < phase.made->lane.size(); ++s) {
    own.push_back(index(phase.made->own[s]));
    transit.push_back(index(phase.made->transit[s]));
    for (const Index* i : {&own.back(), &transit.back()}) {
      stages_per_node_ =
          std::max(stages_per_node_, *std::max_element(i->depth.begin(), i->depth.end()) + 1);
    }
  }
}

void HierarchyWalk::add_ways(Phase phase) {
  for (std::size_t s = 0; s < phase.made->lane.size(); ++s) {
    for (const Tree* tree : {&phase.made->own[s], &phase.made->transit[s]}) {
      for (const Hop& hop : tree->hops) {
        const bool m = phase.mirrored;
        within_.add(m ? hop.to : hop.from, m ? hop.from : hop.to, oriented(hop.path, m));
      }
    }
    const Lane& lane = phase.made->lanes[at(phase.made->lane[s])];
    const bool m = phase.mirrored;
    between_.add(m ? lane.entrance : lane.exit, m ? lane.exit : lane.entrance,
                 oriented(whole(lane), m));
  }
}

int HierarchyWalk::channel(Phase phase, const Hop& hop) const {
  const bool m = phase.mirrored;
  const auto& ways = within_.of.at({m ? hop.to : hop.from, m ? hop.from : hop.to});
  return static_cast<int>(std::find(ways.begin(), ways.end(), oriented(hop.path, m)) -
                          ways.begin());
}

int HierarchyWalk::channel(Phase phase, const Lane& lane) const {
  const bool m = phase.mirrored;
  const auto& ways = between_.of.at({m ? lane.entrance : lane.exit, m ? lane.exit : lane.entrance});
  return static_cast<int>(std::find(ways.begin(), ways.end(), oriented(whole(lane), m)) -
                          ways.begin());
}

const std::vector<int>& HierarchyWalk::way(int from_gpu, int to_gpu, int channel,
                                           bool between_nodes) const {
  return (between_nodes ? between_ : within_).of.at({from_gpu, to_gpu})[at(channel)];
}

int HierarchyWalk::channels() const {
  std::size_t most = 1;
  for (const Ways* ways : {&within_, &between_}) {
    for (const auto& [pair, list] : ways->of) most = std::max(most, list.size());
  }
  return static_cast<int>(most);
}

int HierarchyWalk::rank_at(int place, int gpu) const {
  return plan_.order[at(place)] * plan_.cluster.gpus() + gpu;
}

int HierarchyWalk::root(Phase phase, int item) const {
  const NodeTree nodes(plan_, item);
  return rank_at(nodes.root(), phase.made->own[at(slot(item))].root);
}

HierarchyWalk::Links HierarchyWalk::links(Phase phase, int item, int rank) const {
  const int gpu = rank % plan_.cluster.gpus();
  const int here = place(rank / plan_.cluster.gpus());
  const std::size_t s = at(slot(item));
  const NodeTree nodes(plan_, item);
  const int depth = nodes.depth(here);
  const Tree& tree = depth == 0 ? phase.made->own[s] : phase.made->transit[s];
  const Index& index = (depth == 0 ? own_ : transit_)[phase.mirrored ? 1 : 0][s];
  const Lane& lane = phase.made->lanes[at(phase.made->lane[s])];
  const int base = depth * stages_per_node_;
  Links links;
  if (const int h = index.parent[at(gpu)]; h >= 0) {
    const Hop& hop = tree.hops[at(h)];
    links.parent = Link{rank_at(here, hop.from), base + index.depth[at(gpu)], channel(phase, hop)};
  } else if (depth > 0) {
    links.parent = Link{rank_at(nodes.parent(here), lane.exit), base, channel(phase, lane)};
  }
  for (const int h : index.children[at(gpu)]) {
    const Hop& hop = tree.hops[at(h)];
    links.children.push_back(
        {rank_at(here, hop.to), base + index.depth[at(hop.to)], channel(phase, hop)});
  }
  if (gpu != lane.exit) return links;
  for (const int child : nodes.children(here)) {
    links.children.push_back(
        {rank_at(child, lane.entrance), base + stages_per_node_, channel(phase, lane)});
  }
  return links;
}

}  // namespace topocoll
