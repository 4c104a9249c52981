#include "planner/min_tree.h"

#include <algorithm>
#include <utility>

#include "base/index.h"

namespace topocoll {
namespace {

struct Arc {
  int from = 0;
  int to = 0;
  double cost = 0;
  int id = 0;  ///< in the arcs of the level above
};

/// The cheapest arc into each vertex but the root; -1: none.
std::vector<int> cheapest_into(int n, int root, const std::vector<Arc>& arcs) {
  std::vector<int> best(at(n), -1);
  for (int a = 0; a < static_cast<int>(arcs.size()); ++a) {
    const Arc& arc = arcs[at(a)];
    if (arc.to == root || arc.from == arc.to) continue;
    int& known = best[at(arc.to)];
    if (known < 0 || arc.cost < arcs[at(known)].cost) known = a;
  }
  return best;
}

/// Number of the contracted vertex for each vertex: a cycle of cheapest arcs becomes one.
std::pair<std::vector<int>, int> contract(int n, int root, const std::vector<Arc>& arcs,
                                          const std::vector<int>& best) {
  std::vector<int> group(at(n), -1);
  std::vector<int> seen(at(n), -1);
  int groups = 0;
  for (int start = 0; start < n; ++start) {
    int v = start;
    while (v != root && seen[at(v)] < 0) {
      seen[at(v)] = start;
      v = arcs[at(best[at(v)])].from;
    }
    if (v == root || seen[at(v)] != start || group[at(v)] >= 0) continue;
    const int cycle = groups++;
    for (; group[at(v)] < 0; v = arcs[at(best[at(v)])].from) group[at(v)] = cycle;
  }
  const int cycles = groups;
  for (int v = 0; v < n; ++v) {
    if (group[at(v)] < 0) group[at(v)] = groups++;
  }
  return {std::move(group), cycles};
}

/// Indices into `arcs` of the tree; empty if a vertex cannot be reached.
std::vector<int> solve(int n, int root, const std::vector<Arc>& arcs) {
  std::vector<int> best = cheapest_into(n, root, arcs);
  for (int v = 0; v < n; ++v) {
    if (v != root && best[at(v)] < 0) return {};
  }
  const auto [group, cycles] = contract(n, root, arcs, best);
  if (cycles > 0) {
    const int groups = *std::max_element(group.begin(), group.end()) + 1;
    std::vector<Arc> inner;
    for (int a = 0; a < static_cast<int>(arcs.size()); ++a) {
      const Arc& arc = arcs[at(a)];
      if (arc.to == root || group[at(arc.from)] == group[at(arc.to)]) continue;
      inner.push_back(
          {group[at(arc.from)], group[at(arc.to)], arc.cost - arcs[at(best[at(arc.to)])].cost, a});
    }
    const std::vector<int> chosen = solve(groups, group[at(root)], inner);
    if (chosen.empty()) return {};
    // The arc that enters a cycle takes the place of the cycle's own arc there.
    for (const int i : chosen) best[at(arcs[at(inner[at(i)].id)].to)] = inner[at(i)].id;
  }
  std::vector<int> result;
  for (int v = 0; v < n; ++v) {
    if (v != root) result.push_back(best[at(v)]);
  }
  return result;
}

}  // namespace

std::vector<int> cheapest_tree(const std::vector<double>& cost, int n, int root) {
  std::vector<Arc> arcs;
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      const double c = cost[at(a) * at(n) + at(b)];
      if (a != b && c < kNoArc) arcs.push_back({a, b, c, 0});
    }
  }
  std::vector<int> parent(at(n), -1);
  if (n == 1) return parent;
  const std::vector<int> tree = solve(n, root, arcs);
  if (tree.empty()) return {};
  for (const int a : tree) parent[at(arcs[at(a)].to)] = arcs[at(a)].from;
  return parent;
}

RankPaths cheapest_paths(const Graph& graph, const std::vector<double>& link_price) {
  const std::size_t n = graph.rank_nodes.size();
  const std::size_t nodes = graph.nodes.size();
  std::vector<std::vector<int>> outgoing(nodes);
  for (std::size_t l = 0; l < graph.links.size(); ++l) {
    outgoing[at(graph.links[l].from)].push_back(static_cast<int>(l));
  }
  RankPaths result{std::vector<double>(n * n, kNoArc), std::vector<std::vector<int>>(n * n)};
  using Length = std::pair<double, int>;
  for (std::size_t r = 0; r < n; ++r) {
    const auto start = at(graph.rank_nodes[r]);
    std::vector<Length> length(nodes, {kNoArc, 0});
    std::vector<int> last(nodes, -1);
    std::vector<bool> done(nodes, false);
    length[start] = {0, 0};
    for (;;) {
      std::size_t node = nodes;
      for (std::size_t v = 0; v < nodes; ++v) {
        if (!done[v] && length[v].first < kNoArc && (node == nodes || length[v] < length[node]))
          node = v;
      }
      if (node == nodes) break;
      done[node] = true;
      if (node != start && graph.nodes[node].rank >= 0) continue;  // ranks end a path
      for (const int l : outgoing[node]) {
        const auto to = at(graph.links[at(l)].to);
        const Length next{length[node].first + link_price[at(l)], length[node].second + 1};
        if (done[to] || !(next < length[to])) continue;
        length[to] = next;
        last[to] = l;
      }
    }
    for (std::size_t q = 0; q < n; ++q) {
      auto node = at(graph.rank_nodes[q]);
      if (q == r || length[node].first >= kNoArc) continue;
      result.cost[r * n + q] = length[node].first;
      std::vector<int>& path = result.path[r * n + q];
      for (; node != start; node = at(graph.links[at(path.back())].from))
        path.push_back(last[node]);
      std::reverse(path.begin(), path.end());
    }
  }
  return result;
}

}  // namespace topocoll
