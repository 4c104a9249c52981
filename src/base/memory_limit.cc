#include "base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace topocoll {
namespace {

/// The number in a file that holds nothing else; "max" is no number.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::uint64_t system_available(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") return kib << 10;
  }
  return kNoMemoryLimit;
}

/// What the kernel takes back from a control group before it kills: cached pages of files.
std::uint64_t reclaimable(const std::string& statistics, const std::string& prefix) {
  std::ifstream file(statistics);
  std::string key;
  std::uint64_t bytes = 0;
  std::uint64_t sum = 0;
  while (file >> key >> bytes) {
    if (key == prefix + "inactive_file" || key == prefix + "active_file") sum += bytes;
  }
  return sum;
}

/// The files of one version of control groups.
struct Version {
  const char* limit;
  const char* used;
  const char* prefix;  ///< of the lines in memory.stat that count the groups below too
};
constexpr Version kOne{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_"};
constexpr Version kTwo{"/memory.max", "/memory.current", ""};

std::uint64_t left_in(const std::string& folder, const Version& version) {
  const auto most = number_in(folder + version.limit);
  if (!most) return kNoMemoryLimit;
  const std::uint64_t used = number_in(folder + version.used).value_or(0);
  const std::uint64_t cached = reclaimable(folder + "/memory.stat", version.prefix);
  const std::uint64_t kept = used - std::min(used, cached);
  return *most - std::min(*most, kept);
}

/// The path of this process's control group of a controller; "" is version 2.
std::string group_of(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // "4:memory:/path", or "0::/path"
    const auto first = line.find(':');
    const auto second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") != line.npos) return line.substr(second + 1);
  }
  return "";
}

/// The least that a group and those above it leave.
template <class Left>
std::uint64_t least_upwards(std::string group, Left left) {
  std::uint64_t least = kNoMemoryLimit;
  for (;;) {
    least = std::min(least, left(group));
    const auto slash = group.rfind('/');
    if (group.empty() || slash == group.npos) return least;
    group.resize(slash);
  }
}

}  // namespace

std::uint64_t available_memory_bytes(const std::string& root) {
  const std::uint64_t two = least_upwards(group_of(root, ""), [&](const std::string& group) {
    return left_in(root + "/sys/fs/cgroup" + group, kTwo);
  });
  const std::uint64_t one = least_upwards(group_of(root, "memory"), [&](const std::string& group) {
    return left_in(root + "/sys/fs/cgroup/memory" + group, kOne);
  });
  return std::min({system_available(root), one, two});
}

}  // namespace topocoll
