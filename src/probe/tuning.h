// Start-up probe of a group's shared memory: how far apart the cores of its first ranks are, and which
// copy into a shared slot is fastest between them. Rank 0 measures, with two threads of its own on two
// cores of the group, and decides for all, so that all ranks choose alike; the others wait.
//
// It takes a few milliseconds, uses the entry slots before the first operation, and leaves defaults where
// there is one core only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/os.h"
#include "topocoll/status.h"
#include "transport/shm/segment.h"
#include "transport/shm/waiter.h"

namespace topocoll {

/// A way to copy that the probe may choose.
struct CopyCandidate {
  std::uint8_t id = 0;
  void (*copy)(void* target, const void* source, std::size_t bytes) = nullptr;
  std::string_view name;
};

struct TuningRequest {
  bool probe = true;
  bool oversubscribed = false;  ///< more ranks than cores that they may use
  std::span<const int> cpus;    ///< that the group may use; the probe takes the first and the last
  /// The first is the default; with one only, nothing is timed.
  std::span<const CopyCandidate> copies;
  std::optional<std::size_t> eager_bytes;
  std::uint8_t all_reduce = 0;  ///< carried to the other ranks as it is
  std::optional<std::chrono::microseconds> spin;
};

/// Rank 0 measures and publishes; every rank returns what it chose. Collective. kTimeout, kPeerDied with
/// the rank that died, or kAborted if the group has a fault already.
Result<shm::Tuning> tune(Os& os, shm::Segment& segment, int rank, const TuningRequest& request,
                         shm::Deadline& deadline);

/// "flag 55 ns (near), slots by string from 4096 B, ..." for people.
std::string describe(const shm::Tuning& tuning, std::span<const CopyCandidate> copies);

}  // namespace topocoll
