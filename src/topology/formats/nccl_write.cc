// The other way: a topology as NCCL's XML.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>

#include "topocoll/topology_formats.h"
#include "topology/formats/formats.h"
#include "topology/formats/xml_text.h"
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
  }

  Result<std::string> write() {
    text_ = fmt::format("<system version=\"{}\">\n", version_);
    bool any = false;
    for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
      if (topology_.nodes[i].kind != NodeKind::kNumaNode) continue;
      any = true;
      write_cpu(i);
    }
    any = write_homeless() || any;
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

  static bool is_device(NodeKind kind) {
    return kind == NodeKind::kPciBridge || kind == NodeKind::kPciDevice || kind == NodeKind::kGpu ||
           kind == NodeKind::kNvSwitch || kind == NodeKind::kNic;
  }

  void write_cpu_facts(std::size_t numa) {
    const TopologyNode& cpu = node(numa);
    attributes(cpu, kCpuKeys);
    const std::size_t host = tree_.above(numa, NodeKind::kHost);
    const std::size_t package = tree_.above(numa, NodeKind::kPackage);
    if (host != TopologyTree::kNone && !cpu.attributes.contains("arch")) {
      const auto arch = node(host).attributes.find("Architecture");
      if (arch != node(host).attributes.end()) attribute("arch", arch->second);
    }
    if (package == TopologyTree::kNone) return;
    for (const auto& [ours, theirs] : kPackageKeys) {
      const auto found = node(package).attributes.find(ours);
      if (found == node(package).attributes.end() || cpu.attributes.contains(theirs)) continue;
      attribute(theirs, found->second);
    }
  }

  void write_cpu(std::size_t numa) {
    const TopologyNode& cpu = node(numa);
    text_ += "  <cpu";
    const std::size_t host = tree_.above(numa, NodeKind::kHost);
    if (host != TopologyTree::kNone) {
      const auto hash = node(host).attributes.find("host_hash");
      if (hash != node(host).attributes.end()) attribute("host_hash", hash->second);
    }
    attribute("numaid", std::to_string(cpu.os_index.value_or(-1)));
    if (!cpu.cpus.empty()) attribute("affinity", affinity_mask(cpu.cpus));
    write_cpu_facts(numa);
    text_ += ">\n";
    for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
      if (is_top_device(i) && tree_.numa_of(i) == numa) write_device(i, 2);
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
    for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
      if (is_top_device(i) && tree_.numa_of(i) == TopologyTree::kNone && !node(i).bdf.empty()) {
        write_device(i, 2);
      }
    }
    const bool any = !text_.empty();
    const std::string open = before + "  <cpu numaid=\"-1\">\n";
    text_ = any ? open + text_ + "  </cpu>\n" : before;
    return any;
  }

  void write_device(std::size_t i, int depth) {
    if (depth > kMaxXmlDepth / 2) return;
    const TopologyNode& device = node(i);
    if (device.kind == NodeKind::kNic && device.bdf.empty()) return write_nic(i, depth);
    indent(depth);
    text_ += "<pci";
    attribute("busid", device.bdf);
    attributes(device, kPciKeys);
    const PciLink& link = device.pci_link;
    const auto speed = link.speed_gts ? link.speed_gts : link.max_speed_gts;
    const auto width = link.width ? link.width : link.max_width;
    if (speed) attribute("link_speed", fmt::format("{:.1f} GT/s PCIe", *speed));
    if (width) attribute("link_width", std::to_string(*width));
    const std::size_t empty = text_.size();
    text_ += ">\n";
    const std::size_t inside = text_.size();
    if (device.kind == NodeKind::kGpu) write_gpu(i, depth + 1);
    if (device.kind == NodeKind::kNic) write_nic(i, depth + 1);
    for (const std::size_t child : tree_.children(i)) {
      if (is_device(node(child).kind)) write_device(child, depth + 1);
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
    indent(depth);
    text_ += "<net";
    attribute("name", (net.label.empty() ? net.id : net.label).substr(0, kMaxNcclNameBytes));
    attributes(net, kNetKeys);
    const TopologyEdge* above = tree_.edge_above(i);
    if (above != nullptr && above->bandwidth_gbps.declared) {
      attribute("speed", std::to_string(std::lround(*above->bandwidth_gbps.declared * 8000)));
    }
    if (above != nullptr && above->latency_ns.declared) {
      attribute("latency", fmt::format("{:.6f}", *above->latency_ns.declared / 1000));
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
      if (edge.bandwidth_gbps.declared) {
        const double each = *edge.bandwidth_gbps.declared / edge.count.value_or(1);
        attribute("bw", std::to_string(std::lround(each * 1000)));
      }
      text_ += "/>\n";
      return;
    }
    if (edge.kind != "nvlink" && edge.kind != "xgmi") return;
    const bool cpu = is_processor(target.kind);
    if (!cpu && target.bdf.empty()) return;
    indent(depth);
    text_ += "<" + edge.kind;
    attribute("target", cpu ? "0000:00:00.0" : target.bdf);
    if (edge.count) attribute("count", std::to_string(*edge.count));
    const auto known = target.attributes.find("class");
    const char* implied = target.kind == NodeKind::kGpu ? "0x030200" : "0x068000";
    attribute("tclass", cpu                                ? "0x068001"
                        : known != target.attributes.end() ? known->second.c_str()
                                                           : implied);
    text_ += "/>\n";
  }

  const Topology& topology_;
  TopologyTree tree_;
  std::string text_;
  int version_ = 1;
};

}  // namespace

Result<std::string> to_nccl_xml(const Topology& topology) { return NcclWriter(topology).write(); }

}  // namespace topocoll
