// The TOPOCOLL_* environment variables, all of them, with their values and where those came from.
#pragma once

#include <string>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/status.h"

namespace topocoll {

struct OptionInfo {
  std::string name;    ///< "TOPOCOLL_COMMIT"
  std::string type;    ///< "strict|chained", "milliseconds", "bytes", "text", "on|off"
  std::string value;   ///< as it is in force; secrets are shown as "(set)"
  std::string fallback;///< the default
  std::string origin;  ///< "default" or "environment"
  std::string help;
};

/// All options. kInvalidArgument names the first variable that is unknown (with the nearest known
/// name) or has a value that cannot be read (with what is allowed).
TOPOCOLL_API Result<std::vector<OptionInfo>> list_options();

/// All options, and every variable that is wrong: what list_options() gives, where an error is no
/// reason to say nothing else. A wrong variable's row has the default.
struct OptionTable {
  std::vector<OptionInfo> rows;
  std::vector<Status> errors;
};
TOPOCOLL_API OptionTable option_table();

}  // namespace topocoll
