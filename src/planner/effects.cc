// What findings cost collectives: the machine is planned as it is, and with one link mended.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "planner/allreduce.h"
#include "planner/bound.h"
#include "planner/machine.h"
#include "topocoll/planning.h"

namespace topocoll {
namespace {

constexpr std::size_t kMostGpus = 16;
constexpr int kMostFindings = 8;
constexpr double kWorthTelling = 1.005;
constexpr double kGap =
    0.001;  ///< between what is told and the best trees: less than is worth telling

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather};

/// Nothing if no plan can be made.
std::optional<double> best_gbps(const Topology& topology, CollectiveKind kind) {
  const auto machine = machine_of(topology);
  if (!machine.ok()) return std::nullopt;
  if (kind == CollectiveKind::kAllReduce) {
    AllReduceOptions options;
    options.gap = kGap;
    const auto trees = pack_allreduce(machine->graph, options);
    return trees.ok() ? std::optional(trees->algbw) : std::nullopt;
  }
  const auto bound = allgather_bound(machine->graph);
  return bound.ok() ? std::optional(bound->algbw.to_double()) : std::nullopt;
}

/// Whether the finding lowers the figure of the edge.
bool concerns(const Finding& finding, const TopologyEdge& edge, const Topology& topology) {
  const std::string& first = finding.nodes.front();
  if (finding.code == "pcie-width" || finding.code == "pcie-uplink") {
    return is_tree_edge(edge) && edge.to == first;
  }
  if (finding.code == "link-slow") {
    return finding.nodes.size() == 2 && edge.from == first && edge.to == finding.nodes[1];
  }
  if (finding.code != "nvlink-missing" || (edge.from != first && edge.to != first)) return false;
  const TopologyNode* other = topology.find(edge.from == first ? edge.to : edge.from);
  return other != nullptr && other->kind == NodeKind::kNvSwitch;
}

/// Nothing if the finding is about no link, or about none of these edges.
std::optional<Topology> mended(const Topology& topology, const Finding& finding) {
  if (!finding.loss_percent || *finding.loss_percent <= 0 || *finding.loss_percent >= 100)
    return std::nullopt;
  if (finding.nodes.empty()) return std::nullopt;
  const double factor = 1 / (1 - *finding.loss_percent / 100);
  const auto mend = [&](Figure& figure) {
    // Of a slow link the declared figure is what it should have.
    if (finding.code != "link-slow" && figure.declared) *figure.declared *= factor;
    if (figure.measured) *figure.measured *= factor;
  };
  Topology result = topology;
  bool changed = false;
  for (TopologyEdge& edge : result.edges) {
    if (!concerns(finding, edge, topology)) continue;
    mend(edge.bandwidth_gbps);
    mend(edge.upward_gbps);
    changed = true;
  }
  return changed ? std::optional(std::move(result)) : std::nullopt;
}

}  // namespace

void add_effects(const Topology& topology, std::vector<Finding>& findings) {
  const std::size_t gpus = topology.of_kind(NodeKind::kGpu).size();
  if (gpus < 2 || gpus > kMostGpus) return;
  std::optional<double> now[std::size(kKinds)];
  int asked = 0;
  for (Finding& finding : findings) {
    const auto better = mended(topology, finding);
    if (!better) continue;
    if (++asked > kMostFindings) return;
    for (std::size_t k = 0; k < std::size(kKinds); ++k) {
      if (!now[k]) now[k] = best_gbps(topology, kKinds[k]);
      const auto then = best_gbps(*better, kKinds[k]);
      if (!now[k] || !then || *then < *now[k] * kWorthTelling) continue;
      finding.effects.push_back({std::string(name(kKinds[k])), *now[k], *then});
    }
  }
}

}  // namespace topocoll
