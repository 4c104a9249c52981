// The other way: a topology as NCCL's XML.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "topocoll/topology_formats.h"
#include "topology/formats/formats.h"
#include "topology/formats/free_numbers.h"
#include "topology/formats/xml_text.h"
#include "topology/pci.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

constexpr std::array<std::string_view, 5> kPciKeys = {"class", "vendor", "device",
                                                      "subsystem_vendor", "subsystem_device"};
constexpr std::array<std::string_view, 9> kGpuKeys = {"dev", "sm",     "gcn",  "arch", "rank",
                                                      "gdr", "cudacc", "nvml", "rsmi"};
constexpr std::array<std::string_view, 9> kNetKeys = {"dev",  "port", "guid", "maxconn", "gdr",
                                                      "coll", "keep", "idx",  "fused"};
constexpr std::array<std::string_view, 4> kCpuKeys = {"arch", "vendor", "familyid", "modelid"};

/// Host, package and the like have other names elsewhere than on NCCL's CPUs.
constexpr std::array<std::pair<const char*, const char*>, 3> kPackageKeys = {
    {{"CPUVendor", "vendor"}, {"CPUFamilyNumber", "familyid"}, {"CPUModelNumber", "modelid"}}};

/// NCCL's name of an architecture.
std::string arch_of(const std::string& machine) {
  if (machine == "aarch64") return "arm64";
  return machine.starts_with("ppc64") ? "ppc64" : machine;
}

/// The class that NCCL takes a device for; empty: it takes it for none.
const char* implied_class(NodeKind kind) {
  switch (kind) {
    case NodeKind::kPciBridge:
      return "0x060400";
    case NodeKind::kGpu:
      return "0x030200";
    case NodeKind::kNvSwitch:
      return "0x068000";
    case NodeKind::kNic:
      return "0x020000";
    default:
      return "";
  }
}

/// Whether the reader takes the value back: some keys are integers there, and any text elsewhere.
bool readable(std::string_view key, std::string_view value) {
  if (value.size() > kMaxNcclTextBytes) return false;
  const bool number = key == "dev" || key == "rank";
  if (!number && key != "port") return true;
  int parsed = 0;
  const auto end = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (end.ec != std::errc() || end.ptr != value.data() + value.size()) return false;
  return number ? parsed >= -1 && parsed <= kMaxNcclNumber : parsed >= 0 && parsed <= kMaxNcclPort;
}

std::string affinity_mask(const std::vector<int>& cpus) {
  std::vector<std::uint32_t> groups;
  for (const int cpu : cpus) {
    const auto group = static_cast<std::size_t>(cpu / 32);
    if (groups.size() <= group) groups.resize(group + 1, 0);
    groups[group] |= 1U << (cpu % 32);
  }
  std::string mask;
  for (std::size_t i = groups.size(); i-- > 0;) {
    fmt::format_to(std::back_inserter(mask), "{:08x}{}", groups[i], i > 0 ? "," : "");
  }
  return mask;
}

