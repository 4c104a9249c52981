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
  find_only_numa();
}

void TopologyTree::find_only_numa() {
  only_numa_.resize(parent_.size(), kNone);
  for (std::size_t numa = 0; numa < parent_.size(); ++numa) {
    if (topology_.nodes[numa].kind != NodeKind::kNumaNode) continue;
    // Above a node with many are only such, so every node is passed twice at most, in cycles too.
    for (std::size_t i = numa; i != kNone && only_numa_[i] != kMany; i = parent_[i]) {
      only_numa_[i] = only_numa_[i] == kNone ? numa : kMany;
    }
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

std::size_t TopologyTree::numa_of(std::size_t node) const {
  const std::size_t direct = above(node, NodeKind::kNumaNode);
  if (direct != kNone) return direct;
  // Where a package or a host has one NUMA node only, that is the one.
  for (const std::size_t i : path_up(node)) {
    if (!is_processor(topology_.nodes[i].kind) || only_numa_[i] == kNone) continue;
    return only_numa_[i] == kMany ? kNone : only_numa_[i];
  }
  return kNone;
}

}  // namespace topocoll
