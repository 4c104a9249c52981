// The last-level cache that a group's CPUs share, as the kernel describes it. (The C library's
// sysconf(_SC_LEVEL3_CACHE_SIZE) is no help: on AMD's processors it gives the sum over a package,
// ten times as much as what a core can fill.)
//
// Thread rule: free functions. Failure rule: what cannot be read is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace topocoll {

struct LastLevelCache {
  std::uint64_t bytes = 0;
  int cpus = 0;  ///< how many of those asked about share it
};

/// Of the first of `cpus`. Files are looked up below `root`, which tests give.
std::optional<LastLevelCache> last_level_cache(std::span<const int> cpus,
                                               const std::string& root = "/");

/// An output from this size on does not stay in the cache: `ranks` ranks, spread evenly over as
/// many CPUs as `cpus`, each with an input and an output of it, fill what they share. Where the
/// cache is not known it counts as 32 MiB that all share.
std::uint64_t uncached_bytes(const std::optional<LastLevelCache>& cache, int cpus, int ranks);

}  // namespace topocoll
