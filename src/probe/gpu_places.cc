#include "probe/gpu_places.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/pci.h"

namespace topocoll {
namespace {

/// Drivers write eight digits of domain where the kernel writes four.
const TopologyNode* find_gpu(const BenchGpu& gpu, const std::vector<const TopologyNode*>& nodes) {
  const std::string bdf = canonical_bdf(gpu.bdf);
  for (const TopologyNode* node : nodes) {
    if (!bdf.empty() && canonical_bdf(node->bdf) == bdf) return node;
  }
  for (const TopologyNode* node : nodes) {
    if (!gpu.uuid.empty() && node->uuid == gpu.uuid) return node;
  }
  return nullptr;
}

}  // namespace

GpuPlaces find_places(const GpuBench& bench, const Topology& topology) {
  GpuPlaces places;
  const auto add = [](std::vector<std::string>& ids, const TopologyNode* node) {
    const bool fresh = node != nullptr && std::find(ids.begin(), ids.end(), node->id) == ids.end();
    ids.push_back(fresh ? node->id : "");
    return fresh;
  };
  const auto gpus = topology.of_kind(NodeKind::kGpu);
  for (const BenchGpu& gpu : bench.gpus()) {
    if (!add(places.gpus, find_gpu(gpu, gpus))) {
      places.notes.push_back(
          fmt::format("not measured: the GPU at {} is not in the topology", gpu.bdf));
    }
  }
  const auto numa = topology.of_kind(NodeKind::kNumaNode);
  for (const int index : bench.numa_nodes()) {
    const auto found = std::find_if(numa.begin(), numa.end(), [&](const TopologyNode* node) {
      return node->os_index == index;
    });
    if (!add(places.memories, found == numa.end() ? nullptr : *found)) {
      places.notes.push_back(fmt::format(
          "not measured between GPUs and memory: NUMA node {} is not in the topology", index));
    }
  }
  if (bench.numa_nodes().empty() && !places.gpus.empty()) {
    places.notes.emplace_back("not measured between GPUs and memory: no NUMA node takes part");
  }
  return places;
}

}  // namespace topocoll
