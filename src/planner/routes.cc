#include "planner/routes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/index.h"

namespace topocoll {

Routes::Routes(const Graph& graph) : ranks_(graph.ranks()), out_(graph.nodes.size()) {
  build_trunks(graph);
  build_resources(graph);
  routes_.resize(at(ranks_) * at(ranks_));
  for (int r = 0; r < ranks_; ++r) search_from(graph, r);
  for (const auto& route : routes_) {
    if (route && route->latency_ns) {
      worst_latency_ns_ = std::max(worst_latency_ns_, *route->latency_ns);
    }
  }
  independent_ = check_independent();
  degree_capacity_ = std::numeric_limits<double>::infinity();
  for (int node : graph.rank_nodes) {
    double out = 0;
    double in = 0;
    for (const Trunk& trunk : trunks_) {
      if (trunk.from == node) out += trunk.capacity;
      if (trunk.to == node) in += trunk.capacity;
    }
    degree_capacity_ = std::min({degree_capacity_, out, in});
  }
}

void Routes::build_trunks(const Graph& graph) {
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    const GraphLink& link = graph.links[i];
    const auto [it, added] =
        trunk_between_.try_emplace({link.from, link.to}, static_cast<int>(trunks_.size()));
    if (added) trunks_.push_back({link.from, link.to, {}, 0, std::nullopt});
    Trunk& trunk = trunks_[at(it->second)];
    trunk.links.push_back(static_cast<int>(i));
    trunk.capacity += static_cast<double>(link.capacity);
    if (link.latency_ns && (!trunk.latency_ns || *link.latency_ns < *trunk.latency_ns)) {
      trunk.latency_ns = link.latency_ns;
    }
  }
  for (const auto& [ends, trunk] : trunk_between_) out_[at(ends.first)].push_back(trunk);
}

void Routes::build_resources(const Graph& graph) {
  std::vector<int> trunk_of(graph.links.size(), 0);
  for (std::size_t t = 0; t < trunks_.size(); ++t) {
    const Trunk& trunk = trunks_[t];
    capacity_.push_back(trunk.capacity);
    names_.push_back(graph.nodes[at(trunk.from)].id + " -> " + graph.nodes[at(trunk.to)].id);
    trunk_loads_.push_back({{static_cast<int>(t), 1.0}});
    for (int link : trunk.links) trunk_of[at(link)] = static_cast<int>(t);
  }
  for (const SharedGroup& group : graph.groups) {
    std::map<int, double> members;
    for (int link : group.links) {
      members[trunk_of[at(link)]] += static_cast<double>(graph.links[at(link)].capacity);
    }
    const int resource = resources();
    capacity_.push_back(static_cast<double>(group.capacity));
    names_.push_back("group " + group.name);
    for (const auto& [trunk, member] : members) {
      trunk_loads_[at(trunk)].push_back({resource, member / trunks_[at(trunk)].capacity});
    }
  }
}

const std::string& Routes::resource_name(int resource) const { return names_[at(resource)]; }

RankRoute Routes::make_route(const std::vector<int>& trunks) const {
  RankRoute route;
  route.nodes.push_back(trunks_[at(trunks.front())].from);
  route.latency_ns = 0;
  std::map<int, double> loads;
  for (int t : trunks) {
    const Trunk& trunk = trunks_[at(t)];
    route.nodes.push_back(trunk.to);
    for (const Load& l : trunk_loads_[at(t)]) loads[l.resource] += l.load;
    if (route.latency_ns && trunk.latency_ns) {
      *route.latency_ns += *trunk.latency_ns;
    } else {
      route.latency_ns.reset();
    }
  }
  route.rate = std::numeric_limits<double>::infinity();
  for (const auto& [resource, load] : loads) {
    route.loads.push_back({resource, load});
    route.rate = std::min(route.rate, capacity_[at(resource)] / load);
  }
  return route;
}

