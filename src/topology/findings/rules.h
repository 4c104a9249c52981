// The rules behind check_topology(), by what they look at.
// Thread rule: one thread at a time. Failure rule: what is unknown is no finding.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topocoll/findings.h"
#include "topology/tree.h"

namespace topocoll {

class FindingRules {
 public:
  explicit FindingRules(const Topology& topology) : topology_(topology), tree_(topology) {}
  std::vector<Finding> take();

 private:
  // links.cc
  void pcie_links();
  void pcie_link(std::size_t node);
  void slow_bridges();
  void slow_measurements();
  void switch_links();
  void error_counters();
  void access_control();
  void ports();
  // network.cc
  struct PortPair;
  void slow_network_pairs();
  void slow_in_class(const std::vector<PortPair>& members);
  [[nodiscard]] std::string confirmation(const PortPair& pair) const;
  void unreached_hosts();
  // locality.cc
  void numa_nodes();
  void local_cpus();
  void far_nics();
  void flat_tree();
  void doubled_devices();
  // gpus.cc
  void gpu_memory();
  void gpu_throttling();
  void gpu_links();
  // measured.cc
  void slow_cpu_pairs();
  void slow_memory();
  // limits.cc
  void shared_memory();
  void locked_memory();
  void cpus();
  void hidden_gpus();

  [[nodiscard]] const TopologyNode& node(std::size_t i) const { return topology_.nodes[i]; }
  [[nodiscard]] static std::string fact(const TopologyNode& node, const char* key);
  [[nodiscard]] static std::optional<double> number(const TopologyNode& node, const char* key);
  [[nodiscard]] bool has_rdma() const;
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  const Topology& topology_;
  TopologyTree tree_;
  std::vector<Finding> findings_;
};

}  // namespace topocoll
