// Probe: measures this machine: CPUs, memory, RDMA ports and NVIDIA's GPUs.
//
//   auto t = topocoll::probe_topology();
//   if (t.ok()) std::fputs(topocoll::render_text(*t).c_str(), stdout);
//
// Between pairs of CPUs it times an exchange of flags and copies of what the other has just written
// (edges "coherence"); from each NUMA node what one CPU and what all CPUs read of its memory (edges
// "memory"); what each active RDMA port needs to read a byte of it (edges "transfer"; through
// libibverbs, if it is there). Between GPUs, and between GPUs and memory, it moves data by stores,
// loads and copy engines, alone and together, and looks at what arrives ("transfer" too); what
// follows for links and switches becomes their measured figures. Figures are medians with their
// confidence interval (Spread). Only CPUs and GPUs that this process may use take part, CPUs on
// threads of the probe's own; the caller's affinity stays as it is.
//
// Results are kept in a file below the cache directory (TOPOCOLL_CACHE_DIR), one for each make-up
// of a machine. A kept result is used if a few of its figures, measured again, are still the same;
// this takes a fraction of a second. One that lacks measurements is measured anew, and takes no
// fuller one's place. Without a usable directory or file everything is measured.
//
// Measuring GPUs starts CUDA in this process, which then cannot use it after fork(), and takes half
// a GiB of each GPU's memory meanwhile.
//
// Thread rule: any thread; two probes at a time on one machine disturb each other.
// Failure rule: what cannot be measured is a note of the topology. An error is returned only if an
// option is wrong or the machine cannot be read at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "topocoll/export.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

struct ProbeOptions {
  /// After this nothing new is begun of CPUs, memory and RDMA ports; a machine of a few CPUs needs
  /// less.
  std::chrono::milliseconds budget{2000};
  /// The same for GPUs; two need 2 s.
  std::chrono::milliseconds gpu_budget{10000};
  bool gpus = true;  ///< whether GPUs are measured
  /// Whether a kept result may be used and the new one be kept.
  bool use_cache = true;
  /// Decides the order, and the sample on large machines; absent: different every time.
  std::optional<std::uint64_t> seed;
  /// Called on the calling thread before each measurement and once at the end of each part: of
  /// CPUs, memory and ports, and, from 0 again, of GPUs.
  std::function<void(int done, int total)> on_progress;
};

/// discover_topology() and what was measured.
TOPOCOLL_API Result<Topology> probe_topology(const ProbeOptions& options = {});

/// discover_topology() and what an earlier probe has kept, unchecked and without measuring.
TOPOCOLL_API Result<Topology> known_topology();

}  // namespace topocoll
