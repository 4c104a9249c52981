// What is left until a point in time, for calls that take a duration.
#pragma once

#include <algorithm>
#include <chrono>

namespace topocoll::plugin {

using Clock = std::chrono::steady_clock;

/// At least a millisecond: who comes late still looks once.
inline std::chrono::milliseconds left(Clock::time_point deadline) {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::max(rest, std::chrono::milliseconds(1));
}

}  // namespace topocoll::plugin
