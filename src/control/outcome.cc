#include "control/outcome.h"

#include <algorithm>

namespace topocoll {
namespace {

/// Ranks that were absent when a deadline passed: those that had not announced the operation that others
/// wait in, or, if all had, those that others had to wait for at its end.
std::vector<int> absent_ranks(std::span<const StoppedProgress> progress) {
  StoppedProgress front;
  for (const StoppedProgress& p : progress) {
    front.entered = std::max(front.entered, p.entered);
    front.completed = std::max(front.completed, p.completed);
  }
  std::vector<int> absent;
  const auto collect = [&](auto lags) {
    for (std::size_t r = 0; r < progress.size(); ++r) {
      if (lags(progress[r])) absent.push_back(static_cast<int>(r));
    }
  };
  collect([&](const StoppedProgress& p) { return p.entered < front.entered; });
  if (absent.empty()) collect([&](const StoppedProgress& p) { return p.completed < front.completed; });
  return absent;
}

}  // namespace

bool Outcome::on_fault(const FaultEvent& fault) {
  if (state_ != State::kRunning) return false;
  fault_ = fault;
  state_ = State::kStopping;
  return true;
}

const Verdict& Outcome::on_stopped(std::span<const StoppedProgress> progress) {
  if (state_ == State::kDecided) return verdict_;
  state_ = State::kDecided;
  std::uint64_t least = ~std::uint64_t(0);
  for (const StoppedProgress& p : progress) least = std::min(least, p.completed);
  verdict_.cause = fault_.cause;
  verdict_.last_committed = progress.empty() ? committed_ : least;
  if (fault_.cause == Cause::kTimeout) verdict_.culprits = absent_ranks(progress);
  if (verdict_.culprits.empty() && fault_.culprit >= 0) verdict_.culprits = {fault_.culprit};
  committed_ = std::max(committed_, verdict_.last_committed);
  return verdict_;
}

void Outcome::on_proof(std::uint64_t seq) { committed_ = std::max(committed_, seq); }

bool Outcome::may_report(std::uint64_t seq) const {
  // While progress is being stopped the decision is open: nothing new is reported.
  return state_ != State::kStopping && seq <= committed_;
}

Outcome::Fate Outcome::fate(std::uint64_t seq) const {
  if (seq <= committed_) return Fate::kCommitted;
  return state_ == State::kDecided ? Fate::kAborted : Fate::kPending;
}

}  // namespace topocoll