class NcclWriter {
 public:
  explicit NcclWriter(const Topology& topology) : topology_(topology), tree_(topology) {
    for (const TopologyEdge& edge : topology.edges) {
      if (edge.kind == "xgmi") version_ = 2;
    }
    // NCCL's own files know of no cores: what has some was read from the kernel or by hwloc.
    whole_ = !topology.of_kind(NodeKind::kCpu).empty();
    for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
      list_bridges(i);
      if (is_top_device(i)) top_devices_[tree_.numa_of(i)].push_back(i);
      if (node(i).kind != NodeKind::kPackage) continue;
      first_package_.emplace(tree_.above(i, NodeKind::kHost), i);
    }
  }

  Result<std::string> write() {
    text_ = fmt::format("<system version=\"{}\">\n", version_);
    bool any = false;
    for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
      if (topology_.nodes[i].kind != NodeKind::kNumaNode) continue;
      any = true;
      write_cpu(i);
      if (text_.size() > kMaxXmlBytes) break;
    }
    any = write_homeless() || any;
    if (text_.size() > kMaxXmlBytes) {
      return Status(Cause::kUnsupported, fmt::format("NCCL's XML of this machine would be larger "
                                                     "than {} MiB, which nobody reads",
                                                     kMaxXmlBytes >> 20));
    }
    if (!any) {
      return Status(Cause::kUnsupported,
                    "NCCL's XML hangs everything below NUMA nodes, and this topology has none");
    }
    return text_ + "</system>\n";
  }

 private:
  const TopologyNode& node(std::size_t i) const { return topology_.nodes[i]; }

  void attribute(std::string_view key, std::string_view value) {
    fmt::format_to(std::back_inserter(text_), " {}=\"{}\"", key, xml_escape(value));
  }

  /// A figure in another unit; left out where the reader would not take it.
  void rate(std::string_view key, const std::optional<double>& gbps, double unit) {
    if (!gbps || *gbps * unit > kMaxNcclRate) return;
    attribute(key, std::to_string(std::lround(*gbps * unit)));
  }

  template <class Keys>
  void attributes(const TopologyNode& of, const Keys& keys) {
    for (const std::string_view key : keys) {
      const auto found = of.attributes.find(std::string(key));
      if (found != of.attributes.end() && readable(key, found->second)) {
        attribute(key, found->second);
      }
    }
  }

  void indent(int depth) { text_.append(static_cast<std::size_t>(depth) * 2, ' '); }

  static bool is_end(NodeKind kind) {
    return kind == NodeKind::kGpu || kind == NodeKind::kNvSwitch || kind == NodeKind::kNic;
  }

  /// Of the bridges above a device NCCL lists every second one, upwards: a switch is its upstream
  /// port, and ports with one link below them (root ports, a switch's others) are no nodes. More
  /// would make one switch look like several, and NCCL takes 256 elements at most.
  void list_bridges(std::size_t device) {
    if (!whole_ || !is_end(node(device).kind)) return;
    const auto up = tree_.path_up(device);
    for (std::size_t k = 2; k < up.size() && node(up[k]).kind == NodeKind::kPciBridge; k += 2) {
      listed_.insert(up[k]);
    }
  }

  bool is_listed(std::size_t i) const {
    return !whole_ || is_end(node(i).kind) || listed_.contains(i);
  }

  static bool is_device(NodeKind kind) {
    return kind == NodeKind::kPciBridge || kind == NodeKind::kPciDevice || kind == NodeKind::kGpu ||
           kind == NodeKind::kNvSwitch || kind == NodeKind::kNic;
  }

  /// Facts of a CPU that has none of its own in `known`: the host's, and those of its package, or
  /// of any where none is above it.
  void write_cpu_facts(std::size_t host, std::size_t package,
                       const std::map<std::string, std::string>& known) {
    const auto put = [&](std::string_view key, std::string_view value) {
      const bool useful = !value.empty() && readable(key, value);
      if (useful && !known.contains(std::string(key))) attribute(key, value);
    };
    if (host != TopologyTree::kNone) put("arch", arch_of(node(host).attribute("Architecture")));
    if (package == TopologyTree::kNone) {
      const auto first = first_package_.find(host);
      if (first == first_package_.end()) return;
      package = first->second;
    }
    for (const auto& [ours, theirs] : kPackageKeys) put(theirs, node(package).attribute(ours));
  }

  /// Each CPU of a host, which NCCL tells by its hash, has a number of its own.
  int free_number(const std::string& hash, int wanted) {
    if (wanted > kMaxNcclNuma) wanted = -1;
    return numbers_[hash].take(wanted);
  }

  /// What tells hosts apart in the file; addresses are unique among those that have the same.
  std::string hash_of(std::size_t host) const {
    const std::string hash = host == TopologyTree::kNone ? "" : node(host).attribute("host_hash");
    return hash.size() > kMaxNcclNameBytes ? "" : hash;
  }

  void write_cpu(std::size_t numa) {
    const TopologyNode& cpu = node(numa);
    text_ += "  <cpu";
    const std::size_t host = tree_.above(numa, NodeKind::kHost);
    const std::string hash = hash_of(host);
    if (!hash.empty()) attribute("host_hash", hash);
    attribute("numaid", std::to_string(free_number(hash, cpu.os_index.value_or(-1))));
    const bool listed = !cpu.cpus.empty() && cpu.cpus.back() < kMaxNcclCpus;
    if (listed) attribute("affinity", affinity_mask(cpu.cpus));
    attributes(cpu, kCpuKeys);
    write_cpu_facts(host, tree_.above(numa, NodeKind::kPackage), cpu.attributes);
    text_ += ">\n";
    if (const auto devices = top_devices_.find(numa); devices != top_devices_.end()) {
      for (const std::size_t i : devices->second) write_listed(i, 2);
    }
    text_ += "  </cpu>\n";
  }

  /// A device that hangs below no other device.
  bool is_top_device(std::size_t i) const {
    if (!is_device(node(i).kind)) return false;
    const std::size_t up = tree_.parent(i);
    const bool below_device = up != TopologyTree::kNone && is_device(node(up).kind);
    // An NVSwitch that only links name is written where the links are.
    const bool implied = node(i).kind == NodeKind::kNvSwitch &&
                         (tree_.edge_above(i) == nullptr || tree_.edge_above(i)->kind != "pci");
    return !below_device && !implied;
  }

  /// Devices of which nobody knows the NUMA node.
  bool write_homeless() {
    std::string before;
    std::swap(before, text_);
    for (const std::size_t i : top_devices_[TopologyTree::kNone]) {
      if (!node(i).bdf.empty()) write_listed(i, 2);
    }
    const bool any = !text_.empty();
    std::swap(before, text_);
    if (!any) return false;
    const auto hosts = topology_.of_kind(NodeKind::kHost);
    const std::size_t host = hosts.empty() ? TopologyTree::kNone : tree_.index(hosts[0]->id);
    text_ += "  <cpu";
    attribute("numaid", std::to_string(free_number("", -1)));
    if (whole_) write_cpu_facts(host, TopologyTree::kNone, {});
    text_ += ">\n" + before + "  </cpu>\n";
    return true;
  }

  /// The device, or what is listed below it.
  void write_listed(std::size_t i, int depth, int below = 0) {
    if (is_listed(i)) return write_device(i, depth);
    if (below > kMaxXmlDepth) return;
    for (const std::size_t child : tree_.children(i)) {
      if (is_device(node(child).kind)) write_listed(child, depth, below + 1);
    }
  }

  /// The link above a device as NCCL would find it under load: its width now, at the best speed of
  /// both ends.
  PciLink link_above(std::size_t i) const {
    PciLink link = node(i).pci_link;
    const std::size_t up = tree_.parent(i);
    if (!whole_ || !link.max_speed_gts) return link;
    if (node(i).attribute("link_state") == "under load" && link.speed_gts) return link;
    link.speed_gts = link.max_speed_gts;
    if (up != TopologyTree::kNone && node(up).kind == NodeKind::kPciBridge) {
      const auto& above = node(up).pci_link.max_speed_gts;
      if (above) link.speed_gts = std::min(*link.speed_gts, *above);
    }
    return link;
  }

  /// NCCL refuses a device that it does not find in /sys and that lacks one of these attributes.
  void write_link_state(std::size_t i) {
    const PciLink link = link_above(i);
    const auto speed = link.speed_gts ? link.speed_gts : link.max_speed_gts;
    const auto width = link.width ? link.width : link.max_width;
    if (speed || whole_) {
      attribute("link_speed", speed ? fmt::format("{:.1f} GT/s PCIe", *speed) : "");
    }
    if (width || whole_) attribute("link_width", std::to_string(width.value_or(0)));
  }

  void write_device(std::size_t i, int depth) {
    if (depth > kMaxXmlDepth / 2) return;
    const TopologyNode& device = node(i);
    if (device.kind == NodeKind::kNic && device.bdf.empty()) return write_nic(i, depth);
    // NCCL knows a device by its address alone.
    const std::size_t host = tree_.above(i, NodeKind::kHost);
    if (device.bdf.empty() || !written_.emplace(hash_of(host), device.bdf).second) return;
    indent(depth);
    text_ += "<pci";
    attribute("busid", device.bdf);
    attributes(device, kPciKeys);
    if (whole_ && !device.attributes.contains("class")) {
      attribute("class", implied_class(device.kind));
    }
    write_link_state(i);
    const std::size_t empty = text_.size();
    text_ += ">\n";
    const std::size_t inside = text_.size();
    if (device.kind == NodeKind::kGpu) write_gpu(i, depth + 1);
    if (device.kind == NodeKind::kNic) write_nic(i, depth + 1);
    for (const std::size_t child : tree_.children(i)) {
      if (is_device(node(child).kind)) write_listed(child, depth + 1);
    }
    if (text_.size() == inside) {
      text_.resize(empty);
      text_ += "/>\n";
      return;
    }
    indent(depth);
    text_ += "</pci>\n";
  }

  void write_nic(std::size_t i, int depth) {
    std::string ports;
    std::swap(ports, text_);
    for (const std::size_t child : tree_.children(i)) {
      if (node(child).kind == NodeKind::kNicPort) write_net(child, depth + 1);
    }
    std::swap(ports, text_);
    if (ports.empty() && !node(i).bdf.empty()) return;
    indent(depth);
    text_ += "<nic>\n" + ports;
    indent(depth);
    text_ += "</nic>\n";
  }

  void write_net(std::size_t i, int depth) {
    const TopologyNode& net = node(i);
    const std::string name = (net.label.empty() ? net.id : net.label).substr(0, kMaxNcclNameBytes);
    const std::string port = net.attribute("port");
    if (!written_.emplace(hash_of(tree_.above(i, NodeKind::kHost)), name + "/" + port).second)
      return;
    indent(depth);
    text_ += "<net";
    attribute("name", name);
    attributes(net, kNetKeys);
    const TopologyEdge* above = tree_.edge_above(i);
    if (above != nullptr) rate("speed", above->bandwidth_gbps.declared, 8000);
    const auto ns = above == nullptr ? std::nullopt : above->latency_ns.declared;
    if (ns && *ns / 1000 <= kMaxNcclMicroseconds) {
      attribute("latency", fmt::format("{:.6f}", *ns / 1000));
    }
    text_ += "/>\n";
  }

  void write_gpu(std::size_t i, int depth) {
    std::string links;
    std::swap(links, text_);
    for (const TopologyEdge& edge : topology_.edges) {
      if (edge.from == node(i).id) write_link(edge, depth + 1);
    }
    std::swap(links, text_);
    const std::size_t start = text_.size();
    indent(depth);
    text_ += "<gpu";
    const std::size_t bare = text_.size();
    attributes(node(i), kGpuKeys);
    // What is absent NCCL asks the driver for, of the GPUs that a job uses. The number that CUDA
    // gives a GPU is no "dev", which is the driver's.
    const std::string sm = node(i).attribute("cuda_sm");
    const bool useful = !sm.empty() && readable("sm", sm);
    if (useful && !node(i).attributes.contains("sm")) attribute("sm", sm);
    if (links.empty() && text_.size() == bare) {
      text_.resize(start);  // nothing is said
      return;
    }
    if (links.empty()) {
      text_ += "/>\n";
      return;
    }
    text_ += ">\n" + links;
    indent(depth);
    text_ += "</gpu>\n";
  }

  void write_link(const TopologyEdge& edge, int depth) {
    const std::size_t to = tree_.index(edge.to);
    if (to == TopologyTree::kNone) return;
    const TopologyNode& target = node(to);
    if (edge.kind == "c2c") {
      indent(depth);
      text_ += "<c2c";
      if (edge.count) attribute("count", std::to_string(*edge.count));
      rate("bw", edge.bandwidth_gbps.declared, 1000.0 / edge.count.value_or(1));
      text_ += "/>\n";
      return;
    }
    if (edge.kind != "nvlink" && edge.kind != "xgmi") return;
    const bool cpu = is_processor(target.kind);
    const bool hidden = target.kind == NodeKind::kNvSwitch && target.bdf.empty();
    if (!cpu && !hidden && target.bdf.empty()) return;
    indent(depth);
    text_ += "<" + edge.kind;
    attribute("target", cpu ? "0000:00:00.0" : hidden ? kHiddenSwitchBdf : target.bdf);
    if (edge.count) attribute("count", std::to_string(*edge.count));
    const std::string known = target.attribute("class");
    const char* implied = target.kind == NodeKind::kGpu ? implied_class(target.kind) : "0x068000";
    attribute("tclass", cpu ? "0x068001" : known.empty() ? implied : known);
    text_ += "/>\n";
  }

  const Topology& topology_;
  TopologyTree tree_;
  std::string text_;
  int version_ = 1;
  bool whole_ = false;  ///< devices and bridges are all that the machine has
  std::map<std::string, FreeNumbers> numbers_;                             ///< of CPUs, by host
  std::unordered_map<std::size_t, std::vector<std::size_t>> top_devices_;  ///< by NUMA node
  std::unordered_map<std::size_t, std::size_t> first_package_;             ///< by host
  std::set<std::pair<std::string, std::string>> written_;  ///< addresses and ports, by host
  std::set<std::size_t> listed_;  ///< bridges that NCCL would list, if whole
};

}  // namespace

Result<std::string> to_nccl_xml(const Topology& topology) { return NcclWriter(topology).write(); }

}  // namespace topocoll
