// What a test tells the fake libnvidia-ml.so, through the symbol `fake_nvml_state` that it exports.
#pragma once

#include <set>
#include <string>

namespace topocoll::testing {

struct FakeNvml {
  int init = 0;                       ///< what nvmlInit_v2 returns
  std::set<std::string> unsupported;  ///< functions that return "not supported"
  std::set<std::string> broken;       ///< functions that return "unknown error"
  bool common_speed = false;          ///< an old driver, which knows one speed for all NVLinks
  bool hide_remotes = false;          ///< as to a virtual machine
  int initialised = 0;                ///< nvmlInit_v2 less nvmlShutdown
};

}  // namespace topocoll::testing
