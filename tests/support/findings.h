// The findings of one code.
#pragma once

#include <string>
#include <vector>

#include "topocoll/findings.h"

namespace topocoll::testing {

inline std::vector<Finding> findings_of(const Topology& topology, const std::string& code) {
  std::vector<Finding> found = check_topology(topology);
  std::erase_if(found, [&](const Finding& f) { return f.code != code; });
  return found;
}

}  // namespace topocoll::testing
