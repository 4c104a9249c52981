#include "doctor_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

namespace topocoll::tools {
namespace {

constexpr std::uint64_t kLeastFileBytes = std::uint64_t{1} << 30;
/// Descriptors of a rank: standard ones, store, segment, links to all others, and the program's
/// own.
constexpr std::uint64_t kFilesOfProgram = 64;
constexpr std::uint64_t kFilesOfPeer = 4;

std::optional<std::uint64_t> limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::optional<double> ratio(double quota, double period) {
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// Version 2 has "quota period" in one file, version 1 each in one of its own; "max" and -1 are no
/// limit. A container sees its own group at the root.
std::optional<double> cpu_quota(const std::string& root) {
  double quota = 0;
  double period = 0;
  std::ifstream both(root + "/sys/fs/cgroup/cpu.max");
  if (both >> quota >> period) return ratio(quota, period);
  std::ifstream(root + "/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
  std::ifstream(root + "/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  return ratio(quota, period);
}

Finding finding(const char* code, Severity severity, std::string text, std::string evidence,
                std::string fix) {
  return {code, severity, {"host"}, std::move(text), std::move(evidence), {}, std::move(fix)};
}

}  // namespace

ProcessLimits read_limits(int usable_cpus, const std::string& root) {
  ProcessLimits limits;
  limits.open_files = limit_of(RLIMIT_NOFILE);
  limits.file_bytes = limit_of(RLIMIT_FSIZE);
  limits.cpu_quota = cpu_quota(root);
  std::ifstream(root + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") >> limits.governor;
  limits.usable_cpus = usable_cpus;
  return limits;
}

std::vector<Finding> judge_limits(const ProcessLimits& limits, int ranks) {
  std::vector<Finding> found;
  const std::uint64_t files = kFilesOfProgram + kFilesOfPeer * static_cast<std::uint64_t>(ranks);
  if (limits.open_files && *limits.open_files < files) {
    found.push_back(
        finding("nofile-low", Severity::kWarning,
                fmt::format("{} files may be open at a time: a group of {} ranks may run out",
                            *limits.open_files, ranks),
                fmt::format("RLIMIT_NOFILE {}", *limits.open_files),
                fmt::format("ulimit -n {}", std::max<std::uint64_t>(1024, files))));
  }
  if (limits.file_bytes && *limits.file_bytes < kLeastFileBytes) {
    found.push_back(
        finding("fsize-low", Severity::kWarning,
                fmt::format("files may grow to {} bytes, and shared memory counts as a file: "
                            "groups of many ranks fail to start",
                            *limits.file_bytes),
                fmt::format("RLIMIT_FSIZE {}", *limits.file_bytes), "ulimit -f unlimited"));
  }
  if (limits.cpu_quota && *limits.cpu_quota < std::min(ranks, limits.usable_cpus)) {
    found.push_back(
        finding("cpu-quota", Severity::kWarning,
                fmt::format("the control group grants the time of {:.3g} CPUs to {} ranks: they "
                            "are stopped again and again",
                            *limits.cpu_quota, ranks),
                fmt::format("cpu.max: {:.3g} CPUs", *limits.cpu_quota),
                "raise the quota (docker run --cpus, Kubernetes' limits.cpu)"));
  }
  if (ranks > limits.usable_cpus) {
    found.push_back(
        finding("oversubscribed", Severity::kWarning,
                fmt::format("{} ranks share {} CPU{}: small messages take microseconds instead of "
                            "fractions of one",
                            ranks, limits.usable_cpus, limits.usable_cpus == 1 ? "" : "s"),
                fmt::format("{} CPUs in the affinity mask", limits.usable_cpus),
                "start fewer ranks, or widen the cpuset (taskset -pc, docker --cpuset-cpus)"));
  }
  if (limits.governor == "powersave") {
    found.push_back(finding("cpu-governor", Severity::kInfo,
                            "CPUs slow down when idle: first operations after a pause take longer",
                            "scaling_governor powersave", "cpupower frequency-set -g performance"));
  }
  return found;
}

}  // namespace topocoll::tools
