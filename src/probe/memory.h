// What CPUs read of a NUMA node's memory.
//
// Thread rule: any thread; a thread of its own on each CPU reads. Failure rule: kSystem if memory
// cannot be bound to the node or a CPU cannot be had, kResource if there is no memory, kTimeout if
// a CPU was busy for too long.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "base/os.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

struct MemoryRequest {
  int node = 0;           ///< whose memory
  std::vector<int> cpus;  ///< that read together, each its own part
  bool local = false;     ///< they are the node's own: pages that they touch first lie there anyway
  std::size_t bytes = 0;  ///< of all together
  std::chrono::milliseconds time{100};  ///< of reading; touching the pages comes on top
};

/// All CPUs together, 10^9 bytes per second.
Result<Figure> measure_memory(Os& os, const MemoryRequest& request);

/// Private memory of the node, every page touched. `local`: the calling thread runs there, so that
/// the pages lie there even where the system forbids binding.
Result<Mapping> make_node_memory(Os& os, std::size_t bytes, int node, bool local);

/// Enough that a last-level cache of `cache_bytes` is of little use, and no more than an eighth of
/// what is available; 0 if that is too little to measure anything.
std::size_t memory_read_bytes(std::uint64_t cache_bytes, std::uint64_t available_bytes);

}  // namespace topocoll
