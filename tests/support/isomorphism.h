// Whether two small graphs of GPUs are one and the same but for the names.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "topocoll/topology.h"

namespace topocoll::testing_support {

/// Declared GB/s between GPUs, by their order in the topology; 0: no link.
inline std::vector<std::vector<double>> gpu_links(const Topology& topology) {
  std::map<std::string, std::size_t> ordered;
  std::size_t next = 0;
  for (const TopologyNode* gpu : topology.of_kind(NodeKind::kGpu)) ordered[gpu->id] = next++;
  std::vector<std::vector<double>> links(next, std::vector<double>(next, 0));
  for (const TopologyEdge& edge : topology.edges) {
    const auto from = ordered.find(edge.from);
    const auto to = ordered.find(edge.to);
    if (from == ordered.end() || to == ordered.end() || is_tree_edge(edge)) continue;
    links[from->second][to->second] += edge.bandwidth_gbps.declared.value_or(0);
  }
  return links;
}

using Links = std::vector<std::vector<double>>;

/// A vertex can stand for another only if its sorted links agree.
inline std::vector<double> signature(const Links& links, std::size_t v) {
  std::vector<double> out = links[v];
  std::sort(out.begin(), out.end());
  return out;
}

inline bool extend(const Links& a, const Links& b, std::vector<std::size_t>& map,
                   std::vector<bool>& used) {
  const std::size_t v = map.size();
  if (v == a.size()) return true;
  for (std::size_t w = 0; w < b.size(); ++w) {
    if (used[w] || signature(a, v) != signature(b, w)) continue;
    bool fits = true;
    for (std::size_t u = 0; u < v && fits; ++u) {
      fits = a[v][u] == b[w][map[u]] && a[u][v] == b[map[u]][w];
    }
    if (!fits) continue;
    map.push_back(w);
    used[w] = true;
    if (extend(a, b, map, used)) return true;
    map.pop_back();
    used[w] = false;
  }
  return false;
}

inline bool isomorphic(const Links& a, const Links& b) {
  if (a.size() != b.size()) return false;
  std::vector<std::size_t> map;
  std::vector<bool> used(b.size(), false);
  return extend(a, b, map, used);
}

}  // namespace topocoll::testing_support
