// How much memory this process may still take without harm to others or itself.
//
// Thread rule: free functions. Failure rule: what cannot be read limits nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace topocoll {

inline constexpr std::uint64_t kNoMemoryLimit = std::numeric_limits<std::uint64_t>::max();

/// What the system has available, or less where the control group allows less; without swap. Cached
/// pages of files count as available. Files are looked up below `root`, which tests give.
std::uint64_t available_memory_bytes(const std::string& root = "");

}  // namespace topocoll
