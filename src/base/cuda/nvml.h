// NVML: what NVIDIA's driver says of its GPUs. The library is loaded at run time and let go of
// again; nothing of it is needed to build.
//
// Thread rule: any thread. Failure rule: no library, no driver, or no right to ask is kUnsupported,
// and the text says which. What a device does not support is absent; what it should know and does
// not say is a note.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topocoll/status.h"

namespace topocoll {

struct NvmlLink {
  int number = 0;
  bool active = false;
  std::optional<int> version;
  std::string remote_bdf;   ///< in lower case; empty: the driver hides it, as to virtual machines
  std::string remote_kind;  ///< "gpu", "switch", "npu" or empty
  std::optional<std::uint64_t> replays;
  std::optional<std::uint64_t> recoveries;
  std::optional<std::uint64_t> crc_errors;
};

struct NvmlDevice {
  std::string uuid;
  std::string bdf;  ///< "0000:4e:00.0"
  std::string name;
  std::vector<NvmlLink> links;
  std::optional<double> link_gbps;  ///< of each active link and direction
  std::optional<int> pcie_generation;
  std::optional<int> pcie_width;
  std::optional<int> max_pcie_generation;
  std::optional<int> max_pcie_width;
  std::optional<std::uint64_t> pcie_replays;
  std::optional<int> temperature_c;
  std::optional<int> utilization_percent;      ///< of the last second or so, by whomever
  std::vector<std::string> throttled_by;       ///< "hw_thermal", ...; idleness is no reason
  std::optional<std::uint64_t> ecc_corrected;  ///< since the driver was loaded
  std::optional<std::uint64_t> ecc_uncorrected;
};

struct NvmlReport {
  std::string driver;
  std::vector<NvmlDevice> devices;
  std::vector<std::string> notes;
};

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

Result<NvmlReport> read_nvml(const std::string& library = kNvmlLibrary);

}  // namespace topocoll
