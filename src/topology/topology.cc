#include "topocoll/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "topology/hwloc_reader.h"

namespace topocoll {
namespace {

constexpr std::array<std::string_view, 6> kKindNames = {"host",  "package", "numa",
                                                        "cache", "core",    "cpu"};
static_assert(kKindNames.size() == static_cast<std::size_t>(NodeKind::kCpu) + 1);

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace

std::string_view name(NodeKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < kKindNames.size() ? kKindNames[index] : "?";
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

// Names of hosts, memory sizes (which vary from boot to boot), versions and measured figures do not
// belong to the make-up; the order of nodes and edges does not matter.
std::string Topology::fingerprint() const {
  std::vector<std::string> facts;
  for (const TopologyNode& node : nodes) {
    const auto size = node.kind == NodeKind::kCache ? node.size_bytes.value_or(0) : 0;
    facts.push_back(fmt::format("node {} {} \"{}\" {} {} {}", node.id, topocoll::name(node.kind),
                                node.label, size, node.level.value_or(0), cpu_ranges(node.cpus)));
  }
  for (const TopologyEdge& edge : edges) {
    facts.push_back(fmt::format("edge {} {} {}", edge.from, edge.to, edge.kind));
  }
  std::sort(facts.begin(), facts.end());
  return fmt::format("{:016x}", fnv1a(fmt::format("{}", fmt::join(facts, "\n"))));
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
