#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "topology/sysfs.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

constexpr const char* kNet = "/sys/class/net/";
constexpr const char* kRdma = "/sys/class/infiniband/";
constexpr std::size_t kMaxInterfaces = 4096;

/// "inet", "inet6" by interface.
std::map<std::string, std::set<std::string>> live_families() {
  std::map<std::string, std::set<std::string>> result;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return result;
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_name == nullptr) continue;
    if (a->ifa_addr->sa_family == AF_INET) result[a->ifa_name].insert("inet");
    if (a->ifa_addr->sa_family == AF_INET6) result[a->ifa_name].insert("inet6");
  }
  ::freeifaddrs(all);
  return result;
}

std::map<std::string, std::set<std::string>> families(const SysfsRoot& root) {
  if (root.is_live()) return live_families();
  std::map<std::string, std::set<std::string>> result;
  const std::string text = root.text(kRecordedProcess).value_or("");
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    start = end + 1;
    const std::size_t blank = line.rfind(' ');
    if (line.rfind("address ", 0) != 0 || blank <= 8) continue;
    result[line.substr(8, blank - 8)].insert(line.substr(blank + 1));
  }
  return result;
}

class NetworkReader {
 public:
  NetworkReader(const SysfsRoot& root, Topology& topology)
      : root_(root), topology_(topology), families_(families(root)) {
    for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
      index_[topology.nodes[i].id] = i;
      if (!topology.nodes[i].bdf.empty()) by_bdf_[topology.nodes[i].bdf] = topology.nodes[i].id;
    }
  }

  void read() {
    for (const std::string& device : root_.list(kRdma)) read_rdma(device);
    std::size_t count = 0;
    for (const std::string& interface : root_.list(kNet)) {
      if (++count > kMaxInterfaces) break;
      read_interface(interface);
    }
  }

 private:
  /// Where a class device hangs: its PCI function's node, or the host.
  std::string parent_of(const std::string& path) {
    std::string bdf = bdf_in_path(root_.link(path).value_or(""));
    if (bdf.empty()) bdf = bdf_in_path(root_.link(path + "/device").value_or(""));
    const auto found = by_bdf_.find(bdf);
    if (found != by_bdf_.end()) return found->second;
    return index_.contains("host") ? "host" : "";
  }

  TopologyNode& port(const std::string& id, const std::string& label, const std::string& parent) {
    if (!index_.contains(id)) {
      TopologyNode node;
      node.id = id;
      node.kind = NodeKind::kNicPort;
      node.label = label;
      index_[id] = topology_.nodes.size();
      topology_.nodes.push_back(std::move(node));
      if (!parent.empty()) {
        TopologyEdge edge;
        edge.from = parent;
        edge.to = id;
        edge.kind = "contains";
        topology_.edges.push_back(std::move(edge));
      }
    }
    return topology_.nodes[index_.at(id)];
  }

  TopologyEdge* edge_to(const std::string& id) {
    for (TopologyEdge& edge : topology_.edges) {
      if (edge.to == id && is_tree_edge(edge)) return &edge;
    }
    return nullptr;
  }

  void read_rdma(const std::string& device) {
    const std::string path = kRdma + device;
    const bool software = root_.link(path).value_or("").find("/virtual/") != std::string::npos;
    const std::string unnumbered = "port:" + device;
    for (const std::string& number : root_.list(path + "/ports")) {
      const std::string id = unnumbered + "/" + number;
      const std::string below = path + "/ports/" + number;
      const auto interface = root_.text(below + "/gid_attrs/ndevs/0");
      if (index_.contains(unnumbered) && !index_.contains(id)) rename(unnumbered, id);
      // A device that is a program has its packets carried by an interface.
      TopologyNode& node =
          port(id, device, parent_of(software && interface ? kNet + *interface : path));
      if (software) node.attributes["software"] = "yes";
      node.attributes["rdma"] = device;
      node.attributes["port"] = number;
      const std::string state = root_.text(below + "/state").value_or("");  // "4: ACTIVE"
      if (!state.empty()) node.attributes["state"] = state.substr(state.rfind(' ') + 1);
      if (const auto layer = root_.text(below + "/link_layer")) {
        node.attributes["link_layer"] = *layer;
      }
      if (interface) {
        node.attributes["interface"] = *interface;
        by_interface_[*interface] = id;
      }
      const std::string rate = root_.text(below + "/rate").value_or("");  // "200 Gb/sec (4X HDR)"
      double gigabits = 0;
      const auto parsed = std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
      if (parsed.ec == std::errc() && gigabits > 0 && gigabits < 1e6) {
        if (TopologyEdge* edge = edge_to(id)) edge->bandwidth_gbps.declared = gigabits / 8;
      }
    }
  }

  void rename(const std::string& from, const std::string& to) {
    const std::size_t at = index_.at(from);
    topology_.nodes[at].id = to;
    index_.erase(from);
    index_[to] = at;
    for (TopologyEdge& edge : topology_.edges) {
      if (edge.to == from) edge.to = to;
    }
  }

  /// The node that stands for an interface already, by its own name or beside an RDMA device.
  std::string known_port(const std::string& interface) {
    const auto beside = by_interface_.find(interface);
    if (beside != by_interface_.end()) return beside->second;
    for (const TopologyNode& node : topology_.nodes) {
      if (node.kind != NodeKind::kNicPort) continue;
      const auto named = node.attributes.find("interface");
      if (named != node.attributes.end() && named->second == interface) return node.id;
    }
    return "port:" + interface;
  }

  void read_interface(const std::string& interface) {
    const std::string path = kNet + interface;
    const auto members = root_.text(path + "/bonding/slaves");
    const std::string parent = parent_of(path);
    // Interfaces without a device come and go with containers; of those only bonds carry jobs.
    if ((parent.empty() || parent == "host") && !members) return;
    const std::string id = known_port(interface);
    TopologyNode& node = port(id, interface, parent);
    const std::pair<const char*, const char*> files[] = {{"mtu", "/mtu"},
                                                         {"operstate", "/operstate"}};
    for (const auto& [key, file] : files) {
      const auto text = root_.text(path + file);
      if (text && !text->empty()) node.attributes[key] = *text;
    }
    if (members) node.attributes["bond_members"] = *members;
    if (const auto driver = root_.link(path + "/device/driver")) {
      node.attributes["driver"] = driver->substr(driver->rfind('/') + 1);
    }
    const auto family = families_.find(interface);
    if (family != families_.end()) {
      node.attributes["address_families"] = fmt::format("{}", fmt::join(family->second, " "));
    }
    // -1 where the link is down or the driver does not know.
    const auto megabits = root_.number(path + "/speed");
    TopologyEdge* edge = edge_to(id);
    if (megabits && *megabits > 0 && edge != nullptr && !edge->bandwidth_gbps.declared) {
      edge->bandwidth_gbps.declared = static_cast<double>(*megabits) / 8000;
    }
  }

  const SysfsRoot& root_;
  Topology& topology_;
  std::map<std::string, std::set<std::string>> families_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, std::string> by_bdf_;
  std::map<std::string, std::string> by_interface_;
};

}  // namespace

void add_network_facts(const SysfsRoot& root, Topology& topology) {
  NetworkReader(root, topology).read();
}

}  // namespace topocoll
