// Trees over the nodes of a cluster, by place: a path, or a binary tree in in-order numbering
// (double_tree.h). Thread rule: a value. Failure rule: nothing fails; places are 0 to nodes - 1.
#pragma once

#include <vector>

#include "planner/hierarchy.h"

namespace topocoll {

class NodeTree {
 public:
  /// The tree that item `item` of a plan takes.
  NodeTree(const HierarchicalPlan& plan, int item);

  [[nodiscard]] int root() const { return binary_ ? place(root_label_) : shift_; }
  [[nodiscard]] int depth(int place) const;
  /// Of a place that is not the root.
  [[nodiscard]] int parent(int place) const;
  [[nodiscard]] std::vector<int> children(int place) const;

  /// What a slot's items ask of a node and of a leaf where it is most, over all trees of the shape.
  struct Degrees {
    std::int64_t trees = 1;
    std::int64_t children = 0;  ///< of one node, over the trees
    std::int64_t across = 0;    ///< edges that leave, or enter, a leaf
  };
  /// Of kDoubleTree and kBinaryTree.
  static Degrees degrees(NodeShape shape, const Cluster& cluster, const std::vector<int>& order);

 private:
  NodeTree(int nodes, bool binary, int shift);
  /// Number from 1 in the binary tree.
  [[nodiscard]] int label(int place) const { return (place - shift_ + nodes_) % nodes_ + 1; }
  [[nodiscard]] int place(int label) const { return (label - 1 + shift_) % nodes_; }

  int nodes_;
  bool binary_;
  int shift_;       ///< the place where a path begins; of label 1 of a binary tree
  int root_label_;  ///< the largest power of two
};

}  // namespace topocoll
