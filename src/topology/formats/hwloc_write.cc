// A topology as hwloc 2's XML. hwloc hangs memory beside what is local to it where topocoll hangs
// that below the memory, so a NUMA node with CPUs of its own becomes a group with the node in it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>

#include "topocoll/topology_formats.h"
#include "topology/formats/formats.h"
#include "topology/formats/free_numbers.h"
#include "topology/formats/xml_text.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

constexpr int kMaxDepth = 64;
/// Every object lists the CPUs and NUMA nodes that it holds or is near, as bits from number 0 on.
constexpr int kMaxNumaNumber = 65535;
constexpr double kMaxValue = 1e18;  ///< fits hwloc's 64 bits
constexpr unsigned kFromSystem = 1;
constexpr unsigned kFromUser = 2;
constexpr unsigned kLatency = 4;
constexpr unsigned kBandwidth = 8;
constexpr unsigned kMixedTypes = 16;

/// hwloc's notation: 32-bit groups, the highest first.
std::string bitmap(const std::set<int>& bits) {
  if (bits.empty()) return "0x0";
  std::vector<std::uint32_t> groups(static_cast<std::size_t>(*bits.rbegin() / 32) + 1, 0);
  for (const int bit : bits) groups[static_cast<std::size_t>(bit / 32)] |= 1U << (bit % 32);
  std::string text;
  for (std::size_t i = groups.size(); i-- > 0;) {
    text += fmt::format("0x{:08x}{}", groups[i], i > 0 ? "," : "");
  }
  return text;
}

std::string attribute(std::string_view key, std::string_view value) {
  return fmt::format(" {}=\"{}\"", key, xml_escape(value));
}

unsigned hex(const TopologyNode& node, const char* key) {
  return static_cast<unsigned>(std::strtoul(node.attribute(key).c_str(), nullptr, 16));
}

class HwlocWriter {
 public:
  explicit HwlocWriter(const Topology& topology) : topology_(topology), tree_(topology) {}

  Result<std::string> write() {
    std::vector<std::size_t> hosts;
    for (const std::size_t root : tree_.roots()) {
      if (node(root).kind == NodeKind::kHost) hosts.push_back(root);
    }
    if (hosts.size() != 1 || node(hosts.front()).cpus.empty()) {
      return Status(
          Cause::kUnsupported,
          fmt::format("hwloc's XML holds one machine with CPUs; this topology has {}",
                      hosts.size() == 1 ? "no CPU" : fmt::format("{} hosts", hosts.size())));
    }
    if (Status s = number_memory(); !s.ok()) return s;
    text_ =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
        "<topology version=\"2.0\">\n";
    write_machine(hosts.front());
    write_slit();
    write_links();
    if (too_large_ || text_.size() > kMaxXmlBytes) {
      return Status(
          Cause::kUnsupported,
          fmt::format("hwloc's XML of this machine would be larger than {} MiB: every part "
                      "lists its CPUs and NUMA nodes as bits from number 0 on, and every "
                      "measured part has a figure for every other",
                      kMaxXmlBytes >> 20));
    }
    return text_ + "</topology>\n";
  }

 private:
  const TopologyNode& node(std::size_t i) const { return topology_.nodes[i]; }

