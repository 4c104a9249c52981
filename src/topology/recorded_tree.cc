#include "topology/recorded_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "topology/sysfs.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{64} << 20;
constexpr unsigned long kMaxNumaNode = 4095;
constexpr unsigned long kMaxCpu = 65'535;
constexpr std::size_t kMaxEntries = 1'000'000;

/// What is wrong with an entry; empty: nothing.
std::string problem(const fs::directory_entry& entry, const fs::path& root) {
  std::error_code error;
  const fs::file_status own = entry.symlink_status(error);
  if (error) return error.message();
  if (fs::is_directory(own)) return "";
  if (fs::is_regular_file(own)) {
    return fs::file_size(entry.path(), error) > kMaxFileBytes ? "larger than 64 MiB" : "";
  }
  if (!fs::is_symlink(own)) return "neither a file, a directory nor a link";
  const fs::path target = fs::canonical(entry.path(), error);
  if (error) return "";  // it leads to nothing: nobody can open it either
  const auto [end, ignored] = std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  return end == root.end() ? "" : "a link that leads out of the recording";
}

/// The largest number in a list such as "0-3,8"; nothing if it is no ascending list. hwloc takes
/// whatever stands there, and aborts where that leaves no number.
std::optional<unsigned long> largest(std::string_view list) {
  std::optional<unsigned long> most;
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto take_number = [&]() -> bool {
    unsigned long value = 0;
    const auto parsed = std::from_chars(at, end, value);
    if (parsed.ec == std::errc::result_out_of_range) value = ULONG_MAX;
    if (parsed.ptr == at || (most && value < *most)) return false;
    most = value;
    at = parsed.ptr;
    return true;
  };
  for (;; ++at) {
    if (!take_number()) return std::nullopt;
    if (at != end && *at == '-' && (++at, !take_number())) return std::nullopt;
    if (at == end) return most;
    if (*at != ',') return std::nullopt;
  }
}

/// hwloc makes room for as many as these lists name.
Status check_lists(const SysfsRoot& root) {
  constexpr std::array<std::pair<const char*, unsigned long>, 4> kLists = {
      {{"/sys/devices/system/node/online", kMaxNumaNode},
       {"/sys/devices/system/node/possible", kMaxNumaNode},
       {"/sys/devices/system/cpu/online", kMaxCpu},
       {"/sys/devices/system/cpu/possible", kMaxCpu}}};
  for (const auto& [file, most] : kLists) {
    const auto list = root.text(file);
    if (!list) continue;
    const auto number = largest(*list);
    if (!number) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("{}: expected an ascending list such as 0-3,8", file));
    }
    if (*number > most) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("{}: names number {}, {} are allowed", file, *number, most));
    }
  }
  return {};
}

}  // namespace

Status check_recorded_tree(const std::string& root) {
  const auto sysfs = SysfsRoot::open(root);
  if (!sysfs.ok()) return sysfs.status();
  if (Status s = check_lists(*sysfs); !s.ok()) return s.annotated(root);
  std::error_code error;
  const fs::path top = fs::canonical(root, error);
  std::size_t entries = 0;
  fs::recursive_directory_iterator entry(top, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string wrong =
        ++entries > kMaxEntries ? "more entries than a machine has" : problem(*entry, top);
    if (!wrong.empty()) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("{}: {}; a recorded machine has none of that",
                                entry->path().string(), wrong));
    }
  }
  if (error) {
    return Status(Cause::kInvalidArgument, fmt::format("{}: {}", root, error.message()));
  }
  return {};
}

}  // namespace topocoll
