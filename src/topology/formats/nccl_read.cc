// NCCL's and RCCL's topology XML. The format is not documented; what is read here is what their
// writers emit: system > cpu > pci* > gpu > nvlink | xgmi | c2c, and nic > net.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "topology/formats/formats.h"
#include "topology/formats/xml_text.h"
#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr int kMaxPciDepth = 48;
constexpr std::size_t kMaxNotes = 100;
constexpr std::string_view kCpuTargetClass = "0x068001";
constexpr std::string_view kSwitchTargetClass = "0x068000";

bool is(pugi::xml_node node, const char* name) { return std::string_view(node.name()) == name; }

/// "00000000,ffffffff": 32-bit groups in hexadecimal, the highest first.
std::optional<std::vector<int>> cpus_of_mask(std::string_view mask) {
  std::vector<std::uint32_t> groups;
  while (true) {
    const std::size_t comma = mask.find(',');
    const std::string_view group = mask.substr(0, comma);
    std::uint32_t value = 0;
    const auto parsed = std::from_chars(group.data(), group.data() + group.size(), value, 16);
    if (group.empty() || group.size() > 8 || parsed.ec != std::errc() ||
        parsed.ptr != group.data() + group.size()) {
      return std::nullopt;
    }
    groups.push_back(value);
    if (comma == mask.npos) break;
    mask.remove_prefix(comma + 1);
  }
  if (groups.size() > kMaxNcclCpus / 32) return std::nullopt;
  std::vector<int> cpus;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (int bit = 0; bit < 32; ++bit) {
      if ((groups[groups.size() - 1 - g] >> bit & 1U) != 0) {
        cpus.push_back(static_cast<int>(g) * 32 + bit);
      }
    }
  }
  return cpus;
}

/// A link as one GPU lists it.
struct ListedLink {
  std::string from;
  std::string target;  ///< the other end's address, or a node where `is_node`
  std::string kind;
  std::string target_class;
  std::optional<int> count;
  std::optional<double> gbps;
  bool is_node = false;
};

class NcclReader {
 public:
  explicit NcclReader(XmlText& xml) : xml_(xml) {}

  Topology read() {
    const pugi::xml_node root = xml_.root();
    xml_.integer(root, "version", 0, 1000);
    for (const pugi::xml_node cpu : root.children("cpu")) {
      hosts_.insert(XmlText::text(cpu, "host_hash").value_or(""));
    }
    hosts_.insert("");
    several_hosts_ = hosts_.size() > 2;
    for (const pugi::xml_node child : root.children()) {
      if (!xml_.ok()) break;
      if (is(child, "cpu")) {
        read_cpu(child);
      } else {
        leave_out(child);
      }
    }
    resolve_links();
    if (unclassified_ > 0) {
      note(fmt::format("{} PCI device{} without class: what they are is not known", unclassified_,
                       unclassified_ == 1 ? "" : "s"));
    }
    return std::move(result_);
  }

 private:
  TopologyNode& add(TopologyNode node, const std::string& parent, const char* edge_kind) {
    if (!parent.empty()) {
      TopologyEdge edge;
      edge.from = parent;
      edge.to = node.id;
      edge.kind = edge_kind;
      edge.bandwidth_gbps.declared = declared_bandwidth(node.pci_link);
      result_.edges.push_back(std::move(edge));
    }
    index_[node.id] = result_.nodes.size();
    result_.nodes.push_back(std::move(node));
    return result_.nodes.back();
  }

  /// A file with one oddity a thousand times over is told of it a few times.
  void note(std::string text) {
    if (result_.notes.size() < kMaxNotes) result_.notes.push_back(std::move(text));
  }

  TopologyNode& node(const std::string& id) { return result_.nodes[index_.at(id)]; }

  /// Elements of later versions are no reason to refuse what is understood.
  void leave_out(pugi::xml_node element) {
    if (element.type() != pugi::node_element || !left_out_.insert(element.name()).second) return;
    if (std::string_view(element.name()).size() > kMaxNcclNameBytes) {
      xml_.fail(element, fmt::format("a name longer than {} bytes", kMaxNcclNameBytes));
    }
    note(
        fmt::format("line {}: <{}> is not known and left out", xml_.line(element), element.name()));
  }

