#include "topology/gpu_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr const char* kNvidia = "0x10de";
constexpr std::array<double, 6> kGenerationsGts = {2.5, 5, 8, 16, 32, 64};

std::optional<double> speed_of(const std::optional<int>& generation) {
  if (!generation || *generation < 1) return std::nullopt;
  const auto index = static_cast<std::size_t>(*generation) - 1;
  return index < kGenerationsGts.size() ? std::optional(kGenerationsGts[index]) : std::nullopt;
}

template <class T>
void fill(std::optional<T>& target, const std::optional<T>& value) {
  if (!target) target = value;
}

TopologyNode* node_at(Topology& topology, const std::string& bdf) {
  const auto found =
      std::find_if(topology.nodes.begin(), topology.nodes.end(),
                   [&](const TopologyNode& n) { return !bdf.empty() && n.bdf == bdf; });
  return found == topology.nodes.end() ? nullptr : &*found;
}

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
    errors += link.replays.value_or(0) + link.recoveries.value_or(0) + link.crc_errors.value_or(0);
    if (!link.active) ++down;
  }
  if (gpu.links.empty()) return;
  node.attributes["nvlink_errors"] = std::to_string(errors);
  node.attributes["nvlinks_down"] = std::to_string(down);
}

/// The node at a link's other end; made if it is a switch that the tree has not.
std::string remote_of(const NvmlLink& link, Topology& topology) {
  if (const TopologyNode* known = node_at(topology, link.remote_bdf)) return known->id;
  if (link.remote_kind != "switch") return "";
  TopologyNode node;
  node.kind = NodeKind::kNvSwitch;
  node.id = pci_id(node.kind, link.remote_bdf.empty() ? kHiddenSwitch : link.remote_bdf);
  node.bdf = link.remote_bdf;
  if (topology.find(node.id) == nullptr) {
    const auto hosts = topology.of_kind(NodeKind::kHost);
    if (!hosts.empty()) topology.edges.push_back({hosts.front()->id, node.id, "contains", {}, {}});
    topology.nodes.push_back(node);
  }
  return node.id;
}

void add_link(const std::string& from, const std::string& to, int count,
              const std::optional<double>& each_gbps, Topology& topology) {
  const bool known = std::any_of(topology.edges.begin(), topology.edges.end(), [&](const auto& e) {
    return e.kind == "nvlink" && e.from == from && e.to == to;
  });
  if (known || from == to) return;
  TopologyEdge edge{from, to, "nvlink", {}, {}};
  edge.count = count;
  if (each_gbps) edge.bandwidth_gbps.declared = count * *each_gbps;
  topology.edges.push_back(std::move(edge));
}

}  // namespace

bool has_nvidia_gpu(const Topology& topology) {
  return std::any_of(topology.nodes.begin(), topology.nodes.end(), [](const TopologyNode& n) {
    const auto vendor = n.attributes.find("vendor");
    return n.kind == NodeKind::kGpu && (vendor == n.attributes.end() || vendor->second == kNvidia);
  });
}

void add_gpu_facts(const NvmlReport& report, Topology& topology) {
  for (const NvmlDevice& gpu : report.devices) {
    TopologyNode* node = node_at(topology, gpu.bdf);
    if (node == nullptr || node->kind != NodeKind::kGpu) {
      topology.notes.push_back(
          fmt::format("the driver knows a GPU at {} that is not in /sys", gpu.bdf));
      continue;
    }
    const std::string id = node->id;
    node->uuid = gpu.uuid;
    if (!gpu.name.empty()) node->label = gpu.name;
    fill(node->pci_link.speed_gts, speed_of(gpu.pcie_generation));
    fill(node->pci_link.width, gpu.pcie_width);
    fill(node->pci_link.max_speed_gts, speed_of(gpu.max_pcie_generation));
    fill(node->pci_link.max_width, gpu.max_pcie_width);
    add_state(gpu, *node);
    std::map<std::string, int> remotes;
    for (const NvmlLink& link : gpu.links) {
      if (!link.active) continue;
      const std::string remote = remote_of(link, topology);
      if (!remote.empty()) ++remotes[remote];
    }
    for (const auto& [remote, count] : remotes) {
      add_link(id, remote, count, gpu.link_gbps, topology);
      add_link(remote, id, count, gpu.link_gbps, topology);
    }
  }
  topology.notes.insert(topology.notes.end(), report.notes.begin(), report.notes.end());
}

void add_cuda_facts(const std::vector<cuda::DeviceFacts>& devices, Topology& topology) {
  for (const cuda::DeviceFacts& device : devices) {
    TopologyNode* const node = node_at(topology, device.bdf);
    if (node == nullptr) continue;  // a note says so already
    node->attributes["cuda_sm"] = std::to_string(device.architecture);
    node->attributes["cuda_gdr"] = device.gpudirect_rdma ? "1" : "0";
  }
}

void add_busy_links(const NvmlReport& busy, Topology& topology) {
  for (const NvmlDevice& gpu : busy.devices) {
    TopologyNode* const node = node_at(topology, gpu.bdf);
    const auto speed = speed_of(gpu.pcie_generation);
    if (node == nullptr || (!speed && !gpu.pcie_width)) continue;
    PciLink& link = node->pci_link;
    if (link.speed_gts || link.width) node->attributes["idle_link"] = link_words(link);
    if (speed) link.speed_gts = speed;
    if (gpu.pcie_width) link.width = gpu.pcie_width;
    node->attributes["link_state"] = "under load";
  }
}

}  // namespace topocoll
