#include "topology/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <memory>
#include <system_error>

#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 10;

}  // namespace

Result<SysfsRoot> SysfsRoot::open(const std::string& path) {
  SysfsRoot result;
  result.root_ = Fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!result.root_.valid()) {
    return Status(Cause::kSystem,
                  fmt::format("{}: {}", path, std::generic_category().message(errno)));
  }
  struct stat given {};
  struct stat slash {};
  result.live_ = ::fstat(result.root_.get(), &given) == 0 && ::stat("/", &slash) == 0 &&
                 given.st_dev == slash.st_dev && given.st_ino == slash.st_ino;
  return result;
}

Fd SysfsRoot::open_below(const std::string& path, int flags) const {
  const std::string below = path.substr(std::min(path.find_first_not_of('/'), path.size()));
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT;
  const long fd = ::syscall(SYS_openat2, root_.get(), below.c_str(), &how, sizeof how);
  if (fd >= 0) return Fd(static_cast<int>(fd));
  // Kernels before 5.6, and sandboxes, have no openat2; on the live root nothing needs to be
  // confined.
  if (live_ && (errno == ENOSYS || errno == EPERM)) {
    return Fd(::openat(root_.get(), below.c_str(), flags | O_CLOEXEC));
  }
  return Fd();
}

std::optional<std::string> SysfsRoot::bytes(const std::string& path) const {
  // A recorded copy may hold a pipe where a file is expected.
  const Fd fd = open_below(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  struct stat facts {};
  if (!fd.valid() || ::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  std::string text(kMaxFileBytes, 0);
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && have == 0) return std::nullopt;
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

std::optional<std::string> SysfsRoot::text(const std::string& path) const {
  auto text = bytes(path);
  if (!text) return std::nullopt;
  while (!text->empty() && (text->back() == '\n' || text->back() == 0)) text->pop_back();
  return text;
}

std::optional<long> SysfsRoot::number(const std::string& path) const {
  const auto given = text(path);
  if (!given) return std::nullopt;
  long value = 0;
  const auto parsed = std::from_chars(given->data(), given->data() + given->size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != given->data() + given->size()) return std::nullopt;
  return value;
}

std::vector<std::string> SysfsRoot::list(const std::string& path) const {
  std::vector<std::string> names;
  Fd fd = open_below(path, O_RDONLY | O_DIRECTORY);
  if (!fd.valid()) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(::dup(fd.get())), ::closedir);
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> SysfsRoot::link(const std::string& path) const {
  const Fd fd = open_below(path, O_PATH | O_NOFOLLOW);
  if (!fd.valid()) return std::nullopt;
  std::array<char, PATH_MAX> target{};
  const ssize_t length = ::readlinkat(fd.get(), "", target.data(), target.size());
  if (length <= 0) return std::nullopt;
  return std::string(target.data(), static_cast<std::size_t>(length));
}

bool cpu_list_contains(std::string_view list, int cpu) {
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(range.size() + 1, list.size()));
    int first = 0;
    const auto parsed = std::from_chars(range.data(), range.data() + range.size(), first);
    if (parsed.ec != std::errc()) return false;
    int last = first;
    if (parsed.ptr != range.data() + range.size()) {
      std::from_chars(parsed.ptr + 1, range.data() + range.size(), last);
    }
    if (first <= cpu && cpu <= last) return true;
  }
  return false;
}

std::string bdf_in_path(const std::string& path) {
  std::string last;
  for (std::size_t start = 0; start < path.size();) {
    const std::size_t slash = std::min(path.find('/', start), path.size());
    const std::string part = path.substr(start, slash - start);
    // "pci0000:00" is a bus, and a name such as "0000:00:03.0" is what is meant.
    if (std::count(part.begin(), part.end(), ':') == 2) {
      if (std::string bdf = canonical_bdf(part); !bdf.empty()) last = std::move(bdf);
    }
    start = slash + 1;
  }
  return last;
}

}  // namespace topocoll
