#include "planner/hosts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/index.h"
#include "planner/bound.h"

namespace topocoll {
namespace {

constexpr int kMostSteps = 200'000;  ///< of the search for a map

/// Part numbers as lists, those with ranks only; nothing if these are not equal parts of two ranks
/// or more.
std::optional<std::vector<std::vector<int>>> equal_parts(const Graph& graph,
                                                         const std::vector<int>& part) {
  std::map<int, std::vector<int>> members;
  std::map<int, int> ranks;
  for (std::size_t n = 0; n < part.size(); ++n) {
    members[part[n]].push_back(static_cast<int>(n));
    if (graph.nodes[n].rank >= 0) ++ranks[part[n]];
  }
  std::vector<std::vector<int>> result;
  for (const auto& [p, count] : ranks) {
    if (count < 2 || count != ranks.begin()->second) return std::nullopt;
    result.push_back(members[p]);
  }
  if (result.size() < 2) return std::nullopt;
  return result;
}

/// Switches that touch one host and no other join it, until nothing changes.
void adopt_switches(const Graph& graph, HostSplit& split) {
  std::vector<int> host(graph.nodes.size(), -1);
  for (std::size_t h = 0; h < split.hosts.size(); ++h) {
    for (const int n : split.hosts[h]) host[at(n)] = static_cast<int>(h);
  }
  for (bool changed = true; changed;) {
    std::vector<std::set<int>> touched(graph.nodes.size());
    for (const GraphLink& l : graph.links) {
      if (host[at(l.to)] >= 0) touched[at(l.from)].insert(host[at(l.to)]);
      if (host[at(l.from)] >= 0) touched[at(l.to)].insert(host[at(l.from)]);
    }
    changed = false;
    for (std::size_t n = 0; n < host.size(); ++n) {
      if (host[n] >= 0 || touched[n].size() != 1) continue;
      host[n] = *touched[n].begin();
      split.hosts[at(host[n])].push_back(static_cast<int>(n));
      changed = true;
    }
  }
  for (std::vector<int>& nodes : split.hosts) std::sort(nodes.begin(), nodes.end());
  for (std::size_t n = 0; n < host.size(); ++n) {
    if (host[n] < 0) split.network.push_back(static_cast<int>(n));
  }
}

/// A host's links by pair of nodes, and its ports, with capacities or with 1 for each.
struct Shape {
  std::vector<int> nodes;
  std::map<std::pair<int, int>, std::int64_t> links;  ///< by index into nodes
  std::vector<std::map<std::pair<int, bool>, std::int64_t>>
      ports;  ///< by network node, and whether it is outward
  std::vector<int> colour;
};

class Matcher {
 public:
  Matcher(const Graph& graph, const HostSplit& split, bool with_capacities)
      : graph_(graph), split_(split), with_capacities_(with_capacities) {}

  std::optional<std::vector<int>> run(int model, int host) {
    a_ = shape(model);
    b_ = shape(host);
    if (a_.nodes.size() != b_.nodes.size() || a_.links.size() != b_.links.size())
      return std::nullopt;
    refine();
    std::vector<int> colours[2] = {a_.colour, b_.colour};
    for (auto& c : colours) std::sort(c.begin(), c.end());
    if (colours[0] != colours[1]) return std::nullopt;
    partner_.assign(a_.nodes.size(), -1);
    taken_.assign(b_.nodes.size(), false);
    if (!search(0)) return std::nullopt;
    std::vector<int> result;
    for (const int p : partner_) result.push_back(b_.nodes[at(p)]);
    return result;
  }

 private:
  [[nodiscard]] Shape shape(int host) const {
    Shape result;
    result.nodes = split_.hosts[at(host)];
    std::map<int, int> index;
    for (std::size_t i = 0; i < result.nodes.size(); ++i)
      index[result.nodes[i]] = static_cast<int>(i);
    result.ports.resize(result.nodes.size());
    for (const GraphLink& l : graph_.links) {
      const auto from = index.find(l.from);
      const auto to = index.find(l.to);
      const std::int64_t weight = with_capacities_ ? l.capacity : 1;
      if (from != index.end() && to != index.end()) {
        result.links[{from->second, to->second}] += weight;
      } else if (from != index.end()) {
        result.ports[at(from->second)][{l.to, true}] += weight;
      } else if (to != index.end()) {
        result.ports[at(to->second)][{l.from, false}] += weight;
      }
    }
    return result;
  }

