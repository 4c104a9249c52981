// What was measured of GPUs, written onto the topology's links, so that plans use it.
//
// NVLinks to a switch get what leaves and enters the GPU while all are busy; direct links what
// their pair does; the tree's links above GPUs what passes between them and memory. Where GPUs
// share a way that the declared tree does not name, the tree is not to be trusted: switches
// "switch:inferred:K" with measured links take its place for these GPUs (see graph_topology.h).
//
// Thread rule: free functions on values. Failure rule: none; what is not known is not written. The
// same figures give the same bytes, and what an earlier call wrote is replaced.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "probe/contention.h"
#include "probe/gpu_ports.h"
#include "topocoll/topology.h"

namespace topocoll {

/// What all GPUs near one memory store into another.
struct Crossing {
  int from = 0;  ///< indices of memories
  int to = 0;
  Figure gbps;
};

/// What a probe knows besides "transfer" edges. Indices are those of `gpus` and `memories`.
struct GpuConclusions {
  std::vector<std::string> gpus;  ///< ids; empty: not in the topology
  std::vector<std::string> memories;
  std::vector<int> near;               ///< each GPU's memory; -1: not known
  std::optional<ContentionTree> tree;  ///< with MemoryWays::declared as declared_bridges() says
  std::vector<GpuPort> ports;          ///< one for each GPU, or none at all
  std::vector<Crossing> crossings;
};

/// Bridges with two of the GPUs below them or more. Of those above the same GPUs it is the lowest.
struct DeclaredBridge {
  std::string bridge;
  std::vector<int> gpus;  ///< ascending
};
std::vector<DeclaredBridge> declared_bridges(const Topology& topology,
                                             const std::vector<std::string>& gpus);

/// What a transfer between a GPU and memory carries: by the GPU's processors, else by its copy
/// engine.
Figure carried_by(const TopologyEdge& transfer);

/// A group that write_gpu_links() made.
bool is_measured_group(const CapacityGroup& group);

/// Removes what only a probe knows and is no measurement: inferred switches with their links, what
/// passes between memories, and its groups.
void remove_inferred(Topology& topology);

void write_gpu_links(const GpuConclusions& conclusions, Topology& topology);

}  // namespace topocoll
