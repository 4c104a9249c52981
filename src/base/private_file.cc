#include "base/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "base/regular_file.h"

namespace topocoll {
namespace {

Status failure(const std::string& path, int error) {
  return Status(Cause::kSystem,
                fmt::format("{}: {}", path, std::generic_category().message(error)));
}

/// Whether only this user can have written what `facts` describe.
Status check_owner(const std::string& path, const struct stat& facts) {
  if (facts.st_uid != ::geteuid()) {
    return Status(Cause::kSystem, fmt::format("{}: belongs to user {}, not to user {}", path,
                                              facts.st_uid, ::geteuid()));
  }
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(Cause::kSystem,
                  fmt::format("{}: other users may write it (chmod go-w mends that)", path));
  }
  return {};
}

Status check_directory(const std::string& directory) {
  struct stat facts {};
  if (::stat(directory.c_str(), &facts) != 0) return failure(directory, errno);
  if (!S_ISDIR(facts.st_mode)) return failure(directory, ENOTDIR);
  return check_owner(directory, facts);
}

Status write_all(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure(path, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Result<std::string> user_cache_directory() {
  // Relative paths are to be ignored, says the specification.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/topocoll";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/topocoll";
  return Status(
      Cause::kUnsupported,
      "no cache directory: neither XDG_CACHE_HOME nor HOME names one; set TOPOCOLL_CACHE_DIR");
}

Result<std::string> read_private_file(const std::string& path, std::size_t max_bytes) {
  // A pipe must not hold up the reader, and a link could lead to anybody's file.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts {};
  if (!file.valid()) {
    const int error = errno;
    if (error != ELOOP || ::lstat(path.c_str(), &facts) != 0 || !S_ISLNK(facts.st_mode)) {
      return failure(path, error);
    }
    return Status(Cause::kSystem, path + ": is a symbolic link, and those are ignored");
  }
  if (::fstat(file.get(), &facts) != 0) return failure(path, errno);
  if (!S_ISREG(facts.st_mode)) return Status(Cause::kSystem, path + ": is no regular file");
  if (Status s = check_owner(path, facts); !s.ok()) return s;
  return read_rest(file, path, max_bytes);
}

Status write_private_file(const std::string& directory, const std::string& name,
                          std::string_view text) {
  std::error_code error;
  const auto above = std::filesystem::path(directory).parent_path();
  std::filesystem::create_directories(above, error);  // what is wrong shows in the next line
  if (::mkdir(directory.c_str(), S_IRWXU) != 0 && errno != EEXIST) return failure(directory, errno);
  if (Status s = check_directory(directory); !s.ok()) return s;
  const std::string path = directory + "/" + name;
  std::string unfinished = path + ".XXXXXX";
  const Fd file(::mkostemp(unfinished.data(), O_CLOEXEC));
  if (!file.valid()) return failure(unfinished, errno);
  Status status = write_all(file.get(), unfinished, text);
  if (status.ok() && ::rename(unfinished.c_str(), path.c_str()) != 0) status = failure(path, errno);
  if (!status.ok()) ::unlink(unfinished.c_str());
  return status;
}

}  // namespace topocoll
