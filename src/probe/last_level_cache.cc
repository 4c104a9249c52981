#include "probe/last_level_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "topology/sysfs.h"

namespace topocoll {
namespace {

constexpr LastLevelCache kUsual{std::uint64_t(32) << 20, 0};

/// "32768K"; 0 if it is nothing like that.
std::uint64_t size_bytes(const std::string& text) {
  std::uint64_t kib = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, kib);
  const bool whole = parsed.ec == std::errc() && std::string_view(parsed.ptr, end) == "K";
  return whole && kib < (std::uint64_t(1) << 40) ? kib << 10 : 0;
}

}  // namespace

std::optional<LastLevelCache> last_level_cache(std::span<const int> cpus, const std::string& root) {
  const auto sysfs = SysfsRoot::open(root);
  if (!sysfs.ok() || cpus.empty()) return std::nullopt;
  const std::string caches = fmt::format("/sys/devices/system/cpu/cpu{}/cache", cpus.front());
  long last = 0;
  std::optional<LastLevelCache> found;
  for (const std::string& index : sysfs->list(caches)) {
    const std::string below = caches + "/" + index;
    const long level = sysfs->number(below + "/level").value_or(0);
    const std::uint64_t bytes = size_bytes(sysfs->text(below + "/size").value_or(""));
    if (level <= last || bytes == 0) continue;
    last = level;
    const std::string sharers = sysfs->text(below + "/shared_cpu_list").value_or("");
    const auto share = [&](int cpu) { return cpu_list_contains(sharers, cpu); };
    found = LastLevelCache{bytes, static_cast<int>(std::count_if(cpus.begin(), cpus.end(), share))};
  }
  return found;
}

std::uint64_t uncached_bytes(const std::optional<LastLevelCache>& cache, int cpus, int ranks) {
  const LastLevelCache known = cache.value_or(kUsual);
  const bool some_share = known.cpus > 0 && known.cpus < cpus;
  const int sharing = some_share ? (ranks * known.cpus + cpus - 1) / cpus : ranks;
  return known.bytes / 2 / static_cast<std::uint64_t>(std::max(sharing, 1));
}

}  // namespace topocoll
