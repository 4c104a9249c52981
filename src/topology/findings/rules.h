// The rules behind check_topology(), by what they look at.
// Thread rule: one thread at a time. Failure rule: what is unknown is no finding.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/findings.h"
#include "topology/device_paths.h"
#include "topology/findings/slow_pairs.h"
#include "topology/tree.h"

namespace topocoll {

class FindingRules {
 public:
  explicit FindingRules(const Topology& topology)
      : topology_(topology), tree_(topology), paths_(topology, tree_) {}
  std::vector<Finding> take();

 private:
  // links.cc
  void pcie_links();
  void pcie_link(std::size_t node);
  void slow_speed(const TopologyNode& device, double now, double most, const std::string& evidence);
  void slow_bridges();
  void slow_measurements();
  void switch_links();
  void error_counters();
  void access_control();
  void ports();
  // network.cc
  void slow_network_pairs();
  void slow_in_class(const std::vector<PairFigures>& members);
  [[nodiscard]] std::string confirmation(const PairFigures& pair) const;
  void unreached_hosts();
  // locality.cc
  void numa_nodes();
  void local_cpus();
  void far_nics();
  struct NearestMemory;
  void nearest_memories();
  void nearest_memory(std::size_t device, const NearestMemory& memory);
  void doubled_devices();
  // gpus.cc
  void gpu_memory();
  void gpu_throttling();
  void gpu_links();
  // gpu_transfers.cc
  struct Transfer {
    const TopologyEdge* edge = nullptr;
    std::size_t from = 0;
    std::size_t to = 0;
  };
  struct MemoryWay;
  [[nodiscard]] std::vector<Transfer> transfers(NodeKind from, NodeKind to) const;
  void wrong_data();
  void slow_gpu_pairs();
  void slow_gpus_of_class(const std::vector<PairFigures>& members, const Figure& usual,
                          const std::string& path);
  void slow_gpu_memory();
  bool slow_memory_way(const MemoryWay& way, double share, double most,
                       const std::string& compared);
  [[nodiscard]] std::set<std::size_t> gpus_linked_to_cpus() const;
  // gpu_tree.cc
  struct SharedWay {
    std::size_t at = 0;  ///< the inferred switch
    std::vector<std::size_t> gpus;
    std::optional<double> up_gbps;
    std::optional<double> down_gbps;
  };
  [[nodiscard]] bool is_inferred(std::size_t i) const;
  [[nodiscard]] std::vector<SharedWay> inferred_switches() const;
  [[nodiscard]] std::vector<std::size_t> bridges_above(std::size_t device) const;
  [[nodiscard]] std::vector<std::string> ids(const std::vector<std::size_t>& nodes) const;
  void wrong_tree();
  void flat_tree();
  struct NearWays;
  [[nodiscard]] std::size_t meeting_bridge(std::size_t a, std::size_t b) const;
  void detours();
  void detour(std::size_t bridge, const NearWays& near);
  // measured.cc
  void slow_cpu_pairs();
  void slow_memory();
  // limits.cc
  void shared_memory();
  void locked_memory();
  void cpus();
  void hidden_gpus();

  [[nodiscard]] const TopologyNode& node(std::size_t i) const { return topology_.nodes[i]; }
  /// As Topology::find(), which looks at all nodes.
  [[nodiscard]] const TopologyNode* find(std::string_view id) const {
    const std::size_t i = tree_.index(id);
    return i == TopologyTree::kNone ? nullptr : &node(i);
  }
  [[nodiscard]] static std::optional<double> number(const TopologyNode& node, const char* key);
  [[nodiscard]] bool has_rdma() const;
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  const Topology& topology_;
  TopologyTree tree_;
  DevicePaths paths_;
  std::vector<Finding> findings_;
};

}  // namespace topocoll
