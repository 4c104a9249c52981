// What the driver says of GPUs' health.
#include <fmt/format.h>

#include <string_view>
#include <unordered_map>

#include "topology/findings/rules.h"

namespace topocoll {
namespace {

/// The hardware, or heat, slows the GPU down; a power cap alone may be as its owner wants it.
bool is_fault(const std::string& reasons) {
  return reasons.find("hw_") != std::string::npos || reasons.find("thermal") != std::string::npos;
}

}  // namespace

void FindingRules::gpu_memory() {
  for (const TopologyNode* gpu : topology_.of_kind(NodeKind::kGpu)) {
    const double errors = number(*gpu, "ecc_uncorrected").value_or(0);
    if (errors <= 0) continue;
    add({"gpu-ecc",
         Severity::kError,
         {gpu->id},
         fmt::format("memory of {} has lost data", gpu->id),
         fmt::format("{:g} uncorrected ECC errors since the driver was loaded (NVML)", errors),
         {},
         fmt::format("nvidia-smi -q -d ECC,ROW_REMAPPER -i {}; reset or replace the GPU",
                     gpu->bdf)});
  }
}

void FindingRules::gpu_throttling() {
  for (const TopologyNode* gpu : topology_.of_kind(NodeKind::kGpu)) {
    const std::string reasons = gpu->attribute("throttled_by");
    if (reasons.empty()) continue;
    const std::string heat = gpu->attribute("temperature_c");
    add({"gpu-throttled",
         is_fault(reasons) ? Severity::kWarning : Severity::kInfo,
         {gpu->id},
         fmt::format("{} runs slower than it could", gpu->id),
         fmt::format("reasons {}{} (NVML)", reasons, heat.empty() ? "" : ", " + heat + " °C"),
         {},
         fmt::format("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {}", gpu->bdf)});
  }
}

void FindingRules::gpu_links() {
  std::unordered_map<std::string_view, int> links;
  for (const TopologyEdge& edge : topology_.edges) {
    if (edge.kind == "nvlink") links[edge.from] += edge.count.value_or(1);
  }
  for (const TopologyNode* gpu : topology_.of_kind(NodeKind::kGpu)) {
    const int up = links[gpu->id];
    const double down = number(*gpu, "nvlinks_down").value_or(0);
    const double errors = number(*gpu, "nvlink_errors").value_or(0);
    const std::string look =
        fmt::format("nvidia-smi nvlink --status --errorcounters -i {}", gpu->bdf);
    if (up > 0 && down > 0) {  // a card without a bridge has all links down
      add({"nvlink-down",
           Severity::kWarning,
           {gpu->id},
           fmt::format("{:g} of {:g} NVLinks of {} are down", down, up + down, gpu->id),
           "the links' state (NVML)",
           100.0 * down / (up + down),
           look + "; reset the GPU; look for Xid 74 in the kernel's log"});
    }
    if (errors > 0) {
      add({"nvlink-errors",
           Severity::kInfo,
           {gpu->id},
           fmt::format("NVLinks of {} have counted errors", gpu->id),
           fmt::format("{:g} replays, recoveries and CRC errors (NVML)", errors),
           {},
           "watch whether they grow: " + look});
    }
  }
}

}  // namespace topocoll
