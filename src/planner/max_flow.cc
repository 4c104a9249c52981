#include "planner/max_flow.h"

#include <algorithm>

namespace topocoll {

int MaxFlow::add_arc(int from, int to, std::int64_t capacity, std::int64_t back) {
  const int arc = static_cast<int>(arcs_.size()) / 2;
  arcs_.push_back({to, head_[static_cast<std::size_t>(from)], capacity, 0});
  head_[static_cast<std::size_t>(from)] = 2 * arc;
  arcs_.push_back({from, head_[static_cast<std::size_t>(to)], back, 0});
  head_[static_cast<std::size_t>(to)] = 2 * arc + 1;
  return arc;
}

std::int64_t MaxFlow::run(int source, int target, std::int64_t limit) {
  for (Arc& arc : arcs_) arc.left = arc.capacity;
  if (source == target) return limit;
  std::int64_t flow = 0;
  while (flow < limit && levels(source, target)) {
    at_ = head_;
    while (flow < limit) {
      const std::int64_t pushed = push(source, target, limit - flow);
      if (pushed == 0) break;
      flow += pushed;
    }
  }
  return flow;
}

// Breadth first from the source over arcs with capacity left; stops when the target has its level.
bool MaxFlow::levels(int source, int target) {
  level_.assign(head_.size(), -1);
  queue_.clear();
  queue_.push_back(source);
  level_[static_cast<std::size_t>(source)] = 0;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const auto node = static_cast<std::size_t>(queue_[i]);
    for (int a = head_[node]; a >= 0; a = arcs_[static_cast<std::size_t>(a)].next) {
      const Arc& arc = arcs_[static_cast<std::size_t>(a)];
      int& level = level_[static_cast<std::size_t>(arc.to)];
      if (arc.left == 0 || level >= 0) continue;
      level = level_[node] + 1;
      if (arc.to == target) return true;
      queue_.push_back(arc.to);
    }
  }
  return false;
}

// Depth is bounded by the number of nodes, which kMaxGraphNodes bounds.
std::int64_t MaxFlow::push(int node, int target, std::int64_t limit) {
  if (node == target) return limit;
  const auto n = static_cast<std::size_t>(node);
  std::int64_t total = 0;
  for (; at_[n] >= 0; at_[n] = arcs_[static_cast<std::size_t>(at_[n])].next) {
    const auto a = static_cast<std::size_t>(at_[n]);
    const int to = arcs_[a].to;
    if (arcs_[a].left == 0 || level_[static_cast<std::size_t>(to)] != level_[n] + 1) continue;
    const std::int64_t pushed = push(to, target, std::min(limit - total, arcs_[a].left));
    arcs_[a].left -= pushed;
    arcs_[a ^ 1U].left += pushed;
    total += pushed;
    if (total == limit) return total;  // this arc may still have capacity left
  }
  return total;
}

std::vector<bool> MaxFlow::source_side() const {
  std::vector<bool> side(level_.size());
  for (std::size_t i = 0; i < level_.size(); ++i) side[i] = level_[i] >= 0;
  return side;
}

}  // namespace topocoll
