#include "planner/node_tree.h"

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "planner/double_tree.h"

namespace topocoll {
namespace {

int root_label(int n) {
  int label = 1;
  while (label <= n / 2) label *= 2;
  return label;
}

}  // namespace

NodeTree::NodeTree(int nodes, bool binary, int shift)
    : nodes_(nodes), binary_(binary), shift_(shift), root_label_(root_label(nodes)) {}

NodeTree::NodeTree(const HierarchicalPlan& plan, int item)
    : NodeTree(plan.cluster.nodes, false, 0) {
  switch (plan.shape) {
    case NodeShape::kRing:
      shift_ = item / plan.slots();
      return;
    case NodeShape::kDoubleTree:
      binary_ = true;
      shift_ = item < plan.slots() ? 0 : nodes_ - 1;
      return;
    case NodeShape::kChain:
      return;
    case NodeShape::kBinaryTree:
      *this = NodeTree(nodes_, true, nodes_ - root_label_ + 1);
      return;
  }
}

int NodeTree::depth(int p) const {
  if (!binary_) return (p - shift_ + nodes_) % nodes_;
  int depth = 0;
  for (int l = binary_parent(label(p), nodes_); l != 0; l = binary_parent(l, nodes_)) ++depth;
  return depth;
}

int NodeTree::parent(int p) const {
  if (!binary_) return (p + nodes_ - 1) % nodes_;
  return place(binary_parent(label(p), nodes_));
}

std::vector<int> NodeTree::children(int p) const {
  if (!binary_) {
    const int next = (p + 1) % nodes_;
    return next == shift_ ? std::vector<int>() : std::vector<int>{next};
  }
  std::vector<int> result;
  const int own = label(p);
  const int low = own & -own;
  if (low > 1) result.push_back(place(own - low / 2));
  // The right child is the nearest number that exists where the full tree's one does not.
  for (int step = low / 2; step >= 1; step /= 2) {
    if (own + step > nodes_) continue;
    result.push_back(place(own + step));
    break;
  }
  return result;
}

NodeTree::Degrees NodeTree::degrees(NodeShape shape, const Cluster& cluster,
                                    const std::vector<int>& order) {
  const int n = cluster.nodes;
  std::vector<NodeTree> trees;
  if (shape == NodeShape::kDoubleTree) {
    trees = {NodeTree(n, true, 0), NodeTree(n, true, n - 1)};
  } else {
    trees = {NodeTree(n, true, n - root_label(n) + 1)};
  }
  Degrees result;
  result.trees = static_cast<std::int64_t>(trees.size());
  std::vector<std::int64_t> children(at(n), 0);
  std::vector<std::int64_t> leaving(at(cluster.leaves()), 0);
  std::vector<std::int64_t> entering(at(cluster.leaves()), 0);
  for (const NodeTree& tree : trees) {
    for (int p = 0; p < n; ++p) {
      for (const int child : tree.children(p)) {
        ++children[at(p)];
        const int from = cluster.leaf_of(order[at(p)]);
        const int to = cluster.leaf_of(order[at(child)]);
        if (from == to) continue;
        ++leaving[at(from)];
        ++entering[at(to)];
      }
    }
  }
  result.children = *std::max_element(children.begin(), children.end());
  result.across = std::max(*std::max_element(leaving.begin(), leaving.end()),
                           *std::max_element(entering.begin(), entering.end()));
  return result;
}

}  // namespace topocoll
