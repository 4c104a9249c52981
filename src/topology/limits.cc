#include <fmt/format.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <set>

#include "base/os.h"
#include "topology/hwloc_reader.h"
#include "topology/sysfs.h"

namespace topocoll {
namespace {

constexpr std::array kVisibleDevices = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
                                        "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};

constexpr std::size_t kMaxValueBytes = 1024;

template <class Use>
void each_line(const std::string& text, Use use) {
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    use(text.substr(start, end - start));
    start = end + 1;
  }
}

/// "Max locked memory         8388608              8388608              bytes": the soft limit.
std::string locked_memory_limit(const std::string& limits) {
  std::string found;
  each_line(limits, [&](const std::string& line) {
    constexpr std::string_view kName = "Max locked memory";
    if (line.rfind(kName, 0) != 0) return;
    const std::size_t from = std::min(line.find_first_not_of(' ', kName.size()), line.size());
    found = line.substr(from, std::min(line.find(' ', from), line.size()) - from);
  });
  return found;
}

}  // namespace

std::string recorded_cpus(const SysfsRoot& root) {
  std::string cpus;
  each_line(root.text(kRecordedProcess).value_or(""), [&](const std::string& line) {
    if (line.rfind("cpus ", 0) == 0) cpus = line.substr(5);
  });
  return cpus;
}

std::string describe_process() {
  std::string text = fmt::format("cpus {}\n", cpu_ranges(Os::real().usable_cpus()));
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    text += fmt::format("shm_bytes {}\n", std::uint64_t{shm.f_blocks} * shm.f_frsize);
    text += fmt::format("shm_free_bytes {}\n", std::uint64_t{shm.f_bavail} * shm.f_frsize);
  }
  for (const char* name : kVisibleDevices) {
    // Nothing is visible if it is set to nothing, and that is worth telling.
    if (const char* value = std::getenv(name)) text += fmt::format("{} {}\n", name, value);
  }
  ifaddrs* all = nullptr;
  std::set<std::string> lines;
  if (::getifaddrs(&all) == 0) {
    for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
      if (a->ifa_addr == nullptr || a->ifa_name == nullptr) continue;
      const int family = a->ifa_addr->sa_family;
      if (family == AF_INET) lines.insert(fmt::format("address {} inet\n", a->ifa_name));
      if (family == AF_INET6) lines.insert(fmt::format("address {} inet6\n", a->ifa_name));
    }
    ::freeifaddrs(all);
  }
  for (const std::string& line : lines) text += line;
  return text;
}

void add_limits(const SysfsRoot& root, Topology& topology) {
  if (topology.nodes.empty()) return;
  auto& attributes = topology.nodes.front().attributes;
  const std::string memlock = locked_memory_limit(root.text("/proc/self/limits").value_or(""));
  if (!memlock.empty()) attributes["memlock_bytes"] = memlock;
  const std::string process =
      root.is_live() ? describe_process() : root.text(kRecordedProcess).value_or("");
  each_line(process, [&](const std::string& line) {
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string key = line.substr(0, blank);
    const bool known =
        key == "shm_bytes" || key == "shm_free_bytes" ||
        std::find(kVisibleDevices.begin(), kVisibleDevices.end(), key) != kVisibleDevices.end();
    if (known) attributes[key] = line.substr(std::min(blank + 1, line.size()), kMaxValueBytes);
  });
}

}  // namespace topocoll
