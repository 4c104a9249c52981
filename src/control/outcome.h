// Outcome: how the operations of one epoch end, as a state machine without I/O.
//
// Operations carry sequence numbers 1, 2, ...; every rank issues them in one order. While the epoch runs
// nothing is decided but what is proved: an operation is committed once every rank has completed it.
// A fault stops all ranks' progress (see transport/shm/gate.h for how, on one host). From the stopped
// progress of all ranks follows the decision D = the least operation that all have completed:
//   seq <= D   COMMITTED on every rank
//   seq >  D   ABORTED on every rank, with one cause, one list of culprits and D + 1 as the first victim
// Safety: a rank reports success of k only after it has seen that all ranks completed k; progress is
// monotone and stops before D is computed; so reported <= D on every rank, dead or alive.
//
//   running --on_fault--> stopping --on_stopped(progress of all)--> decided
//
// Across hosts the progress of the others arrives by votes instead of shared memory; the events stay the
// same. Thread rule: not thread-safe; its owner serialises events.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topocoll/status.h"

namespace topocoll {

/// What a rank noticed.
struct FaultEvent {
  Cause cause = Cause::kInternal;
  int culprit = -1;
  std::uint64_t seq = 0;  ///< the operation in which it noticed
};

/// How far a rank had come when progress was stopped.
struct StoppedProgress {
  std::uint64_t entered = 0;
  std::uint64_t completed = 0;
};

/// How an epoch ended; equal on all ranks.
struct Verdict {
  Cause cause = Cause::kInternal;
  std::vector<int> culprits;          ///< ascending
  std::uint64_t last_committed = 0;   ///< D
  [[nodiscard]] std::uint64_t first_aborted() const { return last_committed + 1; }
};

class Outcome {
 public:
  enum class State : std::uint8_t { kRunning, kStopping, kDecided };
  enum class Fate : std::uint8_t { kPending, kCommitted, kAborted };

  explicit Outcome(int ranks) : ranks_(ranks) {}

  [[nodiscard]] State state() const { return state_; }

  /// A fault of the epoch, as agreed by first writer. True if progress must now be stopped; further
  /// faults change nothing.
  bool on_fault(const FaultEvent& fault);
  /// Progress of all ranks, after it was stopped. Every rank passes the same values.
  const Verdict& on_stopped(std::span<const StoppedProgress> progress);

  /// Proof that all ranks completed `seq` and everything before it.
  void on_proof(std::uint64_t seq);
  /// This rank tells its caller that `seq` succeeded. False if that is not (or no longer) true: then the
  /// caller must be told the verdict instead. While running, only proved operations may be reported.
  [[nodiscard]] bool may_report(std::uint64_t seq) const;

  [[nodiscard]] Fate fate(std::uint64_t seq) const;
  [[nodiscard]] std::uint64_t committed() const { return committed_; }
  /// Only when decided.
  [[nodiscard]] const Verdict& verdict() const { return verdict_; }

 private:
  int ranks_;
  State state_ = State::kRunning;
  FaultEvent fault_;
  std::uint64_t committed_ = 0;
  Verdict verdict_;
};

}  // namespace topocoll
