#include "transport/shm/waiter.h"

#include <algorithm>

namespace topocoll::shm {
namespace {

/// Looking at every peer's lock costs a cache line each: once in so many yields is often enough to
/// notice a death within tens of microseconds.
constexpr std::uint32_t kYieldsPerLook = 32;

/// On a machine that is busy with other programs every yield costs a time slice of theirs.
constexpr std::chrono::milliseconds kMaxYieldTime{2};

/// A sleeper is woken by publications and by the monitor's notice of a death; the slice bounds what is
/// lost if the monitors themselves are stopped.
constexpr std::chrono::milliseconds kSleepSlice{20};

/// Registers a thread as asleep, so that publishers ring its doorbell.
class SleepGuard {
 public:
  SleepGuard(const Segment& segment, RankBlock& block) : segment_(segment), block_(block) {
    block_.sleeping.fetch_add(1);
    segment_.header().sleepers.fetch_add(1);
#if !defined(__SANITIZE_THREAD__)  // which does not know fences
    // Either the publisher sees this sleeper or the sleeper's look, which is an acquire only, sees
    // what was published. On x86 the addition alone sees to that.
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
  SleepGuard(const SleepGuard&) = delete;
  SleepGuard& operator=(const SleepGuard&) = delete;
  ~SleepGuard() {
    segment_.header().sleepers.fetch_sub(1);
    block_.sleeping.fetch_sub(1);
  }

 private:
  const Segment& segment_;
  RankBlock& block_;
};

}  // namespace

WaitResult Waiter::look_around(std::uint64_t seq, Deadline& deadline) const {
  if (segment_->header().fault.load(std::memory_order_acquire) != 0) return {Wake::kFault, -1};
  for (int r = 0; r < segment_->ranks(); ++r) {
    if (r == rank_) continue;
    RankBlock& peer = segment_->block(r);
    const RankState state = peer.state.load(std::memory_order_acquire);
    if (state == RankState::kLeft) {
      if (seq != 0 && Gate(*segment_).progress(r).entered < seq) return {Wake::kLeft, r};
    } else if (state == RankState::kJoined && liveness(peer) == Liveness::kDead) {
      return {Wake::kDead, r};
    }
  }
  if (os_->now() >= deadline.at(*os_)) return {Wake::kTimeout, -1};
  return {};
}

WaitResult Waiter::wait_long(std::uint64_t seq, Deadline& deadline, Condition condition,
                             const void* context) const {
  // What is ready counts even if a peer has died meanwhile: its data are here.
  const TimePoint sleep_from = os_->now() + kMaxYieldTime;
  for (std::uint32_t i = 0; i < policy_.yields && os_->now() < sleep_from; ++i) {
    os_->yield();
    if (condition(context)) return {};
    if (i % kYieldsPerLook == 0) {
      const WaitResult r = look_around(seq, deadline);
      if (!r.ready()) return condition(context) ? WaitResult{} : r;
    } else if (segment_->header().fault.load(std::memory_order_relaxed) != 0) {
      return condition(context) ? WaitResult{} : WaitResult{Wake::kFault, -1};
    }
  }
  RankBlock& mine = segment_->block(rank_);
  for (;;) {
    {
      const SleepGuard asleep(*segment_, mine);
      const std::uint32_t bell = mine.doorbell.load();
      if (condition(context)) return {};
      if (segment_->header().fault.load() == 0) {
        os_->futex_wait(&mine.doorbell, bell,
                        std::min(os_->now() + kSleepSlice, deadline.at(*os_)));
      }
    }
    if (condition(context)) return {};
    const WaitResult r = look_around(seq, deadline);
    if (!r.ready()) return condition(context) ? WaitResult{} : r;
  }
}

}  // namespace topocoll::shm
