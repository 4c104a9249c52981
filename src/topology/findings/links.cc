// Links that are narrower, slower or less healthy than they could be.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "topology/findings/rules.h"
#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr double kTolerance = 0.97;  ///< of a figure, before it counts as less
constexpr double kMeasuredShare =
    0.65;  ///< of the declared figure that a healthy link shows at least

template <class T>
std::optional<T> smaller(const std::optional<T>& a, const std::optional<T>& b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

void FindingRules::pcie_links() {
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    if (!node(i).bdf.empty() && tree_.parent(i) != TopologyTree::kNone) pcie_link(i);
  }
}

void FindingRules::pcie_link(std::size_t i) {
  const TopologyNode& device = node(i);
  const TopologyNode& above = node(tree_.parent(i));
  const PciLink& link = device.pci_link;
  // A bridge's own link leads upwards from a switch, and downwards from a root port: of the two
  // ends only that of an end device is sure to be the same link as its parent's.
  const bool same_link = above.kind == NodeKind::kPciBridge && device.kind != NodeKind::kPciBridge;
  if (device.kind == NodeKind::kPciBridge || device.kind == NodeKind::kPciDevice) return;
  const auto width = same_link ? smaller(link.max_width, above.pci_link.max_width) : link.max_width;
  const auto speed =
      same_link ? smaller(link.max_speed_gts, above.pci_link.max_speed_gts) : link.max_speed_gts;
  const std::string evidence = fmt::format(
      "current_link {}, max_link {} at the device{}", link_words(link),
      link_words({link.max_speed_gts, link.max_width, {}, {}}),
      same_link && above.pci_link.max_width
          ? fmt::format(
                ", {} at {}",
                link_words({above.pci_link.max_speed_gts, above.pci_link.max_width, {}, {}}),
                above.bdf)
          : "");
  if (link.width && width && *link.width < *width) {
    add({"pcie-width",
         Severity::kError,
         {device.id},
         fmt::format("{} runs on {} of {} PCIe lanes", device.id, *link.width, *width),
         evidence,
         100.0 * (1 - static_cast<double>(*link.width) / *width),
         fmt::format("reseat the card or its riser and look at: lspci -vv -s {} | grep LnkSta",
                     device.bdf)});
  }
  if (link.speed_gts && speed && *link.speed_gts < kTolerance * *speed) {
    slow_speed(device, *link.speed_gts, *speed, evidence);
  }
}

/// An idle GPU lowers its speed; one that was measured under load has none to spare.
void FindingRules::slow_speed(const TopologyNode& device, double now, double most,
                              const std::string& evidence) {
  const bool loaded = device.attribute("link_state") == "under load";
  const bool idles = device.kind == NodeKind::kGpu && !loaded;
  const std::string idle = device.attribute("idle_link");
  add({"pcie-speed",
       idles ? Severity::kInfo : Severity::kWarning,
       {device.id},
       fmt::format("{} runs at {:g} of {:g} GT/s{}", device.id, now, most,
                   idles    ? "; an idle GPU lowers its speed, so look again under load"
                   : loaded ? " under load"
                            : ""),
       loaded
           ? fmt::format("{}, read under load{}", evidence, idle.empty() ? "" : "; idle: " + idle)
           : evidence,
       100.0 * (1 - now / most),
       loaded
           ? fmt::format("lspci -vv -s {} | grep -E 'LnkCap|LnkSta'; the slot's speed in the BIOS, "
                         "then card and riser",
                         device.bdf)
           : fmt::format("under load: cat /sys/bus/pci/devices/{}/current_link_speed",
                         device.bdf)});
}

/// A bridge that declares less upwards than one device below it can take.
void FindingRules::slow_bridges() {
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    const TopologyEdge* up = tree_.edge_above(i);
    if (node(i).kind != NodeKind::kPciBridge || up == nullptr) continue;
    const auto above = up->bandwidth_gbps.declared;
    if (!above || up->bandwidth_gbps.measured) continue;
    double best = 0;
    std::string fastest;
    for (const std::size_t child : tree_.children(i)) {
      const auto below = tree_.edge_above(child)->bandwidth_gbps.declared.value_or(0);
      if (below > best) best = below, fastest = node(child).id;
    }
    if (best <= 0 || *above >= kTolerance * best) continue;
    add({"pcie-uplink",
         Severity::kWarning,
         {node(i).id},
         fmt::format("{} declares {:.1f} GB/s upwards, less than one device below it", node(i).id,
                     *above),
         fmt::format("{:.1f} GB/s above {}, {:.1f} GB/s above {}", *above, node(i).id, best,
                     fastest),
         100.0 * (1 - *above / best),
         fmt::format("some switches misreport this port, so measure it; else: lspci -vv -s {} | "
                     "grep LnkSta",
                     node(i).bdf)});
  }
}

