// GPU probe: what GPUs move between each other and to and from memory, who shares a way, and what
// follows for the topology's links.
//
//   const std::size_t missing = measure_gpus(Os::real(), bench, {}, topology);
//
// First every way between two GPUs is tried with data that is looked at: one that changes it gets a
// fault and no figure. What follows is in the order of its use for a plan, each in random order:
// stores and latency of each pair, all GPUs at once, memory, contention (contention.h,
// gpu_ports.h), then loads, copy engines, both ways at once, and latency under load. Two GPUs
// take about two seconds; pairs grow with the square of their number. Figures become "transfer"
// edges, and gpu_links.h writes what follows from them.
//
// Thread rule: one thread. Failure rule: what fails is a note, once for each reason; a bench that
// is of no more use ends it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/os.h"
#include "probe/gpu_bench.h"
#include "topocoll/topology.h"

namespace topocoll {

struct GpuProbeRequest {
  std::chrono::milliseconds budget{10000};  ///< after this nothing new is begun
  std::uint64_t seed = 0;                   ///< decides the order
  std::function<void(int done, int total)> on_progress{};
  /// Called once while all links between memory and GPUs are busy and have left their power-saving
  /// state. It may change the topology's nodes.
  std::function<void()> under_load{};
};

/// Measures and writes the figures into `topology`, in the place of earlier ones. Returns how many
/// measurements are missing that may succeed another time. A way that the machine has not is none
/// of them.
std::size_t measure_gpus(Os& os, GpuBench& bench, const GpuProbeRequest& request,
                         Topology& topology);

/// The bench's GPUs of which `kept` has no transfer: the process that measured could not use them.
std::vector<std::string> unmeasured_gpus(const GpuBench& bench, const Topology& kept);

/// The few whose figures tell whether `kept` still holds: stores of one random matching of the
/// GPUs, and of one GPU to memory; copies where those are all that was measured. Writes them into
/// `fresh`, in less than a second; see contradictions(). Returns how many are missing.
std::size_t measure_gpu_sentinels(Os& os, GpuBench& bench, std::uint64_t seed, const Topology& kept,
                                  Topology& fresh);

}  // namespace topocoll