  /// Everything that has no field of its own.
  void keep_attributes(pugi::xml_node element, TopologyNode& to,
                       std::initializer_list<std::string_view> typed) {
    for (const pugi::xml_attribute attribute : element.attributes()) {
      const std::string_view key = attribute.name();
      if (*attribute.value() == 0 || std::find(typed.begin(), typed.end(), key) != typed.end()) {
        continue;
      }
      if (key.size() > kMaxNcclNameBytes) {
        xml_.fail(element,
                  fmt::format("an attribute's name longer than {} bytes", kMaxNcclNameBytes));
      }
      if (std::string_view(attribute.value()).size() > kMaxNcclTextBytes) {
        xml_.fail(element, key, fmt::format("longer than {} bytes", kMaxNcclTextBytes));
      }
      to.attributes[std::string(key)] = attribute.value();
    }
  }

  std::string host_of(pugi::xml_node cpu) {
    const std::string hash = XmlText::text(cpu, "host_hash").value_or("");
    if (hash.size() > kMaxNcclNameBytes) {
      xml_.fail(cpu, "host_hash", fmt::format("longer than {} bytes", kMaxNcclNameBytes));
    }
    prefix_ = several_hosts_ ? hash + "/" : "";
    const std::string id = prefix_ + "host";
    if (!index_.contains(id)) {
      TopologyNode host;
      host.id = id;
      if (!hash.empty()) host.attributes["host_hash"] = hash;
      add(std::move(host), "", "");
    }
    return id;
  }

  void read_cpu(pugi::xml_node element) {
    const std::string host = host_of(element);
    const long numa = xml_.integer(element, "numaid", -1, kMaxNcclNuma).value_or(-1);
    TopologyNode cpu;
    cpu.kind = NodeKind::kNumaNode;
    cpu.id = prefix_ + (numa >= 0 ? fmt::format("numa:{}", numa) : "numa:unknown");
    if (index_.contains(cpu.id)) {
      return xml_.fail(element, "numaid", fmt::format("NUMA node {} is listed twice", numa));
    }
    if (numa >= 0) {
      cpu.os_index = static_cast<int>(numa);
    } else {
      note(fmt::format("line {}: a CPU without NUMA id: what is near what is not known there",
                       xml_.line(element)));
    }
    keep_attributes(element, cpu, {"host_hash", "numaid", "affinity"});
    read_affinity(element, cpu, node(host));
    const std::string id = add(std::move(cpu), host, "contains").id;
    read_children(element, id, id, 0);
  }

  void read_affinity(pugi::xml_node element, TopologyNode& cpu, TopologyNode& host) {
    const auto mask = XmlText::text(element, "affinity");
    if (!mask) return;
    const auto cpus = cpus_of_mask(*mask);
    if (!cpus) {
      return xml_.fail(element, "affinity",
                       "expected groups of at most 8 hexadecimal digits with commas between them");
    }
    const std::size_t last = mask->rfind(',');
    if (last != mask->npos && (mask->find(',') != 8 || mask->size() - last - 1 != 8)) {
      note(fmt::format("line {}: a group of the affinity mask has fewer than 8 digits",
                       xml_.line(element)));
    }
    cpu.cpus = *cpus;
    std::vector<int> all;
    std::set_union(host.cpus.begin(), host.cpus.end(), cpus->begin(), cpus->end(),
                   std::back_inserter(all));
    host.cpus = std::move(all);
  }

  /// What stands below a CPU or a PCI device; `numa` is the CPU above both.
  void read_children(pugi::xml_node element, const std::string& parent, const std::string& numa,
                     int depth) {
    for (const pugi::xml_node child : element.children()) {
      if (!xml_.ok()) return;
      if (is(child, "pci")) {
        read_pci(child, parent, numa, depth);
      } else if (is(child, "nic") && parent == numa) {
        read_nic_of_cpu(child, parent);
      } else if (is(child, "nic")) {
        read_nets(child, parent);
      } else if (is(child, "gpu") || is(child, "apu")) {
        read_gpu(child, parent, numa);
      } else {
        leave_out(child);
      }
    }
  }

