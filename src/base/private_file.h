// Files that a user's processes leave for each other: nobody else may have written them, and a
// reader sees a whole file or none.
//
// Thread rule: free functions; writers of one name replace each other. Failure rule: a Status that
// names the file and what is wrong with it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "topocoll/status.h"

namespace topocoll {

/// "topocoll" below XDG_CACHE_HOME or else ~/.cache, as the XDG base directory specification has
/// it. kUnsupported if neither is known.
Result<std::string> user_cache_directory();

/// Reads a regular file of this user that no other user may write, of at most `max_bytes`.
Result<std::string> read_private_file(const std::string& path, std::size_t max_bytes);

/// Makes `directory` (and what is missing above it) for this user alone, writes the text beside
/// `name` there, and renames it.
Status write_private_file(const std::string& directory, const std::string& name,
                          std::string_view text);

}  // namespace topocoll
