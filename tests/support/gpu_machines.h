// Topologies that fit the machines of SimulatedGpus: what the system declares of them.
#pragma once

#include <optional>
#include <string>

#include "topocoll/topology.h"

namespace topocoll::testing {

/// Names of SimulatedGpus's GPUs, counted from 0.
inline std::string gpu_bdf(int index) {
  constexpr const char* kDigits = "0123456789abcdef";
  const int bus = index + 1;
  return std::string("0000:") + kDigits[bus / 16 % 16] + kDigits[bus % 16] + ":00.0";
}
inline std::string gpu_id(int index) { return "gpu:" + gpu_bdf(index); }

class DeclaredMachine {
 public:
  DeclaredMachine() {
    topology_.host = "simulated";
    add("host", NodeKind::kHost);
  }
  DeclaredMachine& numa(int index) {
    const std::string id = "numa:" + std::to_string(index);
    add(id, NodeKind::kNumaNode).os_index = index;
    contains("host", id);
    return *this;
  }
  DeclaredMachine& bridge(const std::string& name, const std::string& above,
                          std::optional<double> gbps = {}) {
    add("bridge:" + name, NodeKind::kPciBridge);
    pci(above, "bridge:" + name, gbps);
    return *this;
  }
  DeclaredMachine& gpu(int index, const std::string& above, std::optional<double> gbps = {}) {
    TopologyNode& node = add(gpu_id(index), NodeKind::kGpu);
    node.bdf = gpu_bdf(index);
    node.label = "GPU";
    pci(above, gpu_id(index), gbps);
    return *this;
  }
  DeclaredMachine& nvswitch(const std::string& name) {
    add("nvswitch:" + name, NodeKind::kNvSwitch);
    contains("host", "nvswitch:" + name);
    return *this;
  }
  /// Both ways.
  DeclaredMachine& nvlink(const std::string& a, const std::string& b, double gbps, int count) {
    for (const auto& [from, to] : {std::pair(a, b), {b, a}}) {
      TopologyEdge edge{from, to, "nvlink", {gbps, {}}, {}};
      edge.count = count;
      topology_.edges.push_back(edge);
    }
    return *this;
  }
  [[nodiscard]] const Topology& topology() const { return topology_; }

 private:
  TopologyNode& add(const std::string& id, NodeKind kind) {
    TopologyNode node;
    node.id = id;
    node.kind = kind;
    return topology_.nodes.emplace_back(node);
  }
  void contains(const std::string& above, const std::string& id) {
    topology_.edges.push_back({above, id, "contains", {}, {}});
  }
  void pci(const std::string& above, const std::string& id, std::optional<double> gbps) {
    topology_.edges.push_back({above, id, "pci", {gbps, {}}, {}});
  }

  Topology topology_;
};

}  // namespace topocoll::testing
