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

std::uint64_t left_of(const std::string& limit, const std::string& used) {
  const auto most = number_in(limit);
  if (!most) return kNoMemoryLimit;
  return *most - std::min(*most, number_in(used).value_or(0));
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
    const std::string folder = root + "/sys/fs/cgroup" + group;
    return left_of(folder + "/memory.max", folder + "/memory.current");
  });
  const std::uint64_t one = least_upwards(group_of(root, "memory"), [&](const std::string& group) {
    const std::string folder = root + "/sys/fs/cgroup/memory" + group;
    return left_of(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes");
  });
  return std::min({system_available(root), one, two});
}

}  // namespace topocoll
