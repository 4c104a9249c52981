// What NVML said of a recorded machine's GPUs, a file of JSON for each below kRecordedGpus.
//
// Thread rule: free functions on values. Failure rule: a file that is not as gpu_to_json() writes
// it is kInvalidArgument and names the place.
#pragma once

#include <string>
#include <string_view>

#include "base/cuda/nvml.h"
#include "topocoll/status.h"
#include "topology/sysfs.h"

namespace topocoll {

inline constexpr const char* kRecordedGpus = "/topocoll/gpus";

/// Without the UUID, which names the very card.
std::string gpu_to_json(const NvmlDevice& gpu);
/// `what` begins each message.
Result<NvmlDevice> gpu_from_json(std::string_view text, std::string_view what);

/// All that a recording has; of a machine without, no device.
Result<NvmlReport> recorded_gpus(const SysfsRoot& root);

}  // namespace topocoll
