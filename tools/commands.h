// The subcommands of topocoll that have none of their own.
//
// Thread rule: one thread. Failure rule: a Status whose text is one line for the user; nothing has
// been printed then, or only what is right.
#pragma once

#include <string>

#include "topocoll/status.h"

namespace topocoll::tools {

/// Each returns what is to be printed.
Result<std::string> show_options(bool json);
std::string show_version();

}  // namespace topocoll::tools