// Breadth first; a node of the next layer keeps its best trunk from the layer before, where better
// means wider, then quicker, then from a lower node.
void Routes::search_from(const Graph& graph, int rank) {
  struct Reach {
    int hops = -1;
    double width = 0;
    double latency = 0;
    int trunk = -1;
  };
  std::vector<Reach> reach(graph.nodes.size());
  const int start = graph.rank_nodes[at(rank)];
  reach[at(start)] = {0, std::numeric_limits<double>::infinity(), 0, -1};
  std::vector<int> layer = {start};
  while (!layer.empty()) {
    std::vector<int> next;
    for (int node : layer) {
      if (node != start && graph.is_rank(node)) continue;
      for (int t : out_[at(node)]) {
        const Trunk& trunk = trunks_[at(t)];
        Reach& old = reach[at(trunk.to)];
        const Reach way = {reach[at(node)].hops + 1,
                           std::min(reach[at(node)].width, trunk.capacity),
                           reach[at(node)].latency + trunk.latency_ns.value_or(0), t};
        if (old.hops < 0) next.push_back(trunk.to);
        if (old.hops < 0 ||
            (old.hops == way.hops &&
             (way.width > old.width || (way.width == old.width && way.latency < old.latency)))) {
          old = way;
        }
      }
    }
    std::sort(next.begin(), next.end());
    layer = std::move(next);
  }
  for (int target = 0; target < ranks_; ++target) {
    const int end = graph.rank_nodes[at(target)];
    if (target == rank || reach[at(end)].hops < 0) continue;
    std::vector<int> trunks;
    for (int node = end; node != start; node = trunks_[at(trunks.back())].from) {
      trunks.push_back(reach[at(node)].trunk);
    }
    std::reverse(trunks.begin(), trunks.end());
    routes_[slot(rank, target)] = make_route(trunks);
  }
}

const RankRoute* Routes::find(int from, int to) const {
  const auto& route = routes_[slot(from, to)];
  return route ? &*route : nullptr;
}

std::optional<RankRoute> Routes::along(std::span<const int> nodes) const {
  std::vector<int> trunks;
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    const auto found = trunk_between_.find({nodes[i], nodes[i + 1]});
    if (found == trunk_between_.end()) return std::nullopt;
    trunks.push_back(found->second);
  }
  if (trunks.empty()) return std::nullopt;
  return make_route(trunks);
}

bool Routes::check_independent() const {
  constexpr int kUnused = -1;
  constexpr int kMany = -2;
  std::vector<int> sender(capacity_.size(), kUnused);
  std::vector<int> receiver(capacity_.size(), kUnused);
  const auto note = [](int& known, int rank) {
    known = known == kUnused || known == rank ? rank : kMany;
  };
  for (int a = 0; a < ranks_; ++a) {
    for (int b = 0; b < ranks_; ++b) {
      const RankRoute* route = find(a, b);
      if (route == nullptr) continue;
      for (const Load& l : route->loads) {
        note(sender[at(l.resource)], a);
        note(receiver[at(l.resource)], b);
      }
    }
  }
  for (std::size_t r = 0; r < capacity_.size(); ++r) {
    if (sender[r] == kMany && receiver[r] == kMany) return false;
  }
  return true;
}

std::vector<double> Routes::ring_loads(std::span<const int> order) const {
  std::vector<double> loads(capacity_.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const RankRoute* route = find(order[i], order[(i + 1) % order.size()]);
    if (route == nullptr) return {};
    for (const Load& l : route->loads) loads[at(l.resource)] += l.load;
  }
  return loads;
}

double Routes::rate(std::span<const int> order) const {
  const std::vector<double> loads = ring_loads(order);
  double rate = loads.empty() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < loads.size(); ++r) {
    if (loads[r] > 0) rate = std::min(rate, capacity_[r] / loads[r]);
  }
  return rate;
}

double Routes::latency_or_worst(int from, int to) const {
  const RankRoute* route = find(from, to);
  return route != nullptr && route->latency_ns ? *route->latency_ns : worst_latency_ns_;
}

}  // namespace topocoll
