// Pair: two threads on two CPUs that take turns through flags in memory, as two ranks do in an
// operation. Everything that is timed between CPUs is timed by it.
//
// The threads are its own, so that the caller keeps its CPUs. Failure rule: an end that may not run
// on its CPU, or that loses it for longer than the patience, ends the pair for both; run_pair()
// then names the CPUs.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/os.h"
#include "topocoll/status.h"

namespace topocoll {

/// One of the two ends. turn() is an exchange of flags.
class PairEnd {
 public:
  using Word = std::atomic<std::uint64_t>;

  PairEnd(Os& os, Word& mine, Word& theirs, std::atomic<bool>& over,
          std::chrono::milliseconds patience, bool one_cpu)
      : os_(os),
        mine_(mine),
        theirs_(theirs),
        over_(over),
        patience_(patience),
        one_cpu_(one_cpu) {}

  /// Tells the other end and waits for it; false if the pair is over.
  bool turn();
  /// Nanoseconds of one turn, out of `turns` of them; nothing if the pair is over.
  std::optional<double> time_turns(int turns);

 private:
  Os& os_;
  Word& mine_;
  Word& theirs_;
  std::atomic<bool>& over_;
  const std::chrono::milliseconds patience_;
  const bool one_cpu_;  ///< both ends share it
  std::uint64_t turn_ = 0;
};

struct PairRequest {
  std::array<int, 2> cpus{};
  /// The flags, 0 at first; each end writes its own.
  std::array<PairEnd::Word*, 2> words{};
  /// A turn that takes longer than this was interrupted.
  std::chrono::milliseconds patience{20};
};

/// Calls body(end, side) on a thread for each side, once both are awake. kSystem if an end cannot
/// have its CPU, kTimeout if a turn took too long.
Status run_pair(Os& os, const PairRequest& request,
                const std::function<void(PairEnd& end, int side)>& body);

double nanoseconds_since(Os& os, TimePoint start);

}  // namespace topocoll
