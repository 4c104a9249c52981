// The tree of a topology by index: what stands below what, without looking ids up again and again.
// Thread rule: a value that refers to its topology. Failure rule: edges to nowhere are left out,
// and of several parents the first counts.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "topocoll/topology.h"

namespace topocoll {

class TopologyTree {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  explicit TopologyTree(const Topology& topology);

  [[nodiscard]] std::size_t index(std::string_view id) const;
  [[nodiscard]] std::size_t parent(std::size_t node) const { return parent_[node]; }
  /// The edge from the parent, or null.
  [[nodiscard]] const TopologyEdge* edge_above(std::size_t node) const { return above_[node]; }
  [[nodiscard]] const std::vector<std::size_t>& children(std::size_t node) const {
    return children_[node];
  }
  /// Nodes without a parent, in the topology's order.
  [[nodiscard]] const std::vector<std::size_t>& roots() const { return roots_; }
  /// `node` and everything above it, upwards; ends even where the edges make a cycle.
  [[nodiscard]] std::vector<std::size_t> path_up(std::size_t node) const;
  /// The nearest node of this kind from `node` upwards, or kNone.
  [[nodiscard]] std::size_t above(std::size_t node, NodeKind kind) const;
  /// The NUMA node that a device is local to: above it, or the only one below its parent; kNone if
  /// the tree does not say.
  [[nodiscard]] std::size_t numa_of(std::size_t node) const;

 private:
  /// kNone: no NUMA node stands there or below; kMany: several.
  static constexpr std::size_t kMany = kNone - 1;
  void find_only_numa();

  const Topology& topology_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::vector<std::size_t> parent_;
  std::vector<const TopologyEdge*> above_;
  std::vector<std::vector<std::size_t>> children_;
  std::vector<std::size_t> roots_;
  std::vector<std::size_t> only_numa_;  ///< of each node, itself included
};

}  // namespace topocoll
