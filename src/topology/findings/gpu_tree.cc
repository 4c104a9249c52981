// Where measured ways of GPUs and the declared tree disagree.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "topology/findings/median.h"
#include "topology/findings/rules.h"

namespace topocoll {
namespace {

constexpr double kSameFigure = 0.97;   ///< of a bandwidth, before it counts as less
constexpr double kSameLatency = 0.95;  ///< of a latency

std::string listed(const std::vector<std::string>& ids) {
  return fmt::format("{}", fmt::join(ids, ", "));
}

std::string capacity_words(const std::optional<double>& up, const std::optional<double>& down) {
  const auto figure = [](const std::optional<double>& gbps) {
    return gbps ? fmt::format("{:.3g} GB/s", *gbps) : std::string("an unknown rate");
  };
  return fmt::format("{} to the host and {} from it", figure(up), figure(down));
}

}  // namespace

bool FindingRules::is_inferred(std::size_t i) const {
  return node(i).kind == NodeKind::kSwitch && topocoll::is_inferred(node(i));
}

/// From what is declared, a CPU's or a bridge's place, downwards along measured links: the GPUs
/// below each inferred switch.
std::vector<FindingRules::SharedWay> FindingRules::inferred_switches() const {
  std::map<std::size_t, std::vector<std::pair<std::size_t, const TopologyEdge*>>> links;
  std::map<std::pair<std::size_t, std::size_t>, std::optional<double>> gbps;
  for (const TopologyEdge& edge : topology_.edges) {
    const std::size_t a = tree_.index(edge.from);
    const std::size_t b = tree_.index(edge.to);
    if (edge.kind != "link" || a == TopologyTree::kNone || b == TopologyTree::kNone) continue;
    if (!is_inferred(a) && !is_inferred(b)) continue;
    links[a].emplace_back(b, &edge);
    gbps[{a, b}] = edge.bandwidth_gbps.measured;
  }
  std::map<std::size_t, std::size_t> above;
  std::deque<std::size_t> open;
  for (const auto& [i, out] : links) {
    const bool top = !is_inferred(i) && node(i).kind != NodeKind::kGpu;
    if (top) above[i] = TopologyTree::kNone, open.push_back(i);
  }
  for (; !open.empty(); open.pop_front()) {
    const std::size_t i = open.front();
    for (const auto& [next, edge] : links[i]) {
      if (above.emplace(next, i).second && is_inferred(next)) open.push_back(next);
    }
  }
  std::map<std::size_t, SharedWay> found;
  for (const auto& [i, parent] : above) {
    if (is_inferred(i)) found[i] = {i, {}, gbps[{i, parent}], gbps[{parent, i}]};
  }
  for (const auto& [i, parent] : above) {
    if (node(i).kind != NodeKind::kGpu) continue;
    for (std::size_t up = parent; found.contains(up); up = above.at(up)) {
      found[up].gpus.push_back(i);
    }
  }
  std::vector<SharedWay> result;
  for (auto& [i, way] : found) {
    if (!way.gpus.empty()) result.push_back(std::move(way));
  }
  return result;
}

std::vector<std::string> FindingRules::ids(const std::vector<std::size_t>& nodes) const {
  std::vector<std::string> result;
  for (const std::size_t i : nodes) result.push_back(node(i).id);
  return result;
}

std::vector<std::size_t> FindingRules::bridges_above(std::size_t device) const {
  std::vector<std::size_t> bridges = tree_.path_up(device);
  std::erase_if(bridges, [&](std::size_t i) { return node(i).kind != NodeKind::kPciBridge; });
  return bridges;
}

void FindingRules::wrong_tree() {
  for (const SharedWay& way : inferred_switches()) {
    std::set<std::size_t> any;
    std::vector<std::size_t> common = bridges_above(way.gpus.front());
    for (const std::size_t gpu : way.gpus) {
      const auto bridges = bridges_above(gpu);
      any.insert(bridges.begin(), bridges.end());
      std::erase_if(common, [&](std::size_t i) {
        return std::find(bridges.begin(), bridges.end(), i) == bridges.end();
      });
    }
    const std::string declared = any.empty() ? "no bridge is declared above them"
                                 : common.empty()
                                     ? "no declared bridge is above all of them"
                                     : "declared is " + node(common.front()).id + " above them";
    add({"tree-differs",
         any.empty() ? Severity::kInfo : Severity::kWarning,
         ids(way.gpus),
         way.gpus.size() == 1
             ? fmt::format("{} has a way to the host that the declared tree does not show",
                           node(way.gpus.front()).id)
             : fmt::format("{} share one way to the host that the declared tree does not show",
                           listed(ids(way.gpus))),
         fmt::format("{}: together {}, measured; {}", node(way.at).id,
                     capacity_words(way.up_gbps, way.down_gbps), declared),
         {},
         "nothing for plans, which use what was measured; compare with lspci -tv, or import the "
         "provider's topology file; to confirm: topocoll topo probe --no-cache"});
  }
}

/// Virtual machines often show no switches; what shares a link cannot be told then, but measured.
/// GPUs with links of their own to a CPU have no switch to show.
void FindingRules::flat_tree() {
  const std::set<std::size_t> linked = gpus_linked_to_cpus();
  std::vector<std::size_t> gpus;
  bool bridges = false;
  bool measured = true;
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    if (node(i).kind != NodeKind::kGpu || node(i).bdf.empty() || linked.contains(i)) continue;
    gpus.push_back(i);
    const std::size_t up = tree_.parent(i);
    bridges = bridges || (up != TopologyTree::kNone && node(up).kind == NodeKind::kPciBridge);
    const TopologyEdge* above = tree_.edge_above(i);
    measured = measured && above != nullptr && above->bandwidth_gbps.measured.has_value();
  }
  if (gpus.size() < 2 || bridges) return;
  std::string shared;
  for (const SharedWay& way : inferred_switches()) {
    if (way.gpus.size() < 2) continue;
    shared += fmt::format("{}{} share {}", shared.empty() ? "" : "; ", listed(ids(way.gpus)),
                          capacity_words(way.up_gbps, way.down_gbps));
  }
  const bool filled = measured || !shared.empty();
  add({"flat-tree",
       filled ? Severity::kInfo : Severity::kWarning,
       ids(gpus),
       filled
           ? "no PCIe bridge or switch is visible above any GPU; measured: " +
                 (shared.empty() ? "no two GPUs share a link" : shared)
           : "no PCIe bridge or switch is visible above any GPU: which GPUs and NICs share a link "
             "is hidden",
       fmt::format("{} GPUs directly below CPUs", gpus.size()),
       {},
       filled ? "import the provider's topology file to know of NICs, too"
              : "import the provider's topology file, or measure: topocoll topo probe"});
}

