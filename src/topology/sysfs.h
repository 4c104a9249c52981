// What the kernel says of devices in /sys and /proc, below a root that may be a recorded copy of
// them.
//
// Thread rule: one thread at a time. Failure rule: what cannot be read is absent; nothing outside
// the root is read, whatever a recorded copy's links say.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

class SysfsRoot {
 public:
  static Result<SysfsRoot> open(const std::string& path);

  /// A file's text without its last newline; absent if there is none. Paths start with "/".
  [[nodiscard]] std::optional<std::string> text(const std::string& path) const;
  /// The same with every byte, at most 64 KiB.
  [[nodiscard]] std::optional<std::string> bytes(const std::string& path) const;
  /// The same as a decimal number.
  [[nodiscard]] std::optional<long> number(const std::string& path) const;
  /// Names in a directory, sorted; none if there is no such directory.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;
  /// Where a symbolic link points, as it is written.
  [[nodiscard]] std::optional<std::string> link(const std::string& path) const;
  [[nodiscard]] bool is_live() const { return live_; }

 private:
  [[nodiscard]] Fd open_below(const std::string& path, int flags) const;
  Fd root_;
  bool live_ = false;  ///< this machine's own "/"
};

/// Link states, error counters, ACS, NUMA nodes and drivers of PCI functions.
void add_pci_facts(const SysfsRoot& root, Topology& topology);
/// Network interfaces and ports of RDMA devices: new nodes, and facts of known ones.
void add_network_facts(const SysfsRoot& root, Topology& topology);
/// Limits of this process that make communication fail or slow, as attributes of the host:
/// "memlock_bytes", "shm_bytes", "shm_free_bytes", "CUDA_VISIBLE_DEVICES" and the like.
void add_limits(const SysfsRoot& root, Topology& topology);

/// Whether a list of CPUs such as "0-3,8" has one; false for what is no such list.
bool cpu_list_contains(std::string_view list, int cpu);

/// The PCI address that a link such as "../../devices/pci0000:00/0000:00:03.0/virtio0/net/eth0"
/// goes through last; empty if it goes through none.
std::string bdf_in_path(const std::string& path);

/// Where a recording keeps what /sys and /proc do not say: "key value" lines.
inline constexpr const char* kRecordedProcess = "/topocoll/process";
/// "key value" lines about this process, the same as a recording has.
std::string describe_process();
/// The CPUs that a recorded process could use, as "0-3,8"; empty if the recording does not say.
std::string recorded_cpus(const SysfsRoot& root);

}  // namespace topocoll
