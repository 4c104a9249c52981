// The devices of an hwloc topology: PCI functions, what the kernel calls them, and the links
// between them that hwloc keeps as distances. Thread rule: one thread at a time. Failure rule: what
// is odd is left out.
#pragma once

#include <hwloc.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <vector>

#include "topocoll/topology.h"

namespace topocoll {

class HwlocDevices {
 public:
  HwlocDevices(hwloc_topology_t hwloc, Topology& result) : hwloc_(hwloc), result_(result) {}

  /// Adds an I/O object and what is below it to the node `parent`.
  void add(hwloc_obj_t object, const std::string& parent, int depth = 0);
  /// Names an object that is no device, as an end of links.
  void know(hwloc_obj_t object, const std::string& id) { ids_[object] = id; }
  /// NVLinkBandwidth, XGMIBandwidth and XGMIHops as edges; after all objects are added.
  void add_links();

 private:
  void add_ports(hwloc_obj_t pci, const std::string& nic);
  void add_port(hwloc_obj_t device, const std::string& nic, int port, const std::string& interface);
  void add_matrix(const char* name, const char* kind, bool hops);
  void add_measured();
  /// Calls `use` with two ends and the value between them, of all that hwloc has by this name.
  void each_distance(
      const char* name,
      const std::function<void(const std::string&, const std::string&, double)>& use);
  TopologyEdge& edge_of(const std::string& from, const std::string& to,
                        std::initializer_list<const char*> kinds);
  std::size_t add_node(TopologyNode node, const std::string& parent, const char* edge_kind);

  hwloc_topology_t hwloc_;
  Topology& result_;
  std::unordered_map<hwloc_obj_t, std::string> ids_;
  std::unordered_map<std::string, std::size_t> index_;
  std::unordered_map<std::string, std::size_t> linked_;  ///< kind and ends -> edge
};

}  // namespace topocoll
