#include "base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "topocoll/size.h"

namespace topocoll {
namespace {

Status failure(const std::string& path, int error) {
  return Status(Cause::kSystem,
                fmt::format("{}: {}", path, std::generic_category().message(error)));
}

}  // namespace

Result<std::string> read_regular_file(const std::string& path, std::size_t max_bytes) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0) return failure(path, errno);
  if (S_ISDIR(facts.st_mode)) return failure(path, EISDIR);
  if (!S_ISREG(facts.st_mode)) return Status(Cause::kSystem, path + ": is no regular file");
  return read_rest(file, path, max_bytes);
}

Result<std::string> read_rest(const Fd& file, const std::string& path, std::size_t max_bytes) {
  std::string text;
  char chunk[64 * 1024];
  for (;;) {
    const ssize_t n = ::read(file.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure(path, errno);
    if (n == 0) return text;
    text.append(chunk, static_cast<std::size_t>(n));
    if (text.size() > max_bytes) {
      return Status(Cause::kResource,
                    fmt::format("{}: larger than {}", path, size_text(max_bytes)));
    }
  }
}

}  // namespace topocoll