  NodeKind kind_of(pugi::xml_node element) {
    if (element.child("gpu") || element.child("apu")) return NodeKind::kGpu;
    if (element.child("nic")) return NodeKind::kNic;
    const auto device_class = XmlText::text(element, "class");
    if (!device_class && element.child("pci")) return NodeKind::kPciBridge;
    if (!device_class) {
      ++unclassified_;
      return NodeKind::kPciDevice;
    }
    return pci_kind(*device_class, XmlText::text(element, "vendor").value_or(""),
                    XmlText::text(element, "device").value_or(""));
  }

  void read_pci(pugi::xml_node element, const std::string& parent, const std::string& numa,
                int depth) {
    if (depth == kMaxPciDepth) {
      return xml_.fail(element, fmt::format("nested more than {} deep", kMaxPciDepth));
    }
    const std::string given = XmlText::text(element, "busid").value_or("");
    TopologyNode device;
    device.bdf = canonical_bdf(given);
    if (device.bdf.empty()) {
      return xml_.fail(element, "busid",
                       fmt::format("expected a PCI address such as \"0000:4e:00.0\", found \"{}\"",
                                   given.substr(0, 40)));
    }
    const auto [known, first] = lines_.emplace(prefix_ + device.bdf, xml_.line(element));
    if (!first) {
      return xml_.fail(
          element, "busid",
          fmt::format("{} is listed twice, first in line {}", device.bdf, known->second));
    }
    device.kind = kind_of(element);
    device.id = prefix_ + pci_id(device.kind, device.bdf);
    by_bdf_[prefix_ + device.bdf] = device.id;
    read_link_state(element, device.pci_link);
    keep_attributes(element, device, {"busid", "link_speed", "link_width"});
    if (!xml_.ok()) return;
    const std::string id = add(std::move(device), parent, "pci").id;
    read_children(element, id, numa, depth + 1);
  }

  void read_link_state(pugi::xml_node element, PciLink& link) {
    const std::string speed = XmlText::text(element, "link_speed").value_or("");
    bool known = true;
    link.speed_gts = parse_pci_speed(speed, known);
    if (!known) {
      xml_.fail(element, "link_speed",
                fmt::format("expected a speed such as \"16.0 GT/s PCIe\", found \"{}\"",
                            speed.substr(0, 40)));
    }
    const auto width = xml_.integer(element, "link_width", 0, 64);
    if (width && *width > 0) link.width = static_cast<int>(*width);
  }

  void read_gpu(pugi::xml_node element, const std::string& id, const std::string& numa) {
    if (id == numa) return xml_.fail(element, "a GPU stands below a <pci>");
    TopologyNode& gpu = node(id);
    if (gpu.kind != NodeKind::kGpu || gpu.attributes.contains("dev")) {
      return xml_.fail(element, "a <pci> has one GPU and no NIC beside it");
    }
    for (const char* number : {"dev", "rank"}) xml_.integer(element, number, -1, kMaxNcclNumber);
    keep_attributes(element, gpu, {});
    for (const pugi::xml_node child : element.children()) {
      if (is(child, "nvlink") || is(child, "xgmi")) {
        read_link(child, id, numa);
      } else if (is(child, "c2c")) {
        read_c2c(child, id, numa);
      } else {
        leave_out(child);
      }
    }
  }

  void read_link(pugi::xml_node element, const std::string& gpu, const std::string& numa) {
    ListedLink link;
    link.from = gpu;
    link.kind = element.name();
    link.target_class = XmlText::text(element, "tclass").value_or("");
    const std::string target = XmlText::text(element, "target").value_or("");
    link.target = canonical_bdf(target);
    if (const auto count = xml_.integer(element, "count", 1, kMaxLinks)) {
      link.count = static_cast<int>(*count);
    }
    if (link.target_class == kCpuTargetClass) {
      link.target = numa;
      link.is_node = true;
    } else if (link.target.empty()) {
      return xml_.fail(element, "target",
                       fmt::format("expected a PCI address, found \"{}\"", target.substr(0, 40)));
    } else {
      link.target = prefix_ + link.target;
    }
    const auto each = nominal_link_gbps(link.kind, node(gpu));
    if (each && link.count) link.gbps = *each * *link.count;
    links_.push_back(std::move(link));
  }

