#include "topology/pair_class.h"

#include <fmt/format.h>

#include <algorithm>

namespace topocoll {

CpuPair PairClasses::of(std::size_t a, std::size_t b) {
  std::string types = type(a);
  if (type(b) != types) types = std::min(types, type(b)) + " and " + std::max(types, type(b));
  const int one = topology_.nodes[a].os_index.value_or(0);
  const int other = topology_.nodes[b].os_index.value_or(0);
  return {std::min(one, other), std::max(one, other),
          meeting(a, b) + (types.empty() ? "" : ", " + types)};
}

std::optional<CpuPair> PairClasses::of(const std::string& a, const std::string& b) {
  const std::size_t one = tree_.index(a);
  const std::size_t other = tree_.index(b);
  for (const std::size_t node : {one, other}) {
    if (node == TopologyTree::kNone || !topology_.nodes[node].os_index) return std::nullopt;
  }
  return of(one, other);
}

std::string PairClasses::meeting(std::size_t a, std::size_t b) {
  const auto& above_b = path(b);
  for (const std::size_t node : path(a)) {
    if (std::find(above_b.begin(), above_b.end(), node) == above_b.end()) continue;
    const TopologyNode& shared = topology_.nodes[node];
    if (shared.kind == NodeKind::kCache) return fmt::format("l{}", shared.level.value_or(0));
    return std::string(name(shared.kind));
  }
  return "nothing";
}

const std::vector<std::size_t>& PairClasses::path(std::size_t cpu) {
  auto& known = paths_[cpu];
  if (known.empty()) known = tree_.path_up(cpu);
  return known;
}

std::string PairClasses::type(std::size_t cpu) const {
  const std::size_t core = tree_.above(cpu, NodeKind::kCore);
  if (core == TopologyTree::kNone) return "";
  return topology_.nodes[core].attribute("CoreType");
}

}  // namespace topocoll
