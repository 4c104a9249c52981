// Gate: how a fault ends an epoch for every rank of a host at once, with one verdict and no message.
//
// Each rank's progress lives in three words: two entry flags (by parity) and `done`. A rank advances
// them by compare-exchange only. Whoever notices a fault first stores it in the header's fault word, and
// then everyone who sees it sets the frozen bit in all words of all ranks: from then on no word moves,
// so all ranks compute the same verdict from the same values, whoever of them is dead, stopped or
// asleep. An operation is committed if and only if every rank had completed it by then (see
// control/outcome.h). A stopped process that wakes up later fails its next compare-exchange.
//
// Thread rule: any thread of any rank.
#pragma once

#include <cstdint>
#include <optional>

#include "topocoll/status.h"
#include "transport/shm/segment.h"

namespace topocoll::shm {

/// The first fault of an epoch, as the rank that noticed it saw it.
struct Fault {
  Cause cause = Cause::kInternal;
  int culprit = -1;       ///< group rank, or -1
  std::uint64_t seq = 0;  ///< the operation that noticed it
};

/// How far a rank has come.
struct Progress {
  std::uint64_t entered = 0;    ///< last operation it announced
  std::uint64_t completed = 0;  ///< last operation that it is known to have completed
};

class Gate {
 public:
  explicit Gate(const Segment& segment) : segment_(&segment) {}

  /// Announces operation `seq` of `rank`; `flag` is seq with kEager, kCounts and kTwoShot where
  /// they hold. False if the epoch is frozen. The descriptor and payload must be written before. A
  /// full barrier.
  [[nodiscard]] bool enter(int rank, std::uint64_t seq, std::uint64_t flag) {
    std::atomic<std::uint64_t>& word = segment_->entry(static_cast<int>(seq & 1), rank).flag;
    std::uint64_t seen = word.load(std::memory_order_relaxed);
    return (seen & kFrozen) == 0 && word.compare_exchange_strong(seen, flag);
  }
  /// Publishes that `rank` completed `seq`. False if the epoch is frozen. A full barrier.
  [[nodiscard]] bool complete(int rank, std::uint64_t seq) {
    std::atomic<std::uint64_t>& word = segment_->block(rank).done;
    std::uint64_t seen = word.load(std::memory_order_relaxed);
    return (seen & kFrozen) == 0 && word.compare_exchange_strong(seen, seq);
  }

  [[nodiscard]] bool faulted() const {
    return segment_->header().fault.load(std::memory_order_relaxed) != 0;
  }
  [[nodiscard]] std::optional<Fault> fault() const;
  /// Records the epoch's fault unless there is one already; returns the one in force.
  Fault raise(const Fault& fault);
  /// Stops all ranks' words and wakes all sleepers. Idempotent; call after raise().
  void freeze(Os& os);
  /// Final once frozen.
  [[nodiscard]] Progress progress(int rank) const;
  /// The sequence number that all ranks are known to have completed; monotone.
  [[nodiscard]] std::uint64_t completed_by_all() const;

 private:
  const Segment* segment_;
};

/// Rings the doorbells of all ranks that sleep. Called after every publication, when any does.
void wake_sleepers(Os& os, const Segment& segment);

/// To be called after a sequentially consistent publication: wakes whoever sleeps. One load if none does.
inline void ring(Os& os, const Segment& segment) {
  if (segment.header().sleepers.load() != 0) [[unlikely]] {
    wake_sleepers(os, segment);
  }
}

}  // namespace topocoll::shm