  Status number_memory() {
    for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
      if (node(i).kind != NodeKind::kNumaNode) continue;
      const int wanted = node(i).os_index.value_or(0);
      if (wanted > kMaxNumaNumber) {
        return {Cause::kUnsupported,
                fmt::format("{} has number {}, and hwloc's XML has no room for one above {}",
                            node(i).id, wanted, kMaxNumaNumber)};
      }
      numa_number_[i] = numbers_.take(wanted);
    }
    return {};
  }

  int next_gp() { return ++last_gp_; }

  static std::set<int> cpus(const TopologyNode& of) { return {of.cpus.begin(), of.cpus.end()}; }

  /// NUMA nodes below a node, and the one that it stands below.
  std::set<int> memory_of(std::size_t i) const {
    std::set<int> found;
    std::vector<std::size_t> open{i};
    std::size_t steps = 0;
    while (!open.empty() && steps++ <= topology_.nodes.size()) {
      const std::size_t next = open.back();
      open.pop_back();
      if (const auto known = numa_number_.find(next); known != numa_number_.end()) {
        found.insert(known->second);
      }
      for (const std::size_t child : tree_.children(next)) {
        if (is_processor(node(child).kind)) open.push_back(child);
      }
    }
    const std::size_t above = tree_.above(i, NodeKind::kNumaNode);
    if (above != TopologyTree::kNone) found.insert(numa_number_.at(above));
    if (numa_number_.empty()) found.insert(0);
    return found;
  }

  std::string sets(const std::set<int>& cpu_set, const std::set<int>& node_set) {
    too_large_ |= text_.size() > kMaxXmlBytes;
    if (too_large_) return "";  // write() will say so
    const std::string c = bitmap(cpu_set);
    const std::string n = bitmap(node_set);
    return fmt::format(
        " cpuset=\"{0}\" complete_cpuset=\"{0}\" nodeset=\"{1}\" complete_nodeset=\"{1}\" "
        "gp_index=\"{2}\"",
        c, n, next_gp());
  }

  void info(std::string_view key, std::string_view value) {
    if (value.empty()) return;
    text_ += "<info" + attribute("name", key) + attribute("value", value) + "/>\n";
  }

  void write_machine(std::size_t host) {
    const std::set<int> all = cpus(node(host));
    text_ += "<object type=\"Machine\" os_index=\"0\"" + sets(all, memory_of(host)) +
             fmt::format(" allowed_cpuset=\"{}\" allowed_nodeset=\"{}\">\n", bitmap(all),
                         bitmap(memory_of(host)));
    info("HostName", topology_.host);
    for (const char* key :
         {"Architecture", "OSName", "OSRelease", "DMISysVendor", "DMIProductName"}) {
      info(key, node(host).attribute(key));
    }
    if (numa_number_.empty()) {
      text_ += "<object type=\"NUMANode\" os_index=\"0\"" + sets(all, {0}) + "/>\n";
    }
    write_inside(host, all, 0);
    text_ += "</object>\n";
  }

  /// What stands in an object that has the CPUs `own`: memory, then parts by their lowest CPU, then
  /// CPUs that no part has, then devices.
  void write_inside(std::size_t i, const std::set<int>& own, int depth) {
    if (depth > kMaxDepth) return;
    std::vector<std::size_t> parts;
    std::set<int> left = own;
    for (const std::size_t child : tree_.children(i)) {
      const TopologyNode& part = node(child);
      if (!is_processor(part.kind)) continue;
      if (part.kind == NodeKind::kNumaNode && (part.cpus.empty() || cpus(part) == own)) {
        write_memory(child);
      }
      if (part.cpus.empty()) continue;
      parts.push_back(child);
      for (const int cpu : part.cpus) left.erase(cpu);
    }
    std::stable_sort(parts.begin(), parts.end(), [&](std::size_t a, std::size_t b) {
      return node(a).cpus.front() < node(b).cpus.front();
    });
    for (const std::size_t part : parts) {
      const bool same_memory = node(part).kind == NodeKind::kNumaNode && cpus(node(part)) == own;
      if (same_memory) {
        write_inside(part, own, depth + 1);
      } else {
        write_part(part, depth + 1);
      }
    }
    for (const int cpu : left) write_cpu(cpu, memory_of(i));
    write_devices(i);
    for (const std::size_t child : tree_.children(i)) {
      if (node(child).kind == NodeKind::kNumaNode && node(child).cpus.empty()) write_devices(child);
    }
  }

  void write_memory(std::size_t i) {
    const int number = numa_number_.at(i);
    text_ += fmt::format("<object type=\"NUMANode\" os_index=\"{}\"", number) +
             sets(cpus(node(i)), {number});
    gp_[i] = {"NUMANode", last_gp_};
    if (node(i).size_bytes) {
      text_ += attribute("local_memory", std::to_string(*node(i).size_bytes));
    }
    text_ += "/>\n";
  }

  void write_cpu(int cpu, const std::set<int>& memory) {
    text_ += fmt::format("<object type=\"PU\" os_index=\"{}\"", cpu) + sets({cpu}, memory) + "/>\n";
  }

  void write_part(std::size_t i, int depth) {
    const TopologyNode& part = node(i);
    const std::set<int> own = cpus(part);
    if (part.kind == NodeKind::kCpu) return write_cpu(part.cpus.front(), memory_of(i));
    text_ += "<object" + part_type(part) + sets(own, memory_of(i)) + ">\n";
    const int package_gp = last_gp_;
    if (part.kind == NodeKind::kNumaNode) write_memory(i);
    if (part.kind == NodeKind::kPackage) {
      gp_[i] = {"Package", package_gp};
      info("CPUModel", part.label);
    }
    for (const char* key : {"CPUVendor", "CPUFamilyNumber", "CPUModelNumber", "CPUStepping"}) {
      info(key, part.attribute(key));
    }
    write_inside(i, own, depth);
    text_ += "</object>\n";
  }

  static std::string part_type(const TopologyNode& part) {
    const std::string number =
        part.os_index ? attribute("os_index", std::to_string(*part.os_index)) : "";
    switch (part.kind) {
      case NodeKind::kPackage:
        return " type=\"Package\"" + number;
      case NodeKind::kCore:
        return " type=\"Core\"" + number;
      case NodeKind::kCache: {
        const int level = std::clamp(part.level.value_or(1), 1, 5);
        return fmt::format(
            " type=\"L{0}Cache\" depth=\"{0}\" cache_size=\"{1}\" cache_linesize=\"0\" "
            "cache_associativity=\"0\" cache_type=\"{2}\"",
            level, part.size_bytes.value_or(0), level == 1 ? 1 : 0);
      }
      default:
        return " type=\"Group\" kind=\"0\" subkind=\"0\"";
    }
  }

  static bool is_on_pci(const TopologyNode& device) {
    // Domains of more than 16 bits are those of invented devices, and hwloc 2 has no room for them.
    return !device.bdf.empty() && device.bdf.size() <= 12 && !is_processor(device.kind);
  }

  /// A host bridge for each PCI domain, around the devices that stand below a node directly.
  void write_devices(std::size_t i) {
    std::map<std::string, std::vector<std::size_t>> domains;
    for (const std::size_t child : tree_.children(i)) {
      if (is_on_pci(node(child))) domains[node(child).bdf.substr(0, 4)].push_back(child);
    }
    for (const auto& [domain, devices] : domains) {
      text_ += fmt::format(
          "<object type=\"Bridge\" gp_index=\"{}\" bridge_type=\"0-1\" depth=\"0\" "
          "bridge_pci=\"{}:[00-ff]\">\n",
          next_gp(), domain);
      for (const std::size_t device : devices) write_device(device, 1);
      text_ += "</object>\n";
    }
  }

  void write_device(std::size_t i, int depth) {
    const TopologyNode& device = node(i);
    const bool bridge = device.kind == NodeKind::kPciBridge;
    const TopologyEdge* above = tree_.edge_above(i);
    const double gbps = above != nullptr ? above->bandwidth_gbps.declared.value_or(0) : 0;
    gp_[i] = {bridge ? "Bridge" : "PCIDev", next_gp()};
    text_ += fmt::format("<object type=\"{}\" gp_index=\"{}\"", gp_[i].first, last_gp_);
    if (bridge) {
      const auto [low, high] = buses_below(i);
      text_ += fmt::format(" bridge_type=\"1-1\" depth=\"{}\" bridge_pci=\"{}:[{}-{}]\"", depth,
                           device.bdf.substr(0, 4), low, high);
    }
    if (device.kind == NodeKind::kNvSwitch) text_ += " subtype=\"NVSwitch\"";
    text_ += fmt::format(
        " pci_busid=\"{}\" pci_type=\"{:04x} [{:04x}:{:04x}] [{:04x}:{:04x}] 00\" "
        "pci_link_speed=\"{:.6f}\">\n",
        device.bdf, hex(device, "class") >> 8, hex(device, "vendor"), hex(device, "device"),
        hex(device, "subsystem_vendor"), hex(device, "subsystem_device"), gbps);
    if (device.kind != NodeKind::kGpu) info("PCIDevice", device.label);
    if (device.kind == NodeKind::kGpu) write_gpu_names(device);
    for (const std::size_t child : tree_.children(i)) {
      if (node(child).kind == NodeKind::kNicPort) write_port(node(child));
      if (is_on_pci(node(child)) && depth < kMaxDepth) write_device(child, depth + 1);
    }
    text_ += "</object>\n";
  }

  std::pair<std::string, std::string> buses_below(std::size_t i) const {
    std::pair<std::string, std::string> range{node(i).bdf.substr(5, 2), node(i).bdf.substr(5, 2)};
    bool first = true;
    for (const std::size_t child : tree_.children(i)) {
      if (!is_on_pci(node(child))) continue;
      const std::string bus = node(child).bdf.substr(5, 2);
      if (first || bus < range.first) range.first = bus;
      if (first || bus > range.second) range.second = bus;
      first = false;
    }
    return range;
  }

  void write_gpu_names(const TopologyNode& gpu) {
    if (gpu.uuid.empty() && gpu.label.empty()) return;
    const std::string& names = gpu.attribute("os_devices");
    const std::string name = names.empty() ? "gpu" : names.substr(0, names.find(' '));
    text_ += fmt::format("<object type=\"OSDev\" gp_index=\"{}\" osdev_type=\"1\"", next_gp()) +
             attribute("name", name) + ">\n";
    info("GPUModel", gpu.label);
    info(gpu.uuid.rfind("GPU-", 0) == 0 ? "NVIDIAUUID" : "AMDUUID", gpu.uuid);
    text_ += "</object>\n";
  }

  void write_port(const TopologyNode& port) {
    const std::string& guid = port.attribute("guid");
    const std::string& number = port.attribute("port");
    const bool rdma = !port.attribute("rdma").empty() || (!guid.empty() && guid != "0x0");
    text_ += fmt::format("<object type=\"OSDev\" gp_index=\"{}\" osdev_type=\"{}\"", next_gp(),
                         rdma ? 3 : 2) +
             attribute("name", port.label.empty() ? port.id : port.label) + ">\n";
    if (!number.empty()) info(fmt::format("Port{}State", number), port.attribute("state"));
    text_ += "</object>\n";
  }

  void write_slit() {
    std::vector<std::size_t> numas;
    for (const auto& [i, number] : numa_number_) numas.push_back(i);
    std::string indexes;
    std::string values;
    for (const std::size_t a : numas) {
      indexes += fmt::format("{} ", numa_number_.at(a));
      for (const std::size_t b : numas) {
        const std::string& distance = node(a).attribute("distance to " + node(b).id);
        if (distance.empty()) return;  // a matrix is whole or not at all
        values += distance + " ";
      }
    }
    if (numas.size() < 2) return;
    text_ += fmt::format(
        "<distances2 type=\"NUMANode\" nbobjs=\"{}\" kind=\"{}\" name=\"NUMALatency\" "
        "indexing=\"os\">\n<indexes length=\"{}\">{}</indexes>\n<u64values length=\"{}\">{}"
        "</u64values>\n</distances2>\n",
        numas.size(), kFromSystem | kLatency, indexes.size(), indexes, values.size(), values);
  }

  void write_links() {
    const auto declared = [](const char* kind) {
      return [kind](const TopologyEdge& e) {
        return e.kind == kind ? mbps(e.bandwidth_gbps.declared) : std::nullopt;
      };
    };
    write_matrix("NVLinkBandwidth", kFromSystem | kBandwidth, declared("nvlink"));
    write_matrix("XGMIBandwidth", kFromSystem | kBandwidth, declared("xgmi"));
    write_matrix("TopocollMeasuredBandwidth", kFromUser | kBandwidth, [](const TopologyEdge& e) {
      return is_measurement(e) ? std::nullopt : mbps(e.bandwidth_gbps.measured);
    });
    write_matrix("TopocollTransferBandwidth", kFromUser | kBandwidth, [](const TopologyEdge& e) {
      return e.kind == "transfer" ? mbps(e.bandwidth_gbps.measured) : std::nullopt;
    });
    write_matrix("TopocollTransferLatency", kFromUser | kLatency, [](const TopologyEdge& e) {
      return e.kind == "transfer" ? e.latency_ns.measured : std::nullopt;
    });
  }

  static std::optional<double> mbps(const std::optional<double>& gbps) {
    return gbps ? std::optional(*gbps * 1000) : std::nullopt;
  }

  /// Values between all ends of the edges that have one, rounded; 0 where there is none.
  template <class Value>
  void write_matrix(const char* name, unsigned kind, Value value_of) {
    std::map<std::pair<std::size_t, std::size_t>, double> values;
    std::set<std::size_t> ends;
    for (const TopologyEdge& edge : topology_.edges) {
      const std::size_t from = tree_.index(edge.from);
      const std::size_t to = tree_.index(edge.to);
      const auto value = value_of(edge);
      if (is_tree_edge(edge) || !value || !gp_.contains(from) || !gp_.contains(to)) continue;
      values[{from, to}] += *value;
      ends.insert({from, to});
    }
    if (ends.empty()) return;
    too_large_ |= 2 * ends.size() * ends.size() > kMaxXmlBytes;
    if (too_large_) return;
    std::string indexes;
    std::string matrix;
    for (const std::size_t a : ends) {
      indexes += fmt::format("{}:{} ", gp_.at(a).first, gp_.at(a).second);
      for (const std::size_t b : ends) {
        const auto found = values.find({a, b});
        matrix +=
            fmt::format("{:.0f} ", found == values.end() ? 0 : std::min(found->second, kMaxValue));
      }
    }
    text_ += fmt::format(
        "<distances2hetero nbobjs=\"{}\" kind=\"{}\" name=\"{}\">\n<indexes length=\"{}\">{}"
        "</indexes>\n<u64values length=\"{}\">{}</u64values>\n</distances2hetero>\n",
        ends.size(), kind | kMixedTypes, name, indexes.size(), indexes, matrix.size(), matrix);
  }

  const Topology& topology_;
  TopologyTree tree_;
  std::string text_;
  int last_gp_ = 0;
  bool too_large_ = false;
  FreeNumbers numbers_;
  std::map<std::size_t, int> numa_number_;
  std::map<std::size_t, std::pair<std::string, int>> gp_;  ///< hwloc's type and number of a node
};

}  // namespace

Result<std::string> to_hwloc_xml(const Topology& topology) {
  auto text = HwlocWriter(topology).write();
  if (!text.ok()) return text;
  // hwloc has the last word on what it takes, such as NUMA nodes whose CPUs overlap.
  const auto back = read_hwloc_xml(*text, "hwloc XML");
  if (!back.ok()) return back.status();
  return text;
}

}  // namespace topocoll
