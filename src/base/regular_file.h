// Files that are read whole. Thread rule: free functions. Failure rule: a Status that names the
// file.
#pragma once

#include <cstddef>
#include <string>

#include "base/fd.h"
#include "topocoll/status.h"

namespace topocoll {

/// Reads a file of at most `max_bytes`. Pipes and devices are refused: they may hold up a reader
/// for ever.
Result<std::string> read_regular_file(const std::string& path, std::size_t max_bytes);

/// What is left of a file that is open, and is called `path` in errors.
Result<std::string> read_rest(const Fd& file, const std::string& path, std::size_t max_bytes);

}  // namespace topocoll
