#include "topology/numa_nodes.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "topology/sysfs.h"

namespace topocoll {
namespace {

/// 7 of "node7".
std::optional<int> number_of(std::string_view name) {
  constexpr std::string_view kPrefix = "node";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int number = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

NumaNodes::NumaNodes(const std::string& root) {
  const auto sysfs = SysfsRoot::open(root);
  if (!sysfs.ok()) return;
  const std::string nodes = "/sys/devices/system/node";
  for (const std::string& name : sysfs->list(nodes)) {
    const auto number = number_of(name);
    const auto cpus = sysfs->text(nodes + "/" + name + "/cpulist");
    if (number && cpus) cpus_[*number] = *cpus;
  }
}

std::optional<int> NumaNodes::of(std::span<const int> cpus) const {
  if (cpus.empty()) return std::nullopt;
  for (const auto& [node, list] : cpus_) {
    if (!cpu_list_contains(list, cpus.front())) continue;
    const auto here = [&list = list](int cpu) { return cpu_list_contains(list, cpu); };
    return std::all_of(cpus.begin(), cpus.end(), here) ? std::optional(node) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace topocoll