  void read_c2c(pugi::xml_node element, const std::string& gpu, const std::string& numa) {
    ListedLink link{gpu, numa, "c2c", "", {}, {}, true};
    if (const auto count = xml_.integer(element, "count", 1, kMaxLinks)) {
      link.count = static_cast<int>(*count);
    }
    const auto mbps = xml_.number(element, "bw", 0, kMaxNcclRate);  // megabytes per second and link
    if (mbps && *mbps > 0) link.gbps = *mbps * link.count.value_or(1) / 1000;
    links_.push_back(std::move(link));
  }

  void read_nic_of_cpu(pugi::xml_node element, const std::string& numa) {
    TopologyNode nic;
    nic.kind = NodeKind::kNic;
    const std::string name = XmlText::text(element.child("net"), "name").value_or("");
    nic.id = prefix_ + "nic:" +
             (name.empty() ? fmt::format("line-{}", xml_.line(element))
                           : name.substr(0, kMaxNcclNameBytes));
    if (index_.contains(nic.id)) {
      return xml_.fail(element, fmt::format("{} is listed twice", nic.id));
    }
    const std::string id = add(std::move(nic), numa, "contains").id;
    read_nets(element, id);
  }

  void read_nets(pugi::xml_node element, const std::string& nic) {
    for (const pugi::xml_node child : element.children()) {
      if (!xml_.ok()) return;
      if (is(child, "net")) {
        read_net(child, nic);
      } else {
        leave_out(child);
      }
    }
  }

  void read_net(pugi::xml_node element, const std::string& nic) {
    const auto name = XmlText::text(element, "name");
    if (!name) return xml_.fail(element, "name", "is missing");
    if (name->size() > kMaxNcclNameBytes) {
      return xml_.fail(element, "name", fmt::format("longer than {} bytes", kMaxNcclNameBytes));
    }
    const auto port = xml_.integer(element, "port", 0, kMaxNcclPort);
    xml_.integer(element, "dev", -1, kMaxNcclNumber);
    TopologyNode net;
    net.kind = NodeKind::kNicPort;
    net.label = *name;
    net.id = prefix_ + "port:" + net.label + (port ? fmt::format("/{}", *port) : "");
    if (index_.contains(net.id)) {
      return xml_.fail(element, "name", fmt::format("{} is listed twice", net.id));
    }
    keep_attributes(element, net, {"name", "speed", "latency"});
    const auto megabits = xml_.number(element, "speed", 0, kMaxNcclRate);
    const auto microseconds = xml_.number(element, "latency", 0, kMaxNcclMicroseconds);
    add(std::move(net), nic, "contains");
    TopologyEdge& edge = result_.edges.back();
    if (megabits && *megabits > 0) edge.bandwidth_gbps.declared = *megabits / 8000;
    if (microseconds && *microseconds > 0) edge.latency_ns.declared = *microseconds * 1000;
  }

  /// The node at the other end; empty if the file does not say.
  std::string other_end(const ListedLink& link) {
    if (link.is_node) return link.target;
    const auto found = by_bdf_.find(link.target);
    if (found != by_bdf_.end()) return found->second;
    if (link.target_class != kSwitchTargetClass) return "";
    const std::size_t slash = link.target.rfind('/');
    const std::string prefix = slash == link.target.npos ? "" : link.target.substr(0, slash + 1);
    TopologyNode nvswitch;  // in virtual machines it is not on the PCI tree
    nvswitch.kind = NodeKind::kNvSwitch;
    nvswitch.bdf = link.target.substr(prefix.size());
    if (nvswitch.bdf == kHiddenSwitchBdf) nvswitch.bdf.clear();
    nvswitch.id =
        prefix + pci_id(nvswitch.kind, nvswitch.bdf.empty() ? kHiddenSwitch : nvswitch.bdf);
    by_bdf_[link.target] = nvswitch.id;
    return add(std::move(nvswitch), prefix + "host", "contains").id;
  }

