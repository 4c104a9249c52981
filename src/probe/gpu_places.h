// Where a bench's GPUs and memories stand in a topology.
//
// Thread rule: a free function. Failure rule: what is not in the topology has no id, and a note
// says so.
#pragma once

#include <string>
#include <vector>

#include "probe/gpu_bench.h"
#include "topocoll/topology.h"

namespace topocoll {

/// Ids of nodes, in the bench's order; empty: it is not in the topology and not to be measured.
struct GpuPlaces {
  std::vector<std::string> gpus;
  std::vector<std::string> memories;
  std::vector<std::string> notes;

  [[nodiscard]] const std::string& id(GpuPlace place) const {
    const auto& ids = place.kind == GpuPlace::Kind::kGpu ? gpus : memories;
    return ids[static_cast<std::size_t>(place.index)];
  }
};

/// GPUs by their address on PCI, else by their UUID; memories by the number of their NUMA node.
GpuPlaces find_places(const GpuBench& bench, const Topology& topology);

}  // namespace topocoll
