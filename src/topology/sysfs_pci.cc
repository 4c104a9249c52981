#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "topology/pci.h"
#include "topology/sysfs.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

constexpr std::size_t kExtendedConfig = 0x100;
constexpr std::uint32_t kAcsCapability = 0x000d;
/// Source validation, request redirect, completion redirect, upstream forwarding.
constexpr unsigned kAcsRedirects = 0x04 | 0x08 | 0x10;

PciLink link_state(const SysfsRoot& root, const std::string& device) {
  PciLink link;
  bool known = true;
  const auto speed = [&](const char* file) {
    return parse_pci_speed(root.text(device + file).value_or(""), known);
  };
  const auto width = [&](const char* file) -> std::optional<int> {
    const auto lanes = root.number(device + file);
    if (!lanes || *lanes < 1 || *lanes > 64) return std::nullopt;  // 0 and 255 mean unknown
    return static_cast<int>(*lanes);
  };
  link.speed_gts = speed("/current_link_speed");
  link.max_speed_gts = speed("/max_link_speed");
  link.width = width("/current_link_width");
  link.max_width = width("/max_link_width");
  return link;
}

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

/// Whether access control services send peer traffic up to the root; absent where the function has
/// none, or where only root may read that far.
std::optional<bool> acs_redirects(const std::string& config) {
  std::size_t at = kExtendedConfig;
  // The list is a chain through 4 KiB; a broken one could lead in circles.
  for (int steps = 0; steps < 64 && at >= kExtendedConfig && at + 8 <= config.size(); ++steps) {
    const std::uint32_t header = word_at(config, at);
    if ((header & 0xffff) == kAcsCapability) {
      return (word_at(config, at + 4) >> 16 & kAcsRedirects) != 0;
    }
    at = header >> 20 & 0xffc;
  }
  return std::nullopt;
}

/// "RxErr 0\n...\nTOTAL_ERR_COR 3": the total, or the sum where an old kernel gives none. Stops at
/// the largest number instead of starting anew.
std::optional<std::uint64_t> error_total(const std::optional<std::string>& counters) {
  if (!counters) return std::nullopt;
  std::uint64_t sum = 0;
  bool any = false;
  for (std::size_t start = 0; start < counters->size();) {
    const std::size_t end = std::min(counters->find('\n', start), counters->size());
    const std::string line = counters->substr(start, end - start);
    start = end + 1;
    const std::size_t blank = line.rfind(' ');
    if (blank == line.npos) continue;
    std::uint64_t value = 0;
    std::from_chars(line.data() + blank + 1, line.data() + line.size(), value);
    if (line.rfind("TOTAL", 0) == 0) return value;
    sum = value > ~std::uint64_t{0} - sum ? ~std::uint64_t{0} : sum + value;
    any = true;
  }
  if (!any) return std::nullopt;
  return sum;
}

void add_facts(const SysfsRoot& root, const std::string& device, TopologyNode& node) {
  node.pci_link = link_state(root, device);
  if (const auto numa = root.number(device + "/numa_node")) {
    node.attributes["numa_node"] = std::to_string(*numa);
  }
  if (const auto cpus = root.text(device + "/local_cpus"); cpus && !cpus->empty()) {
    node.attributes["local_cpus"] = *cpus;
  }
  if (const auto driver = root.link(device + "/driver")) {
    node.attributes["driver"] = driver->substr(driver->rfind('/') + 1);
  }
  const std::pair<const char*, const char*> counters[] = {
      {"aer_correctable", "/aer_dev_correctable"},
      {"aer_nonfatal", "/aer_dev_nonfatal"},
      {"aer_fatal", "/aer_dev_fatal"}};
  for (const auto& [key, file] : counters) {
    if (const auto total = error_total(root.text(device + file))) {
      node.attributes[key] = std::to_string(*total);
    }
  }
  if (node.kind == NodeKind::kPciBridge) {
    const auto acs = acs_redirects(root.bytes(device + "/config").value_or(""));
    if (acs) node.attributes["acs_redirect"] = *acs ? "on" : "off";
  }
}

}  // namespace

void add_pci_facts(const SysfsRoot& root, Topology& topology) {
  for (TopologyNode& node : topology.nodes) {
    if (node.bdf.empty()) continue;
    add_facts(root, "/sys/bus/pci/devices/" + node.bdf, node);
  }
  const TopologyTree tree(topology);
  for (TopologyEdge& edge : topology.edges) {
    if (edge.kind != "pci") continue;
    const TopologyNode& child = topology.nodes[tree.index(edge.to)];
    const TopologyNode& parent = topology.nodes[tree.index(edge.from)];
    PciLink both = child.pci_link;
    // Neither end makes the link faster than the other can. Only an end device is sure to be on the
    // same link as its parent: a bridge's own link leads upwards from a switch, and downwards from
    // a root port.
    const auto& limit = parent.pci_link;
    if (both.max_speed_gts && limit.max_speed_gts && child.kind != NodeKind::kPciBridge) {
      both.max_speed_gts = std::min(*both.max_speed_gts, *limit.max_speed_gts);
    }
    if (const auto gbps = declared_bandwidth(both)) edge.bandwidth_gbps.declared = gbps;
  }
}

}  // namespace topocoll