/// What passes between GPUs below one bridge, and from there to GPUs elsewhere.
struct FindingRules::NearWays {
  std::vector<double> gbps, ns, far_gbps, far_ns;
  double high = 0;   ///< the highest end of a near pair's interval
  std::string port;  ///< the address of a bridge above a GPU
};

/// The nearest bridge above both.
std::size_t FindingRules::meeting_bridge(std::size_t a, std::size_t b) const {
  const auto others = bridges_above(b);
  for (const std::size_t bridge : bridges_above(a)) {
    if (std::find(others.begin(), others.end(), bridge) != others.end()) return bridge;
  }
  return TopologyTree::kNone;
}

void FindingRules::detours() {
  std::set<std::size_t> elsewhere;  // stand at other switches than the tree says
  for (const SharedWay& way : inferred_switches()) {
    elsewhere.insert(way.gpus.begin(), way.gpus.end());
  }
  std::map<std::size_t, NearWays> switches;  // by the bridge where pairs meet
  const auto all = transfers(NodeKind::kGpu, NodeKind::kGpu);
  const auto take = [](const TopologyEdge& e, std::vector<double>& gbps, std::vector<double>& ns) {
    if (e.bandwidth_gbps.measured) gbps.push_back(*e.bandwidth_gbps.measured);
    if (e.latency_ns.measured) ns.push_back(*e.latency_ns.measured);
  };
  for (const auto& [edge, from, to] : all) {
    const std::string path = paths_.word(from, to);
    if (path != "PIX" && path != "PXB") continue;
    if (elsewhere.contains(from) || elsewhere.contains(to)) continue;
    NearWays& near = switches[meeting_bridge(from, to)];
    take(*edge, near.gbps, near.ns);
    const Figure& figure = edge->bandwidth_gbps;
    const double high = figure.spread ? figure.spread->high : figure.measured.value_or(0);
    near.high = std::max(near.high, high);
    near.port = node(bridges_above(from).front()).bdf;
  }
  for (auto& [bridge, near] : switches) {
    for (const auto& [edge, from, to] : all) {
      const std::string path = paths_.word(from, to);
      if (path != "PHB" && path != "NODE" && path != "SYS") continue;
      const auto above = bridges_above(from);
      if (std::find(above.begin(), above.end(), bridge) == above.end()) continue;
      take(*edge, near.far_gbps, near.far_ns);
    }
    detour(bridge, near);
  }
}

/// Below one switch GPUs reach each other without the root; where they do not, access control sends
/// their traffic up and back.
void FindingRules::detour(std::size_t bridge, const NearWays& near) {
  if (near.gbps.empty() || near.far_gbps.empty()) return;
  const double gbps = median(near.gbps);
  const double far = median(near.far_gbps);
  const double ns = near.ns.empty() ? 0 : median(near.ns);
  const double far_ns = near.far_ns.empty() ? 0 : median(near.far_ns);
  const bool slower = near.high < kSameFigure * far;
  const bool faster = kSameFigure * gbps > far;
  const bool as_late = ns > 0 && far_ns > 0 && ns >= kSameLatency * far_ns;
  if (!slower && (faster || !as_late)) return;
  const std::string late = as_late ? fmt::format(", after {:.0f} and {:.0f} ns", ns, far_ns) : "";
  add({"acs-suspected",
       Severity::kWarning,
       {node(bridge).id},
       fmt::format("GPUs below {} reach each other no faster than GPUs elsewhere: their traffic "
                   "seems to go up to the root and back",
                   node(bridge).id),
       fmt::format("{:.3g} GB/s below it, {:.3g} GB/s to other GPUs{}, measured", gbps, far, late),
       slower ? std::optional(100.0 * (1 - gbps / far)) : std::nullopt,
       fmt::format("on bare metal, as root: lspci -vvv | grep ACSCtl; setpci -s {} "
                   "ECAP_ACS+0x6.w=0000 and the same for the switch's other ports, or disable ACS "
                   "in the BIOS; to confirm: topocoll topo probe --no-cache",
                   near.port)});
}

}  // namespace topocoll
