// What the environment grants this process, and what of it bites.
//
// Thread rule: free functions. Failure rule: what cannot be read is absent and no finding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topocoll/findings.h"

namespace topocoll::tools {

struct ProcessLimits {
  std::optional<std::uint64_t> open_files;  ///< absent: unlimited or unknown, as below
  std::optional<std::uint64_t> file_bytes;
  std::optional<double> cpu_quota;  ///< CPUs' worth of time that the control group allows
  std::string governor;             ///< of CPU frequencies: "performance", "powersave"
  int usable_cpus = 1;
};

ProcessLimits read_limits(int usable_cpus, const std::string& root = "");

/// Findings for a group of `ranks` ranks here.
std::vector<Finding> judge_limits(const ProcessLimits& limits, int ranks);

}  // namespace topocoll::tools
