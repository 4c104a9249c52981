// What passes between two CPUs: a flag, and lines that one has written and the other copies.
//
// Thread rule: any thread; its own threads measure. Failure rule: as run_pair().
#pragma once

#include <array>
#include <chrono>

#include "base/os.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

struct CpuLink {
  Figure latency_ns;                     ///< of one exchange of flags
  std::array<Figure, 2> bandwidth_gbps;  ///< [0]: what cpus[1] copies of what cpus[0] has written
};

/// Lies in the private caches of the writer, as pieces of a message do.
inline constexpr std::size_t kLinkBytes = std::size_t{256} << 10;

/// Wakes both CPUs, then samples each figure until its interval is narrow or its third of `time` is
/// over.
Result<CpuLink> measure_cpu_link(Os& os, std::array<int, 2> cpus, std::chrono::milliseconds time);

}  // namespace topocoll
