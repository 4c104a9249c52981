// What the topocoll command does, one function per subcommand.
//
// Thread rule: one thread. Failure rule: a Status whose text is one line for the user; nothing has
// been printed then, or only what is right.
#pragma once

#include <string>

#include "topocoll/status.h"

namespace topocoll::tools {

struct PlanRequest {
  std::string file;  ///< empty: the direct plan that the rest describes
  std::string collective = "all_reduce";
  std::string algorithm = "two_shot";
  int ranks = 2;
  int root = 0;
  bool json = false;
};

/// Each returns what is to be printed.
Result<std::string> show_options(bool json);
Result<std::string> show_plan(const PlanRequest& request);
Result<std::string> check_plan(const std::string& file);
std::string show_version();

}  // namespace topocoll::tools
