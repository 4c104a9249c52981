// A machine with GPUs as a probe leaves it, and nothing wrong with it.
#pragma once

#include <string>
#include <utility>

#include "topocoll/topology.h"

namespace topocoll::testing {

/// A measured figure whose interval is 1 % wide to either side.
inline Figure measured_figure(double value) {
  return {{}, value, Spread{0.99 * value, 1.01 * value, value, 9}};
}

inline std::string gpu_id(int gpu) { return "gpu:0000:0" + std::to_string(gpu + 1) + ":00.0"; }
inline std::string bridge_id(int bridge) {
  return "bridge:0000:0" + std::to_string(bridge + 1) + ":10.0";
}

/// Two NUMA nodes with two bridges each and two GPUs below each bridge (gpu_id(0) to gpu_id(7)),
/// PCIe 5 x16, measured under load: 50 GB/s between GPUs below one bridge, 40 between others, 52
/// from and 50 to either memory.
inline Topology measured_gpus() {
  constexpr double kLink = 63.0;
  Topology t = synthetic_topology("pack:2 numa:1 core:2 pu:1").value();
  t.notes.clear();
  const PciLink link{32.0, 16, 32.0, 16};
  const auto add = [&](const std::string& id, NodeKind kind, const std::string& parent, int numa) {
    TopologyNode node;
    node.id = id;
    node.kind = kind;
    node.bdf = id.substr(id.find(':') + 1);
    node.pci_link = link;
    node.attributes["class"] = kind == NodeKind::kGpu ? "0x030200" : "0x060400";
    node.attributes["vendor"] = "0x10de";
    node.attributes["numa_node"] = std::to_string(numa);
    t.nodes.push_back(std::move(node));
    t.edges.push_back({parent, id, "pci", {kLink, {}}, {}});
  };
  for (int b = 0; b < 4; ++b) {
    add(bridge_id(b), NodeKind::kPciBridge, "numa:" + std::to_string(b / 2), b / 2);
  }
  for (int g = 0; g < 8; ++g) {
    add(gpu_id(g), NodeKind::kGpu, bridge_id(g / 2), g / 4);
    TopologyNode& gpu = t.nodes.back();
    gpu.attributes["link_state"] = "under load";
    gpu.uuid = "GPU-" + std::to_string(g);
    gpu.label = "Some GPU";
  }
  const auto transfer = [&](const std::string& from, const std::string& to, double stores,
                            double latency) {
    TopologyEdge edge{from, to, "transfer", measured_figure(stores), measured_figure(latency)};
    edge.figures[kCopyEngineGbps] = measured_figure(stores + 3);
    t.edges.push_back(std::move(edge));
  };
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      if (a == b) continue;
      const bool near = a / 2 == b / 2;
      transfer(gpu_id(a), gpu_id(b), near ? 50 : 40, near ? 1100 : 1500);
      TopologyEdge& edge = t.edges.back();
      edge.figures[kLoadsGbps] = measured_figure(33);
      edge.figures[kDuplexGbps] = measured_figure(36);
      edge.figures[kClassGbps] = measured_figure(35);
      edge.figures[kLoadedLatencyNs] = measured_figure(2500);
    }
    for (const char* memory : {"numa:0", "numa:1"}) {
      transfer(memory, gpu_id(a), 52, 900);
      transfer(gpu_id(a), memory, 50, 900);
    }
  }
  return t;
}

/// NVLinks of each GPU to a switch that the driver hides, 450 GB/s a direction, and transfers of
/// `gbps` between GPUs.
inline void add_nvlinks(Topology& t, double gbps) {
  t.nodes.push_back({"nvswitch:hidden", NodeKind::kNvSwitch});
  t.edges.push_back({"host", "nvswitch:hidden", "contains", {}, {}});
  for (TopologyEdge& edge : t.edges) {
    if (edge.kind != "transfer" || edge.from.front() != 'g' || edge.to.front() != 'g') continue;
    edge.bandwidth_gbps = measured_figure(gbps);
    for (auto& [name, figure] : edge.figures) {
      if (name.ends_with("_gbps")) figure = measured_figure(0.9 * gbps);
    }
  }
  for (int g = 0; g < 8; ++g) {
    for (const bool up : {true, false}) {
      TopologyEdge edge{gpu_id(g), "nvswitch:hidden", "nvlink", {450.0, {}}, {}};
      if (!up) std::swap(edge.from, edge.to);
      edge.count = 18;
      t.edges.push_back(std::move(edge));
    }
  }
}

/// The transfer between two nodes of the machine.
inline TopologyEdge& transfer_between(Topology& t, const std::string& from, const std::string& to) {
  for (TopologyEdge& edge : t.edges) {
    if (edge.kind == "transfer" && edge.from == from && edge.to == to) return edge;
  }
  static TopologyEdge none;
  return none = {};
}

}  // namespace topocoll::testing
