// Contention: which GPUs share a way, and how much it carries, from what flows carry together.
//
// Two flows share a link if together they carry clearly less than each of them alone. In a tree
// that leads from memory to GPUs, the capacity that two GPUs share is an ultrametric: clusters of
// GPUs, the narrowest first, are the tree's switches. A link that is wide enough for two flows is
// seen only with more: clusters are tested by all their GPUs at once, and what all GPUs together do
// not reach is looked for by letting one after the other pause. What limits nothing is not found: a
// link that is never full, or that is hardly narrower than one above it. A link that only three
// parts or more can fill is missed if a link above it is met first and the declared tree does not
// name it.
//
// No measurement is made here: the caller's function makes those that are asked for, O(n²) of them
// for n GPUs. Thread rule: free functions. Failure rule: an error of the caller's function ends the
// inference and is returned.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "probe/gpu_bench.h"
#include "topocoll/status.h"

namespace topocoll {

/// Flows that carry less than this share of what they carry alone share a link.
inline constexpr double kSharedBelow = 0.9;

/// What each of these flows carries while all of them run, in 10^9 bytes per second.
using JointRates = std::function<Result<std::vector<double>>(const std::vector<GpuFlow>&)>;

/// 10^9 bytes per second from GPUs to memory (up) and from memory to GPUs (down).
struct Carried {
  double up_gbps = 0;
  double down_gbps = 0;
};

/// GPU `gpu` stores into a memory, or its copy engine writes there.
GpuFlow up_flow(int gpu, int memory, bool copy_engine = false);
/// GPU `gpu` loads from a memory, or its copy engine reads there.
GpuFlow down_flow(int gpu, int memory, bool copy_engine = false);

/// What is known of the ways between GPUs and memory before flows are joined; one element a GPU.
struct MemoryWays {
  std::vector<int> near;       ///< the memory that its flows use; -1: it takes no part
  std::vector<Carried> alone;  ///< by it alone, to and from that memory
  /// Sets of GPUs, ascending, of which the declared tree says that they share a bridge.
  std::vector<std::vector<int>> declared{};
  /// What CPUs read of each memory, 10^9 bytes per second.
  std::vector<std::optional<double>> memory_gbps{};
  bool copy_engines = false;  ///< where there is nothing to run on GPUs' processors
};

/// GPUs behind one link that they fill together.
struct GpuCluster {
  std::vector<int> gpus;  ///< ascending, two at least
  int parent = -1;        ///< the least cluster around this one; -1: the host
  Carried carried;        ///< by all its GPUs at once
};

struct ContentionTree {
  std::vector<GpuCluster> clusters;  ///< parents before children, else by their GPUs
  std::vector<Carried> declared;     ///< by all GPUs of MemoryWays::declared at once
};

/// The tree of the links that GPUs share on their ways to memory. What all GPUs near a memory share
/// is a cluster only if it cannot be the memory itself.
Result<ContentionTree> infer_tree(const MemoryWays& ways, const JointRates& rates);

}  // namespace topocoll
