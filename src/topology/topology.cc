#include "topocoll/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "topology/hwloc_reader.h"
#include "topology/inferred.h"

namespace topocoll {
namespace {

constexpr std::array<std::string_view, kNumNodeKinds> kKindNames = {
    "host",       "package", "numa",     "cache",  "core", "cpu",     "pci_bridge",
    "pci_device", "gpu",     "nvswitch", "switch", "nic",  "nic_port"};
static_assert(static_cast<int>(NodeKind::kNicPort) + 1 == kNumNodeKinds);

}  // namespace

std::string_view name(NodeKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < kKindNames.size() ? kKindNames[index] : "?";
}

bool is_tree_edge(const TopologyEdge& edge) {
  return edge.kind == "contains" || edge.kind == "pci";
}

bool is_measurement(const TopologyEdge& edge) {
  return edge.kind == "coherence" || edge.kind == "memory" || edge.kind == "transfer";
}

bool is_inferred(const TopologyNode& node) { return node.attributes.contains(kInferredFrom); }

const std::vector<std::string_view>& edge_kinds() {
  static const std::vector<std::string_view> kinds = {
      "contains", "pci",  "nvlink",    "xgmi",   "c2c",     "interconnect",
      "network",  "link", "coherence", "memory", "transfer"};
  return kinds;
}

double pci_bandwidth_gbps(double speed_gts, int width) {
  const double coding = speed_gts <= 5.0 ? 8.0 / 10 : speed_gts <= 32.0 ? 128.0 / 130 : 242.0 / 256;
  return speed_gts * width * coding / 8;
}

const TopologyNode* Topology::find(std::string_view id) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const TopologyNode& n) { return n.id == id; });
  return found == nodes.end() ? nullptr : &*found;
}

std::vector<const TopologyNode*> Topology::of_kind(NodeKind kind) const {
  std::vector<const TopologyNode*> result;
  for (const TopologyNode& node : nodes) {
    if (node.kind == kind) result.push_back(&node);
  }
  return result;
}

const TopologyNode* Topology::parent(std::string_view id) const {
  for (const TopologyEdge& edge : edges) {
    if (edge.to == id && is_tree_edge(edge)) return find(edge.from);
  }
  return nullptr;
}

// Names of hosts, memory sizes (which vary from boot to boot), versions and what was measured do not
// belong to the make-up; the order of nodes and edges does not matter.
std::string Topology::fingerprint() const {
  std::vector<std::string> facts;
  const InferredLinks inferred(*this);
  for (const TopologyNode& node : nodes) {
    if (is_inferred(node)) continue;
    const auto size = node.kind == NodeKind::kCache ? node.size_bytes.value_or(0) : 0;
    facts.push_back(fmt::format("node {} {} \"{}\" {} {} {}", node.id, topocoll::name(node.kind),
                                node.label, size, node.level.value_or(0), cpu_ranges(node.cpus)));
  }
  for (const TopologyEdge& edge : edges) {
    if (is_measurement(edge) || inferred.contain(edge)) continue;
    const std::string count = edge.count ? fmt::format(" x{}", *edge.count) : "";
    facts.push_back(fmt::format("edge {} {} {}{}", edge.from, edge.to, edge.kind, count));
  }
  std::sort(facts.begin(), facts.end());
  return hash_text(fmt::format("{}", fmt::join(facts, "\n")));
}

std::string cpu_ranges(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[first]);
    if (last > first) text += "-" + std::to_string(cpus[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace topocoll