void FindingRules::slow_measurements() {
  for (const TopologyEdge& edge : topology_.edges) {
    const auto& figure = edge.bandwidth_gbps;
    if (!figure.declared || !figure.measured || *figure.declared <= 0) continue;
    const double share = *figure.measured / *figure.declared;
    if (share >= kMeasuredShare) continue;
    add({"link-slow",
         Severity::kWarning,
         {edge.from, edge.to},
         fmt::format("{} → {} ({}) reaches {:.0f} % of what it declares", edge.from, edge.to,
                     edge.kind, 100 * share),
         fmt::format("{:.2f} GB/s measured, {:.2f} GB/s declared", *figure.measured,
                     *figure.declared),
         100.0 * (1 - share),
         "measure again while nothing else runs: topocoll topo probe --no-cache; then cables, lanes, "
         "ACS"});
  }
}

/// GPUs at NVSwitches have the same number of links each, or one has lost some.
void FindingRules::switch_links() {
  std::map<std::string, double> total;
  for (const TopologyEdge& edge : topology_.edges) {
    const std::size_t from = tree_.index(edge.from);
    const std::size_t to = tree_.index(edge.to);
    if (from == TopologyTree::kNone || to == TopologyTree::kNone) continue;
    if (node(from).kind != NodeKind::kGpu || node(to).kind != NodeKind::kNvSwitch) continue;
    total[edge.from] += edge.count ? *edge.count : edge.bandwidth_gbps.declared.value_or(0);
  }
  double most = 0;
  for (const auto& [gpu, links] : total) most = std::max(most, links);
  for (const auto& [gpu, links] : total) {
    if (links >= kTolerance * most) continue;
    add({"nvlink-missing",
         Severity::kError,
         {gpu},
         fmt::format("{} has fewer NVLinks to the switches than the others", gpu),
         fmt::format("{:g} against {:g}", links, most),
         100.0 * (1 - links / most),
         "nvidia-smi nvlink --status; reset the GPU; look for Xid 74 in the kernel's log"});
  }
}

void FindingRules::error_counters() {
  for (const TopologyNode& device : topology_.nodes) {
    const double severe =
        number(device, "aer_fatal").value_or(0) + number(device, "aer_nonfatal").value_or(0);
    const double mended = number(device, "aer_correctable").value_or(0);
    if (severe <= 0 && mended <= 0) continue;
    add({"pcie-errors",
         severe > 0 ? Severity::kWarning : Severity::kInfo,
         {device.id},
         fmt::format("{} has counted PCIe errors since boot", device.id),
         fmt::format("{:g} correctable, {:g} uncorrectable (aer_dev_*)", mended, severe),
         {},
         fmt::format("watch whether they grow: cat /sys/bus/pci/devices/{}/aer_dev_*",
                     device.bdf)});
  }
}

/// Access control sends traffic between peers up to the root and back.
void FindingRules::access_control() {
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    if (node(i).attribute("acs_redirect") != "on") continue;
    bool gpu = false;
    for (std::size_t child : tree_.children(i)) gpu = gpu || node(child).kind == NodeKind::kGpu;
    const std::size_t up = tree_.parent(i);
    const bool in_switch = up != TopologyTree::kNone && node(up).kind == NodeKind::kPciBridge;
    if (!gpu || !in_switch) continue;
    add({"acs-redirect",
         Severity::kWarning,
         {node(i).id},
         fmt::format("{} redirects traffic between peers to the root complex", node(i).id),
         "ACS control of the port (config space)",
         {},
         fmt::format("on bare metal: setpci -s {} ECAP_ACS+0x6.w=0000, or disable ACS in the BIOS",
                     node(i).bdf)});
  }
}

void FindingRules::ports() {
  for (const TopologyNode& port : topology_.nodes) {
    const std::string state = port.attribute("state");
    // hwloc gives the kernel's number: 4 is ACTIVE.
    if (port.attribute("rdma").empty() || state.empty() || state == "ACTIVE" || state == "4")
      continue;
    add({"port-down",
         Severity::kWarning,
         {port.id},
         fmt::format("{} is not active", port.id),
         fmt::format("state {}", state),
         100.0,
         fmt::format("ibstat {}; check the cable and the subnet manager", port.attribute("rdma"))});
  }
}

}  // namespace topocoll
