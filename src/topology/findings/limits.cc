// What limits this process.
#include <fmt/format.h>

#include "topology/findings/rules.h"

namespace topocoll {
namespace {

constexpr double kMiB = 1U << 20;
constexpr double kTinyShm = 256 * kMiB;  ///< container runtimes give 64 MiB
constexpr double kSmallShm = 1024 * kMiB;
constexpr double kLowMemlock = 1024 * kMiB;

std::string mebibytes(double bytes) { return fmt::format("{:.0f} MiB", bytes / kMiB); }

}  // namespace

void FindingRules::shared_memory() {
  for (const TopologyNode* host : topology_.of_kind(NodeKind::kHost)) {
    const auto size = number(*host, "shm_bytes");
    if (!size || *size >= kSmallShm) continue;
    add({"shm-small",
         *size < kTinyShm ? Severity::kError : Severity::kWarning,
         {host->id},
         fmt::format("/dev/shm holds {}: peers that keep rings there fail or fall back",
                     mebibytes(*size)),
         fmt::format("statvfs(/dev/shm): {:.0f} bytes", *size),
         {},
         "docker run --shm-size=8g (or --ipc=host); else: mount -o remount,size=8G /dev/shm"});
  }
}

void FindingRules::locked_memory() {
  for (const TopologyNode* host : topology_.of_kind(NodeKind::kHost)) {
    const auto limit = number(*host, "memlock_bytes");  // "unlimited" is no number
    if (!limit || *limit >= kLowMemlock) continue;
    add({"memlock-low",
         has_rdma() ? Severity::kError : Severity::kInfo,
         {host->id},
         fmt::format("at most {} of memory can be locked: RDMA registration fails beyond",
                     mebibytes(*limit)),
         fmt::format("Max locked memory {:.0f} bytes (/proc/self/limits)", *limit),
         {},
         "ulimit -l unlimited; docker run --ulimit memlock=-1; memlock in "
         "/etc/security/limits.conf"});
  }
}

/// GPUs at NUMA nodes on which this process may not run.
void FindingRules::cpus() {
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    if (node(i).kind != NodeKind::kGpu) continue;
    const std::size_t numa = tree_.numa_of(i);
    if (numa == TopologyTree::kNone || !node(numa).cpus.empty()) continue;
    const std::size_t host = tree_.above(numa, NodeKind::kHost);
    if (host == TopologyTree::kNone || node(host).cpus.empty()) continue;  // no CPU is known at all
    add({"cpuset",
         Severity::kWarning,
         {node(i).id, node(numa).id},
         fmt::format("this process may not run on any CPU near {}", node(i).id),
         fmt::format("no usable CPU at {}", node(numa).id),
         {},
         "widen the cpuset or affinity (taskset -pc, docker --cpuset-cpus)"});
  }
}

void FindingRules::hidden_gpus() {
  for (const TopologyNode* host : topology_.of_kind(NodeKind::kHost)) {
    for (const char* key :
         {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
      const auto found = host->attributes.find(key);
      if (found == host->attributes.end()) continue;
      add({"gpus-hidden",
           Severity::kInfo,
           {host->id},
           fmt::format("{} hides GPUs from this process that are listed here", key),
           fmt::format("{}=\"{}\"", key, found->second),
           {},
           fmt::format("unset {}", key)});
    }
  }
}

}  // namespace topocoll
