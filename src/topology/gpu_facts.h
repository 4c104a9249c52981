// What the GPUs' driver says, added to a discovered machine.
//
// Thread rule: free functions on values. Failure rule: GPUs that are not in the topology are noted.
#pragma once

#include <vector>

#include "base/cuda/driver.h"
#include "base/cuda/nvml.h"
#include "topocoll/topology.h"

namespace topocoll {

/// Whether there is a GPU here that NVML could know of.
bool has_nvidia_gpu(const Topology& topology);

/// UUIDs, names, NVLinks and the state of GPUs. A switch that links lead to and that is hidden
/// becomes the node "nvswitch:hidden" below the host, one that is not in the tree "nvswitch:" and
/// its address.
void add_gpu_facts(const NvmlReport& report, Topology& topology);

/// What CUDA says of the devices that this process may use: attributes "cuda_sm" ("90" for compute
/// capability 9.0) and "cuda_gdr" ("1": NICs may use its memory).
void add_cuda_facts(const std::vector<cuda::DeviceFacts>& devices, Topology& topology);

/// PCIe links as `busy` saw them while they were busy, "link_state" = "under load"; what they were
/// before becomes "idle_link" ("2.5 GT/s x16").
void add_busy_links(const NvmlReport& busy, Topology& topology);

}  // namespace topocoll
