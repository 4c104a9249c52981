// The CPUs that a test may use.
#pragma once

#include <array>
#include <vector>

#include "base/os.h"

namespace topocoll::testing {

/// The first and the last CPU that this process may use; twice the same where there is one only.
inline std::array<int, 2> two_cpus() {
  const std::vector<int> cpus = Os::real().usable_cpus();
  return {cpus.front(), cpus.back()};
}

}  // namespace topocoll::testing
