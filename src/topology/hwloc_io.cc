#include "topology/hwloc_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr int kMaxDepth = 48;
constexpr int kMaxPorts = 128;

std::string info(hwloc_obj_t object, const char* key) {
  const char* value = hwloc_obj_get_info_by_name(object, key);
  return value != nullptr ? value : "";
}

bool is_type(hwloc_obj_t object, hwloc_obj_osdev_type_t type) {
  return object->type == HWLOC_OBJ_OS_DEVICE && object->attr->osdev.type == type;
}

std::vector<hwloc_obj_t> os_devices(hwloc_obj_t pci, hwloc_obj_osdev_type_t type) {
  std::vector<hwloc_obj_t> found;
  for (hwloc_obj_t c = pci->io_first_child; c != nullptr; c = c->next_sibling) {
    if (is_type(c, type) && c->name != nullptr && *c->name != 0) found.push_back(c);
  }
  return found;
}

NodeKind kind_of(hwloc_obj_t object, const TopologyNode& node) {
  if (object->type == HWLOC_OBJ_BRIDGE) return NodeKind::kPciBridge;
  if (object->subtype != nullptr && std::string_view(object->subtype) == "NVSwitch") {
    return NodeKind::kNvSwitch;
  }
  if (!os_devices(object, HWLOC_OBJ_OSDEV_NETWORK).empty() ||
      !os_devices(object, HWLOC_OBJ_OSDEV_OPENFABRICS).empty()) {
    return NodeKind::kNic;
  }
  return pci_kind(node.attributes.at("class"), node.attributes.at("vendor"),
                  node.attributes.at("device"));
}

/// A function's address and identity.
TopologyNode pci_node(hwloc_obj_t object) {
  const bool bridge = object->type == HWLOC_OBJ_BRIDGE;
  const auto& pci = bridge ? object->attr->bridge.upstream.pci : object->attr->pcidev;
  TopologyNode node;
  node.bdf = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(pci.domain), pci.bus,
                         pci.dev, pci.func);
  node.attributes["class"] = fmt::format("0x{:04x}00", pci.class_id);
  node.attributes["vendor"] = fmt::format("0x{:04x}", pci.vendor_id);
  node.attributes["device"] = fmt::format("0x{:04x}", pci.device_id);
  if (pci.subvendor_id != 0 || pci.subdevice_id != 0) {
    node.attributes["subsystem_vendor"] = fmt::format("0x{:04x}", pci.subvendor_id);
    node.attributes["subsystem_device"] = fmt::format("0x{:04x}", pci.subdevice_id);
  }
  node.kind = kind_of(object, node);
  node.id = pci_id(node.kind, node.bdf);
  node.label = info(object, "PCIDevice");
  return node;
}

/// Numbers of the ports that an RDMA device tells of.
std::vector<int> port_numbers(hwloc_obj_t device) {
  std::vector<int> ports;
  for (unsigned i = 0; i < device->infos_count; ++i) {
    const std::string_view key = device->infos[i].name;
    int port = 0;
    if (key.substr(0, 4) != "Port" || key.size() <= 9 || key.substr(key.size() - 5) != "State") {
      continue;
    }
    std::from_chars(key.data() + 4, key.data() + key.size() - 5, port);
    if (port > 0 && port <= kMaxPorts) ports.push_back(port);
  }
  std::sort(ports.begin(), ports.end());
  ports.erase(std::unique(ports.begin(), ports.end()), ports.end());
  return ports;
}

/// What the kernel and the drivers call a device, and what they know of it. Addresses and serial
/// numbers stay out.
void describe(hwloc_obj_t pci, TopologyNode& node) {
  for (hwloc_obj_t c = pci->io_first_child; c != nullptr; c = c->next_sibling) {
    if (c->type != HWLOC_OBJ_OS_DEVICE || c->name == nullptr || is_type(c, HWLOC_OBJ_OSDEV_BLOCK) ||
        is_type(c, HWLOC_OBJ_OSDEV_DMA)) {
      continue;
    }
    std::string& names = node.attributes["os_devices"];
    if (!names.empty()) names += ' ';
    names += c->name;
    if (node.kind != NodeKind::kGpu) continue;
    if (const std::string uuid = info(c, "NVIDIAUUID"); !uuid.empty()) node.uuid = uuid;
    if (const std::string uuid = info(c, "AMDUUID"); !uuid.empty()) node.uuid = uuid;
    if (const std::string model = info(c, "GPUModel"); !model.empty()) node.label = model;
  }
}

}  // namespace

std::size_t HwlocDevices::add_node(TopologyNode node, const std::string& parent,
                                   const char* edge_kind) {
  TopologyEdge edge;
  edge.from = parent;
  edge.to = node.id;
  edge.kind = edge_kind;
  result_.edges.push_back(std::move(edge));
  index_[node.id] = result_.nodes.size();
  result_.nodes.push_back(std::move(node));
  return result_.edges.size() - 1;
}

