#include "topology/tree.h"

namespace topocoll {

TopologyTree::TopologyTree(const Topology& topology) : topology_(topology) {
  const std::size_t count = topology.nodes.size();
  for (std::size_t i = 0; i < count; ++i) index_.emplace(topology.nodes[i].id, i);
  parent_.resize(count, kNone);
  above_.resize(count, nullptr);
  children_.resize(count);
  for (const TopologyEdge& edge : topology.edges) {
    const std::size_t from = index(edge.from);
    const std::size_t to = index(edge.to);
    if (!is_tree_edge(edge) || from == kNone || to == kNone || above_[to] != nullptr) continue;
    parent_[to] = from;
    above_[to] = &edge;
    children_[from].push_back(to);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (parent_[i] == kNone) roots_.push_back(i);
  }
}

std::size_t TopologyTree::index(std::string_view id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? kNone : found->second;
}

std::vector<std::size_t> TopologyTree::path_up(std::size_t node) const {
  std::vector<std::size_t> path;
  while (node != kNone && path.size() <= parent_.size()) {
    path.push_back(node);
    node = parent_[node];
  }
  return path;
}

std::size_t TopologyTree::above(std::size_t node, NodeKind kind) const {
  for (const std::size_t i : path_up(node)) {
    if (topology_.nodes[i].kind == kind) return i;
  }
  return kNone;
}

void TopologyTree::collect_numa(std::size_t node, std::vector<std::size_t>& found) const {
  std::vector<std::size_t> open{node};
  while (!open.empty() && found.size() < 2) {
    const std::size_t next = open.back();
    open.pop_back();
    if (topology_.nodes[next].kind == NodeKind::kNumaNode) found.push_back(next);
    open.insert(open.end(), children_[next].begin(), children_[next].end());
  }
}

std::size_t TopologyTree::numa_of(std::size_t node) const {
  const std::size_t direct = above(node, NodeKind::kNumaNode);
  if (direct != kNone) return direct;
  // Where a package or a host has one NUMA node only, that is the one.
  for (const std::size_t i : path_up(node)) {
    if (!is_processor(topology_.nodes[i].kind)) continue;
    std::vector<std::size_t> found;
    collect_numa(i, found);
    if (found.size() == 1) return found.front();
    if (!found.empty()) return kNone;
  }
  return kNone;
}

}  // namespace topocoll
