// Waiter: how a thread of a rank waits for something in shared memory.
//
// It spins for a bounded time, then yields (which is what works when ranks outnumber cores), then sleeps
// on the rank's doorbell. Every wait ends at its deadline, at a fault of the group, and at the death or
// departure of a peer. No system call happens while the wait stays within the spin.
//
// Thread rule: const and stateless; any thread of the rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/os.h"
#include "transport/shm/gate.h"
#include "transport/shm/segment.h"

namespace topocoll::shm {

/// Why a wait ended.
enum class Wake : std::uint8_t {
  kReady,
  kFault,    ///< the group's fault word is set
  kDead,     ///< a peer's process ended
  kLeft,     ///< a peer left that has not taken part in the operation waited for
  kTimeout,
};

struct WaitResult {
  Wake wake = Wake::kReady;
  int rank = -1;  ///< the peer concerned, for kDead and kLeft
  [[nodiscard]] bool ready() const { return wake == Wake::kReady; }
};

/// A time limit that starts to run when somebody first has to wait for long: the fast path reads no clock.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  /// The deadline, counted from the first call.
  TimePoint at(Os& os) {
    if (!at_) at_ = os.now() + timeout_;
    return *at_;
  }

 private:
  std::chrono::milliseconds timeout_;
  std::optional<TimePoint> at_;
};

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Waiter {
 public:
  struct Policy {
    std::uint32_t spin = 1000;   ///< iterations
    std::uint32_t yields = 100;
  };

  Waiter(Os& os, const Segment& segment, int rank, Policy policy)
      : os_(&os), segment_(&segment), rank_(rank), policy_(policy) {}

  [[nodiscard]] Os& os() const { return *os_; }
  void set_policy(Policy policy) { policy_ = policy; }

  /// Waits until ready() is true. `seq` is the operation concerned (0: none): a peer that left
  /// before announcing it ends the wait.
  template <class Ready>
  WaitResult until(std::uint64_t seq, Deadline& deadline, const Ready& ready) const {
    for (std::uint32_t i = 0;; ++i) {
      if (ready()) [[likely]] return {};
      if (i == policy_.spin) break;
      relax();
    }
    return wait_long(seq, deadline, [](const void* f) { return (*static_cast<const Ready*>(f))(); },
                     &ready);
  }

 private:
  using Condition = bool (*)(const void*);
  WaitResult wait_long(std::uint64_t seq, Deadline& deadline, Condition condition,
                       const void* context) const;
  /// What, other than readiness, ends a wait; kReady if nothing does.
  [[nodiscard]] WaitResult look_around(std::uint64_t seq, Deadline& deadline) const;

  Os* os_;
  const Segment* segment_;
  int rank_;
  Policy policy_;
};

}  // namespace topocoll::shm