void HwlocDevices::add(hwloc_obj_t object, const std::string& parent, int depth) {
  if (depth > kMaxDepth) return;
  std::string below = parent;
  const bool host_bridge = object->type == HWLOC_OBJ_BRIDGE &&
                           object->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI;
  const bool pci =
      object->type == HWLOC_OBJ_PCI_DEVICE || (object->type == HWLOC_OBJ_BRIDGE && !host_bridge);
  if (pci) {
    TopologyNode node = pci_node(object);
    if (index_.contains(node.id)) {
      result_.notes.push_back(node.id + ": listed twice, the second is left out");
      return;
    }
    describe(object, node);
    below = node.id;
    ids_[object] = node.id;
    const double gbps = object->type == HWLOC_OBJ_BRIDGE
                            ? object->attr->bridge.upstream.pci.linkspeed
                            : object->attr->pcidev.linkspeed;
    const bool nic = node.kind == NodeKind::kNic;
    const std::size_t edge = add_node(std::move(node), parent, "pci");
    // 0 is hwloc's word for unknown.
    if (gbps > 0) result_.edges[edge].bandwidth_gbps.declared = static_cast<double>(gbps);
    if (nic) add_ports(object, below);
  } else if (object->type == HWLOC_OBJ_OS_DEVICE) {
    ids_[object] = parent;  // a name of its PCI function
  }
  for (hwloc_obj_t c = object->io_first_child; c != nullptr; c = c->next_sibling) {
    add(c, below, depth + 1);
  }
}

// One interface beside one RDMA device is the same port by another name.
void HwlocDevices::add_ports(hwloc_obj_t pci, const std::string& nic) {
  const auto rdma = os_devices(pci, HWLOC_OBJ_OSDEV_OPENFABRICS);
  const auto interfaces = os_devices(pci, HWLOC_OBJ_OSDEV_NETWORK);
  std::vector<int> ports;
  if (rdma.size() == 1) ports = port_numbers(rdma.front());
  const bool same = rdma.size() == 1 && interfaces.size() == 1 && ports.size() <= 1;
  for (hwloc_obj_t device : rdma) {
    const auto numbers = port_numbers(device);
    if (numbers.empty()) add_port(device, nic, 0, same ? interfaces.front()->name : "");
    for (const int port : numbers) {
      add_port(device, nic, port, same ? interfaces.front()->name : "");
    }
  }
  for (hwloc_obj_t interface : interfaces) {
    if (!same) add_port(interface, nic, 0, interface->name);
  }
}

void HwlocDevices::add_port(hwloc_obj_t device, const std::string& nic, int port,
                            const std::string& interface) {
  TopologyNode node;
  node.kind = NodeKind::kNicPort;
  node.label = device->name;
  node.id = "port:" + node.label + (port > 0 ? fmt::format("/{}", port) : "");
  if (index_.contains(node.id)) return;
  if (port > 0) {
    node.attributes["port"] = std::to_string(port);
    const std::string state = info(device, fmt::format("Port{}State", port).c_str());
    if (!state.empty()) node.attributes["state"] = state;
  }
  if (is_type(device, HWLOC_OBJ_OSDEV_OPENFABRICS)) node.attributes["rdma"] = node.label;
  if (!interface.empty()) node.attributes["interface"] = interface;
  add_node(std::move(node), nic, "contains");
}

void HwlocDevices::add_links() {
  add_matrix("NVLinkBandwidth", "nvlink", false);
  add_matrix("XGMIBandwidth", "xgmi", false);
  add_matrix("XGMIHops", "xgmi", true);
  add_measured();
}

void HwlocDevices::each_distance(
    const char* name,
    const std::function<void(const std::string&, const std::string&, double)>& use) {
  hwloc_distances_s* distances = nullptr;
  unsigned count = 1;
  if (hwloc_distances_get_by_name(hwloc_, name, &count, &distances, 0) != 0 || count == 0) return;
  for (unsigned i = 0; i < distances->nbobjs; ++i) {
    for (unsigned j = 0; j < distances->nbobjs; ++j) {
      const auto from = ids_.find(distances->objs[i]);
      const auto to = ids_.find(distances->objs[j]);
      const hwloc_uint64_t value = distances->values[i * distances->nbobjs + j];
      if (i == j || value == 0 || from == ids_.end() || to == ids_.end()) continue;
      if (from->second != to->second) use(from->second, to->second, static_cast<double>(value));
    }
  }
  hwloc_distances_release(hwloc_, distances);
}

/// What to_hwloc_xml() writes of measured figures.
void HwlocDevices::add_measured() {
  each_distance("TopocollMeasuredBandwidth", [this](const auto& from, const auto& to, double mbps) {
    edge_of(from, to, {"nvlink", "xgmi", "link"}).bandwidth_gbps.measured = mbps / 1000;
  });
  each_distance("TopocollTransferBandwidth", [this](const auto& from, const auto& to, double mbps) {
    edge_of(from, to, {"transfer"}).bandwidth_gbps.measured = mbps / 1000;
  });
  each_distance("TopocollTransferLatency", [this](const auto& from, const auto& to, double ns) {
    edge_of(from, to, {"transfer"}).latency_ns.measured = ns;
  });
}

/// The edge of the first of these kinds that is there; one of the last where there is none.
TopologyEdge& HwlocDevices::edge_of(const std::string& from, const std::string& to,
                                    std::initializer_list<const char*> kinds) {
  std::string key;
  for (const char* kind : kinds) {
    key = fmt::format("{}\n{}\n{}", kind, from, to);
    if (const auto known = linked_.find(key); known != linked_.end()) {
      return result_.edges[known->second];
    }
  }
  linked_[key] = result_.edges.size();
  TopologyEdge edge;
  edge.from = from;
  edge.to = to;
  edge.kind = *(kinds.end() - 1);
  return result_.edges.emplace_back(std::move(edge));
}

void HwlocDevices::add_matrix(const char* name, const char* kind, bool hops) {
  each_distance(name, [&](const std::string& from, const std::string& to, double value) {
    if (hops && value != 1) return;  // more than one hop is no link of its own
    const std::size_t before = result_.edges.size();
    TopologyEdge& edge = edge_of(from, to, {kind});
    const bool added = result_.edges.size() > before;
    if (added && !hops) edge.bandwidth_gbps.declared = value / 1000;  // MB/s
  });
}

}  // namespace topocoll
