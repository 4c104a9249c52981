// What the GPUs' driver says, added to a discovered machine.
//
// Thread rule: free functions on values. Failure rule: GPUs that are not in the topology are noted.
#pragma once

#include "base/cuda/nvml.h"
#include "topocoll/topology.h"

namespace topocoll {

/// Whether there is a GPU here that NVML could know of.
bool has_nvidia_gpu(const Topology& topology);

/// UUIDs, names, NVLinks and the state of GPUs. A switch that links lead to and that is hidden
/// becomes the node "nvswitch:hidden" below the host, one that is not in the tree "nvswitch:" and
/// its address.
void add_gpu_facts(const NvmlReport& report, Topology& topology);

}  // namespace topocoll
