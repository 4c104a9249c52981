// The standard descriptors of coll_perf, which may be closed, full or no longer read.
//
// Thread rule: as for stdio. Failure rule: nothing here throws or aborts; what cannot be written is lost.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace topocoll::perf {

/// Writes to stderr. fmt::print() would throw where that is closed or full.
inline void say_error(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

/// Fills the numbers 0 to 2 where the caller left them closed: or the next socket or segment gets one of
/// them, and what is printed ends up in it. Writing to such a stand-in fails, as it would have before.
inline void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1 && ::open("/dev/null", O_RDONLY) == -1) return;
  }
}

}  // namespace topocoll::perf
