#include "topology/device_paths.h"

#include <algorithm>

namespace topocoll {
namespace {

std::string link_word(const std::string& kind, const std::optional<int>& count) {
  const std::string number = count ? std::to_string(*count) : "";
  if (kind == "nvlink") return "NV" + number;
  if (kind == "xgmi") return "XGMI";
  if (kind == "c2c") return "C2C";
  return kind == "network" ? "NET" : "LNK";
}

}  // namespace

DevicePaths::DevicePaths(const Topology& topology, const TopologyTree& tree)
    : topology_(topology), tree_(tree) {
  for (const TopologyEdge& edge : topology.edges) {
    const std::size_t to = tree_.index(edge.to);
    if (is_tree_edge(edge) || is_measurement(edge) || to == TopologyTree::kNone) continue;
    if (is_inferred(node(to))) continue;  // nobody declares it
    links_[{edge.from, edge.to}] = &edge;
    if (is_switch(node(to).kind)) switches_[edge.from].emplace_back(&edge);
  }
}

std::string DevicePaths::word(std::size_t a, std::size_t b) const {
  if (a == b) return "X";
  const auto direct = links_.find({node(a).id, node(b).id});
  if (direct != links_.end()) return link_word(direct->second->kind, direct->second->count);
  if (const std::string through = through_switch(a, b); !through.empty()) return through;
  return tree_path(a, b);
}

/// Both have links to one and the same switch: all of the first's links lead to such.
std::string DevicePaths::through_switch(std::size_t a, std::size_t b) const {
  const auto of_a = switches_.find(node(a).id);
  const auto of_b = switches_.find(node(b).id);
  if (of_a == switches_.end() || of_b == switches_.end()) return "";
  int count = 0;
  bool counted = true;
  const TopologyEdge* shared = nullptr;
  for (const TopologyEdge* up : of_a->second) {
    const bool common = std::any_of(of_b->second.begin(), of_b->second.end(),
                                    [&](const TopologyEdge* other) { return other->to == up->to; });
    if (!common) continue;
    shared = up;
    counted = counted && up->count;
    count += up->count.value_or(0);
  }
  if (shared == nullptr) return "";
  return link_word(shared->kind, counted ? std::optional<int>(count) : std::nullopt);
}

std::string DevicePaths::tree_path(std::size_t a, std::size_t b) const {
  const auto up_a = tree_.path_up(a);
  const auto up_b = tree_.path_up(b);
  // From the root down to where they part.
  std::size_t depth_a = up_a.size();
  std::size_t depth_b = up_b.size();
  while (depth_a > 0 && depth_b > 0 && up_a[depth_a - 1] == up_b[depth_b - 1]) {
    --depth_a;
    --depth_b;
  }
  if (depth_a == up_a.size()) return between_roots(up_a.back(), up_b.back());
  const std::size_t meet = up_a[depth_a];
  if (node(meet).kind == NodeKind::kPciBridge) {
    const bool near = is_one_switch(up_a, depth_a) && is_one_switch(up_b, depth_b);
    return near ? "PIX" : "PXB";
  }
  // The host's only NUMA node counts as the place where its devices are.
  const std::size_t numa_a = tree_.numa_of(a);
  const bool one_numa = numa_a != TopologyTree::kNone && numa_a == tree_.numa_of(b);
  if (!one_numa) return "SYS";
  return depth_a > 0 && depth_b > 0 && bus(up_a[depth_a - 1]) == bus(up_b[depth_b - 1]) ? "PHB"
                                                                                        : "NODE";
}

std::string DevicePaths::between_roots(std::size_t a, std::size_t b) const {
  const bool hosts = node(a).kind == NodeKind::kHost && node(b).kind == NodeKind::kHost;
  return hosts ? "NET" : "-";
}

/// Below the bridge where two paths meet there is the device, or one port with nothing but it:
/// the downstream port of the same switch.
bool DevicePaths::is_one_switch(const std::vector<std::size_t>& up, std::size_t meet) const {
  if (meet <= 1) return true;
  return meet == 2 && tree_.children(up[1]).size() == 1;
}

std::string DevicePaths::bus(std::size_t i) const {
  return node(i).bdf.substr(0, node(i).bdf.rfind(':'));
}

}  // namespace topocoll
