// Which NUMA nodes the machine's CPUs belong to, as the kernel says, without a whole discovery.
//
// Thread rule: const after construction. Failure rule: what cannot be read is absent.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

namespace topocoll {

class NumaNodes {
 public:
  /// Files are looked up below `root`, which tests give.
  explicit NumaNodes(const std::string& root = "/");

  /// The node that has all of `cpus`; absent if they lie on several nodes, or on none that is
  /// known.
  [[nodiscard]] std::optional<int> of(std::span<const int> cpus) const;

 private:
  std::map<int, std::string> cpus_;  ///< by node, as a list such as "0-3,8"
};

}  // namespace topocoll