  void resolve_links() {
    for (const ListedLink& link : links_) {
      if (!xml_.ok()) return;
      const std::string to = other_end(link);
      if (to == link.from) {
        note(fmt::format("{}: its links lead to itself in the file, where they go is not known",
                         link.from));
      } else if (to.empty()) {
        note(fmt::format("{}: the {} target {} is not in the file", link.from, link.kind,
                         link.target));
      } else {
        add_link(link, link.from, to);
      }
    }
    // Links are duplex, but switches and CPUs list none, and a file may list one end only.
    const std::size_t listed = result_.edges.size();
    for (std::size_t i = 0; i < listed; ++i) {
      const TopologyEdge edge = result_.edges[i];
      if (is_tree_edge(edge) || link_edges_.contains({edge.to, edge.from, edge.kind})) continue;
      if (node(edge.to).kind == NodeKind::kGpu) {
        note(fmt::format("{} → {}: the other end does not list this {} link", edge.from, edge.to,
                         edge.kind));
      }
      TopologyEdge back = edge;
      std::swap(back.from, back.to);
      link_edges_[{back.from, back.to, back.kind}] = result_.edges.size();
      result_.edges.push_back(std::move(back));
    }
  }

  void add_link(const ListedLink& link, const std::string& from, const std::string& to) {
    const auto [known, added] =
        link_edges_.emplace(std::tuple(from, to, link.kind), result_.edges.size());
    if (added) {
      TopologyEdge edge;
      edge.from = from;
      edge.to = to;
      edge.kind = link.kind;
      edge.count = link.count;
      edge.bandwidth_gbps.declared = link.gbps;
      result_.edges.push_back(std::move(edge));
      return;
    }
    TopologyEdge& edge = result_.edges[known->second];
    if (edge.count && link.count) {
      *edge.count += *link.count;
      if (*edge.count > kMaxLinks) {
        xml_.fail(xml_.root(), fmt::format("more than {} {} links from {} to {}", kMaxLinks,
                                           link.kind, from, to));
        return;
      }
    }
    auto& declared = edge.bandwidth_gbps.declared;
    if (declared && link.gbps) *declared += *link.gbps;
  }

  XmlText& xml_;
  Topology result_;
  std::set<std::string> hosts_;
  bool several_hosts_ = false;
  std::string prefix_;  ///< of ids on the host that is being read
  std::map<std::string, std::size_t> index_;
  std::map<std::string, std::size_t> lines_;   ///< where an address was listed
  std::map<std::string, std::string> by_bdf_;  ///< address -> node
  std::vector<ListedLink> links_;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> link_edges_;
  std::set<std::string> left_out_;
  int unclassified_ = 0;
};

}  // namespace

// NVLink 1 to 5: 20, 25, 25, 25 and 50 GB/s per link and direction; 14.0625 on GA10x. Infinity
// Fabric: 46 (MI50, MI100: 92 GB/s both ways), 50 (MI200), 64 (MI300), 76.8 (MI350). Vendors' data
// sheets.
std::optional<double> nominal_link_gbps(std::string_view kind, const TopologyNode& gpu) {
  static const std::map<std::string_view, double> nvlink = {
      {"60", 20},      {"70", 25}, {"72", 25},  {"75", 25}, {"80", 25},
      {"86", 14.0625}, {"90", 25}, {"100", 50}, {"103", 50}};
  static const std::map<std::string_view, double> xgmi = {{"906", 46}, {"908", 46},  {"910", 50},
                                                          {"90a", 50}, {"940", 64},  {"941", 64},
                                                          {"942", 64}, {"950", 76.8}};
  if (kind == "nvlink") {
    const auto found = nvlink.find(gpu.attribute("sm"));
    if (found != nvlink.end()) return found->second;
  } else if (kind == "xgmi") {
    std::string_view processor = gpu.attribute("gcn");
    if (processor.substr(0, 3) == "gfx") processor.remove_prefix(3);
    const auto found = xgmi.find(processor);
    if (found != xgmi.end()) return found->second;
  }
  return std::nullopt;
}

Result<Topology> read_nccl_xml(std::string_view text, const std::string& file) {
  auto xml = XmlText::parse(text, file);
  if (!xml.ok()) return xml.status();
  Topology topology = NcclReader(**xml).read();
  if (!(*xml)->ok()) return (*xml)->status();
  return topology;
}

}  // namespace topocoll
