#include "archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace topocoll::tools {
namespace {

/// A recording has small files only; this is what a packed bomb meets.
constexpr rlim_t kMaxFileBytes = rlim_t{64} << 20;
constexpr rlim_t kMaxSeconds = 60;

void limit(int resource, rlim_t value) {
  const rlimit limits{value, value};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limits);
}

/// Runs tar; false if it says no.
bool run_tar(std::vector<std::string> arguments, bool limited) {
  arguments.insert(arguments.begin(), "tar");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (limited) {
      limit(RLIMIT_FSIZE, kMaxFileBytes);
      limit(RLIMIT_CPU, kMaxSeconds);
    }
    ::execvp("tar", argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

Result<TemporaryDirectory> TemporaryDirectory::create() {
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error) {
    return Status(Cause::kSystem, "no directory for temporary files: " + error.message() + "; set TMPDIR");
  }
  std::string path = (base / "topocoll-XXXXXX").string();  // mkdtemp() fills in the X
  if (::mkdtemp(path.data()) == nullptr) {
    return Status(Cause::kSystem, fmt::format("{}: {}", path, std::strerror(errno)));
  }
  return TemporaryDirectory(path);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

bool is_archive(const std::string& path) {
  constexpr std::array kEndings = {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"};
  for (const char* ending : kEndings) {
    if (path.ends_with(ending)) return true;
  }
  return false;
}

namespace {

/// Makes the file, so that tar's own words on why it cannot are not needed.
Status create_anew(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file >= 0) {
    ::close(file);
    return {};
  }
  if (errno == EEXIST) {
    return Status(Cause::kInvalidArgument, path + " is already there: give a new name, or remove it");
  }
  return Status(Cause::kSystem, fmt::format("{}: {}", path, std::strerror(errno)));
}

}  // namespace

Status pack(const std::string& directory, const std::string& name, const std::string& archive) {
  if (Status s = create_anew(archive); !s.ok()) return s;
  // Owners and times say nothing of the machine, and the same tree gives the same archive.
  if (run_tar({"--create", "--auto-compress", "--file", archive, "--owner=0", "--group=0",
               "--numeric-owner", "--mtime=@0", "--sort=name", "--force-local", "-C", directory,
               "--", name},
              false)) {
    return Status();
  }
  ::unlink(archive.c_str());
  return Status(Cause::kSystem, archive + ": tar cannot write it");
}

Status unpack(const std::string& archive, const std::string& directory) {
  if (::access(archive.c_str(), R_OK) != 0) {
    return Status(Cause::kSystem, fmt::format("{}: {}", archive, std::strerror(errno)));
  }
  if (run_tar({"--extract", "--file", archive, "--no-same-owner", "--no-same-permissions",
               "--delay-directory-restore", "--force-local", "--mode=u+rwX", "-C", directory},
              true)) {
    return Status();
  }
  return Status(Cause::kInvalidArgument,
                archive + ": tar cannot unpack it: damaged, too large, or its packer is missing");
}

}  // namespace topocoll::tools
