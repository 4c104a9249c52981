// Context: what the shared-memory executors of one communicator work with, and how they report that an
// operation stopped.
#pragma once

#include <cstdint>

#include "collectives/cpu/copy.h"
#include "transport/shm/gate.h"
#include "transport/shm/segment.h"
#include "transport/shm/waiter.h"

namespace topocoll {

/// Why an executor stopped before the operation was done. The communicator turns it into the
/// group's outcome.
enum class Stop : std::uint8_t {
  kNone,
  kFrozen,    ///< the group's epoch has ended, or is ending
  kDead,      ///< `rank` died
  kLeft,      ///< `rank` left without taking part
  kTimeout,
  kMismatch,  ///< `rank`'s descriptor differs from those of most
  kResource,  ///< memory could not be had; `status` says which
};

struct ExecResult {
  Stop stop = Stop::kNone;
  int rank = -1;
  Status status;
  [[nodiscard]] bool ok() const { return stop == Stop::kNone; }

  static ExecResult from(const shm::WaitResult& wait) {
    switch (wait.wake) {
      case shm::Wake::kReady: return {};
      case shm::Wake::kFault: return {Stop::kFrozen, -1, {}};
      case shm::Wake::kDead: return {Stop::kDead, wait.rank, {}};
      case shm::Wake::kLeft: return {Stop::kLeft, wait.rank, {}};
      case shm::Wake::kTimeout: return {Stop::kTimeout, wait.rank, {}};
    }
    return {Stop::kTimeout, -1, {}};
  }
};

struct Context {
  Os* os = nullptr;
  shm::Segment* segment = nullptr;
  shm::Gate gate;
  shm::Waiter waiter;
  int rank = 0;
  int ranks = 1;
  shm::Tuning tuning;

  Context(Os& os_in, shm::Segment& segment_in, int rank_in)
      : os(&os_in), segment(&segment_in), gate(segment_in),
        waiter(os_in, segment_in, rank_in, {}), rank(rank_in), ranks(segment_in.ranks()) {}
};

}  // namespace topocoll
