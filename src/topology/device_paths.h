// The way between two devices in the words that people know from nvidia-smi.
// Thread rule: a value that refers to its topology. Failure rule: "-" where nothing is known.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topocoll/topology.h"
#include "topology/tree.h"

namespace topocoll {

class DevicePaths {
 public:
  DevicePaths(const Topology& topology, const TopologyTree& tree);

  /// As declared, by index among the nodes: "NV4" (NVLinks, also through switches), "XGMI", "C2C",
  /// "PIX" (one PCIe switch), "PXB" (several bridges), "PHB" (one host bridge), "NODE" (one NUMA
  /// node), "SYS" (between NUMA nodes), "NET" (between hosts), "LNK" (unknown medium), "X" (one
  /// device).
  [[nodiscard]] std::string word(std::size_t a, std::size_t b) const;

 private:
  [[nodiscard]] const TopologyNode& node(std::size_t i) const { return topology_.nodes[i]; }
  [[nodiscard]] std::string through_switch(std::size_t a, std::size_t b) const;
  [[nodiscard]] std::string tree_path(std::size_t a, std::size_t b) const;
  [[nodiscard]] std::string between_roots(std::size_t a, std::size_t b) const;
  [[nodiscard]] bool is_one_switch(const std::vector<std::size_t>& up, std::size_t meet) const;
  [[nodiscard]] std::string bus(std::size_t i) const;

  const Topology& topology_;
  const TopologyTree& tree_;
  std::map<std::pair<std::string, std::string>, const TopologyEdge*> links_;
  std::map<std::string, std::vector<const TopologyEdge*>> switches_;
};

}  // namespace topocoll
