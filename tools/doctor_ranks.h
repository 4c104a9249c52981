// An all-reduce among rank processes of this machine, checked element by element and timed.
//
// Thread rule: one thread, before the process has any other. Failure rule: what goes wrong is in
// the report, with the rank to blame.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "topocoll/findings.h"
#include "topocoll/status.h"

namespace topocoll::tools {

struct SizeTiming {
  std::size_t bytes = 0;
  double median_us = 0;  ///< of the slowest rank
  double best_us = 0;
  [[nodiscard]] double algbw_gbps() const { return static_cast<double>(bytes) / median_us / 1e3; }
  [[nodiscard]] double best_gbps() const { return static_cast<double>(bytes) / best_us / 1e3; }
};

struct RanksReport {
  int ranks = 0;
  std::string tuning;               ///< what the group chose at its start, in words
  std::vector<SizeTiming> timings;  ///< of the sizes that were right on every rank
  std::optional<Finding> failure;
  /// Times the bytes that each rank must at least send and receive: 2 (n - 1) / n.
  [[nodiscard]] double busbw_gbps(const SizeTiming& timing) const {
    return ranks < 2 ? 0 : timing.algbw_gbps() * 2 * (ranks - 1) / ranks;
  }
};

/// kResource if not even the report has memory.
Result<RanksReport> run_ranks(const std::string& program, int ranks);

}  // namespace topocoll::tools
