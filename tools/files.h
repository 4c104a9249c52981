// Files of the command's users.
//
// Thread rule: one thread. Failure rule: a Status that names the file.
#pragma once

#include <string>
#include <string_view>

#include "topocoll/status.h"

namespace topocoll::tools {

/// A file's text, or standard input's for "-".
Result<std::string> read_file(const std::string& path);
/// Writes a file anew, or to standard output for "-".
Status write_file(const std::string& path, std::string_view text);

}  // namespace topocoll::tools
