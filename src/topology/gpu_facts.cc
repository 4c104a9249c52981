#include "topology/gpu_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr const char* kNvidia = "0x10de";
constexpr std::array<double, 6> kGenerationsGts = {2.5, 5, 8, 16, 32, 64};
constexpr int kMostLanes = 32;

std::optional<double> speed_of(const std::optional<int>& generation) {
  if (!generation || *generation < 1) return std::nullopt;
  const auto index = static_cast<std::size_t>(*generation) - 1;
  return index < kGenerationsGts.size() ? std::optional(kGenerationsGts[index]) : std::nullopt;
}

template <class T>
void fill(std::optional<T>& target, const std::optional<T>& value) {
  if (!target) target = value;
}

/// Lanes that a link can have; drivers say 0 or nonsense of a GPU that has fallen off the bus.
std::optional<int> lanes(const std::optional<int>& width) {
  return width && *width >= 1 && *width <= kMostLanes ? width : std::nullopt;
}

/// Finds nodes by address and knows links, both at once for any number of them.
class Places {
 public:
  explicit Places(Topology& topology) : topology_(topology) {
    const auto hosts = topology.of_kind(NodeKind::kHost);
    if (!hosts.empty()) host_ = hosts.front()->id;
    for (std::size_t i = 0; i < topology.nodes.size(); ++i) add(i);
    for (const TopologyEdge& edge : topology.edges) {
      if (edge.kind == "nvlink") links_.insert({edge.from, edge.to});
    }
  }

  /// The node there, or null; valid until the next one is added.
  [[nodiscard]] TopologyNode* at(const std::string& bdf) const {
    const auto found = by_bdf_.find(bdf);
    return found == by_bdf_.end() ? nullptr : &topology_.nodes[found->second];
  }

  /// The id of the node at a link's other end; made if it is a switch that the tree has not.
  std::string remote_of(const NvmlLink& link) {
    const std::string bdf = canonical_bdf(link.remote_bdf);
    if (const TopologyNode* known = at(bdf)) return known->id;
    if (link.remote_kind != "switch") return "";
    TopologyNode node;
    node.kind = NodeKind::kNvSwitch;
    node.id = pci_id(node.kind, bdf.empty() ? kHiddenSwitch : bdf);
    node.bdf = bdf;
    if (ids_.contains(node.id)) return node.id;
    if (!host_.empty()) topology_.edges.push_back({host_, node.id, "contains", {}, {}});
    topology_.nodes.push_back(node);
    add(topology_.nodes.size() - 1);
    return node.id;
  }

  void link(const std::string& from, const std::string& to, int count,
            const std::optional<double>& each_gbps) {
    if (from == to || !links_.insert({from, to}).second) return;
    TopologyEdge edge{from, to, "nvlink", {}, {}};
    edge.count = count;
    if (each_gbps) edge.bandwidth_gbps.declared = count * *each_gbps;
    topology_.edges.push_back(std::move(edge));
  }

 private:
  void add(std::size_t i) {
    const TopologyNode& node = topology_.nodes[i];
    ids_.insert(node.id);
    if (!node.bdf.empty()) by_bdf_.try_emplace(node.bdf, i);
  }

  Topology& topology_;
  std::string host_;
  std::map<std::string, std::size_t> by_bdf_;
  std::set<std::string> ids_;
  std::set<std::pair<std::string, std::string>> links_;
};

void add_state(const NvmlDevice& gpu, TopologyNode& node) {
  const auto put = [&node](const char* key, const auto& value) {
    if (value) node.attributes[key] = fmt::format("{}", *value);
  };
  put("pcie_replays", gpu.pcie_replays);
  put("temperature_c", gpu.temperature_c);
  put("utilization_percent", gpu.utilization_percent);
  put("ecc_corrected", gpu.ecc_corrected);
  put("ecc_uncorrected", gpu.ecc_uncorrected);
  if (!gpu.throttled_by.empty()) {
    node.attributes["throttled_by"] = fmt::format("{}", fmt::join(gpu.throttled_by, ","));
  }
  std::uint64_t errors = 0;
  int down = 0;
  for (const NvmlLink& link : gpu.links) {
    for (const auto& counter : {link.replays, link.recoveries, link.crc_errors}) {
      const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - errors;
      errors += std::min(counter.value_or(0), most);
    }
    if (!link.active) ++down;
  }
  if (gpu.links.empty()) return;
  node.attributes["nvlink_errors"] = std::to_string(errors);
  node.attributes["nvlinks_down"] = std::to_string(down);
}

}  // namespace

bool has_nvidia_gpu(const Topology& topology) {
  return std::any_of(topology.nodes.begin(), topology.nodes.end(), [](const TopologyNode& n) {
    const auto vendor = n.attributes.find("vendor");
    return n.kind == NodeKind::kGpu && (vendor == n.attributes.end() || vendor->second == kNvidia);
  });
}

void add_gpu_facts(const NvmlReport& report, Topology& topology) {
  Places places(topology);
  for (const NvmlDevice& gpu : report.devices) {
    const std::string bdf = canonical_bdf(gpu.bdf);
    if (bdf.empty()) {
      topology.notes.emplace_back("the driver knows a GPU and not its PCI address");
      continue;
    }
    TopologyNode* node = places.at(bdf);
    if (node == nullptr || node->kind != NodeKind::kGpu) {
      topology.notes.push_back(
          fmt::format("the driver knows a GPU at {} that is not in /sys", bdf));
      continue;
    }
    const std::string id = node->id;
    node->uuid = gpu.uuid;
    if (!gpu.name.empty()) node->label = gpu.name;
    fill(node->pci_link.speed_gts, speed_of(gpu.pcie_generation));
    fill(node->pci_link.width, lanes(gpu.pcie_width));
    fill(node->pci_link.max_speed_gts, speed_of(gpu.max_pcie_generation));
    fill(node->pci_link.max_width, lanes(gpu.max_pcie_width));
    add_state(gpu, *node);
    std::map<std::string, int> remotes;
    for (const NvmlLink& link : gpu.links) {
      if (!link.active) continue;
      const std::string remote = places.remote_of(link);
      if (!remote.empty()) ++remotes[remote];
    }
    for (const auto& [remote, count] : remotes) {
      places.link(id, remote, count, gpu.link_gbps);
      places.link(remote, id, count, gpu.link_gbps);
    }
  }
  topology.notes.insert(topology.notes.end(), report.notes.begin(), report.notes.end());
}

void add_cuda_facts(const std::vector<cuda::DeviceFacts>& devices, Topology& topology) {
  const Places places(topology);
  for (const cuda::DeviceFacts& device : devices) {
    TopologyNode* const node = places.at(canonical_bdf(device.bdf));
    if (node == nullptr) continue;  // a note says so already
    node->attributes["cuda_sm"] = std::to_string(device.architecture);
    node->attributes["cuda_gdr"] = device.gpudirect_rdma ? "1" : "0";
  }
}

void add_busy_links(const NvmlReport& busy, Topology& topology) {
  const Places places(topology);
  for (const NvmlDevice& gpu : busy.devices) {
    TopologyNode* const node = places.at(canonical_bdf(gpu.bdf));
    const auto speed = speed_of(gpu.pcie_generation);
    const auto width = lanes(gpu.pcie_width);
    if (node == nullptr || (!speed && !width)) continue;
    PciLink& link = node->pci_link;
    if (link.speed_gts || link.width) node->attributes["idle_link"] = link_words(link);
    if (speed) link.speed_gts = speed;
    if (width) link.width = width;
    node->attributes["link_state"] = "under load";
  }
}

}  // namespace topocoll