  /// Colours of both hosts from one palette.
  void refine() {
    using First = std::pair<bool, std::map<std::pair<int, bool>, std::int64_t>>;
    std::map<First, int> first;
    for (Shape* s : {&a_, &b_}) {
      for (std::size_t i = 0; i < s->nodes.size(); ++i)
        first.try_emplace({graph_.is_rank(s->nodes[i]), s->ports[i]}, 0);
    }
    number(first);
    for (Shape* s : {&a_, &b_}) {
      for (std::size_t i = 0; i < s->nodes.size(); ++i) {
        s->colour.push_back(first[{graph_.is_rank(s->nodes[i]), s->ports[i]}]);
      }
    }
    for (std::size_t known = first.size();;) {
      using Seen = std::pair<int, std::multiset<std::tuple<bool, std::int64_t, int>>>;
      std::map<Seen, int> palette;
      std::vector<Seen> seen[2] = {around(a_), around(b_)};
      for (const auto& list : seen) {
        for (const Seen& s : list) palette.try_emplace(s, 0);
      }
      number(palette);
      for (std::size_t i = 0; i < a_.colour.size(); ++i) {
        a_.colour[i] = palette[seen[0][i]];
        b_.colour[i] = palette[seen[1][i]];
      }
      if (palette.size() == known) return;
      known = palette.size();
    }
  }
  template <class Palette>
  static void number(Palette& palette) {
    int next = 0;
    for (auto& [key, colour] : palette) colour = next++;
  }
  static std::vector<std::pair<int, std::multiset<std::tuple<bool, std::int64_t, int>>>> around(
      const Shape& s) {
    std::vector<std::pair<int, std::multiset<std::tuple<bool, std::int64_t, int>>>> result(
        s.nodes.size());
    for (std::size_t i = 0; i < s.nodes.size(); ++i) result[i].first = s.colour[i];
    for (const auto& [pair, weight] : s.links) {
      result[at(pair.first)].second.insert({true, weight, s.colour[at(pair.second)]});
      result[at(pair.second)].second.insert({false, weight, s.colour[at(pair.first)]});
    }
    return result;
  }

  /// Partners for the nodes from `next` on; lower numbers are tried first.
  bool search(std::size_t next) {
    if (next == partner_.size()) return true;
    for (std::size_t p = 0; p < taken_.size(); ++p) {
      if (taken_[p] || a_.colour[next] != b_.colour[p]) continue;
      if (++steps_ > kMostSteps) return false;
      partner_[next] = static_cast<int>(p);
      taken_[p] = true;
      if (fits(next) && search(next + 1)) return true;
      taken_[p] = false;
      partner_[next] = -1;
    }
    return false;
  }
  [[nodiscard]] static std::int64_t weight(const Shape& s, int from, int to) {
    const auto found = s.links.find({from, to});
    return found == s.links.end() ? 0 : found->second;
  }
  [[nodiscard]] bool fits(std::size_t node) const {
    const int n = static_cast<int>(node);
    for (int other = 0; other < n; ++other) {
      const int p = partner_[node];
      const int q = partner_[at(other)];
      if (weight(a_, n, other) != weight(b_, p, q) || weight(a_, other, n) != weight(b_, q, p))
        return false;
    }
    return true;
  }

  const Graph& graph_;
  const HostSplit& split_;
  bool with_capacities_;
  Shape a_;
  Shape b_;
  std::vector<int> partner_;
  std::vector<bool> taken_;
  int steps_ = 0;
};

}  // namespace

std::optional<HostSplit> split_hosts(const Graph& graph) {
  // From many small parts to few large ones; the last that still are several is the least
  // threshold's.
  std::optional<HostSplit> result;
  for (const std::vector<int>& partition : partitions(graph)) {
    auto parts = equal_parts(graph, partition);
    if (parts) result = HostSplit{std::move(*parts), {}};
  }
  if (!result) return std::nullopt;
  const auto first_rank = [&](const std::vector<int>& nodes) {
    int first = graph.ranks();
    for (const int n : nodes) {
      if (graph.is_rank(n)) first = std::min(first, graph.nodes[at(n)].rank);
    }
    return first;
  };
  std::sort(result->hosts.begin(), result->hosts.end(),
            [&](const auto& a, const auto& b) { return first_rank(a) < first_rank(b); });
  adopt_switches(graph, *result);
  return result;
}

std::optional<std::vector<int>> map_host(const Graph& graph, const HostSplit& split, int model,
                                         int host, bool with_capacities) {
  return Matcher(graph, split, with_capacities).run(model, host);
}

HostClasses classify(const Graph& graph, const HostSplit& split) {
  HostClasses result;
  std::vector<int> models;  // of each class
  for (int h = 0; h < static_cast<int>(split.hosts.size()); ++h) {
    int found = -1;
    std::optional<std::vector<int>> nodes;
    for (std::size_t c = 0; c < models.size() && !nodes; ++c) {
      nodes = map_host(graph, split, models[c], h, true);
      if (nodes) found = static_cast<int>(c);
    }
    if (!nodes) {
      found = static_cast<int>(models.size());
      models.push_back(h);
      nodes = h == 0 ? split.hosts[0]
                     : map_host(graph, split, 0, h, false).value_or(std::vector<int>());
      result.nodes.push_back(std::move(*nodes));
    } else {
      // By way of the class's model, whose partners of host 0 are known.
      const std::vector<int>& model = result.nodes[at(models[at(found)])];
      std::map<int, int> partner;
      for (std::size_t i = 0; i < nodes->size(); ++i)
        partner[split.hosts[at(models[at(found)])][i]] = (*nodes)[i];
      std::vector<int> order;
      for (const int n : model) order.push_back(partner[n]);
      result.nodes.push_back(std::move(order));
    }
    result.class_of.push_back(found);
  }
  result.classes = static_cast<int>(models.size());
  return result;
}

}  // namespace topocoll
