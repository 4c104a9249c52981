#include "planner/expression.h"

#include <algorithm>
#include <functional>

namespace topocoll {

ExpressionPool::Id ExpressionPool::find_or_add(Node node) {
  auto& known = node.is_leaf ? leaves_ : sums_;
  const std::uint64_t key = (std::uint64_t{node.left} << 32) | node.right;
  const auto [entry, added] = known.try_emplace(key, static_cast<Id>(nodes_.size()));
  if (added) nodes_.push_back(node);
  return entry->second;
}

ExpressionPool::Id ExpressionPool::leaf(Contribution contribution) {
  return find_or_add({static_cast<std::uint32_t>(contribution.rank),
                      static_cast<std::uint32_t>(contribution.chunk), true});
}

ExpressionPool::Id ExpressionPool::combine(Id left, Id right) {
  return find_or_add({left, right, false});
}

// An expression may stand for 2^k terms after k doublings, so terms are counted over the shared
// nodes: a node's id is above those of its parts, hence taking the largest id first sees every use
// of a node before the node itself.
std::map<Contribution, std::uint64_t> ExpressionPool::contributions(Id id) const {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 32;
  std::map<Contribution, std::uint64_t> result;
  std::map<Id, std::uint64_t, std::greater<>> uses{{id, 1}};
  while (!uses.empty()) {
    const auto [current, count] = *uses.begin();
    uses.erase(uses.begin());
    const Node& node = nodes_[current];
    if (node.is_leaf) {
      result[{static_cast<int>(node.left), static_cast<int>(node.right)}] = count;
    } else {
      for (Id part : {node.left, node.right}) {
        std::uint64_t& n = uses[part];
        n = std::min(n + count, kMany);
      }
    }
  }
  return result;
}

std::string ExpressionPool::to_string(Id id, std::size_t max_bytes) const {
  struct Item {
    Id id = kNothing;
    char text = 0;  // set: a bracket or an operator
  };
  std::string result;
  std::vector<Item> todo{{id, 0}};
  while (!todo.empty()) {
    if (result.size() > max_bytes) return result + "...";
    const Item item = todo.back();
    todo.pop_back();
    const Node& node = nodes_[item.id];
    if (item.text != 0) {
      result += item.text;
    } else if (node.is_leaf) {
      result += std::to_string(node.left);
    } else {
      result += '(';
      todo.insert(todo.end(), {{kNothing, ')'}, {node.right, 0}, {kNothing, '+'}, {node.left, 0}});
    }
  }
  return result;
}

}  // namespace topocoll
