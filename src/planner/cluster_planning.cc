// The door of cluster planning: from a node, a fabric and a number to a plan, its bound and
// predictions.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/index.h"
#include "planner/allreduce.h"
#include "planner/cluster.h"
#include "planner/cluster_bound.h"
#include "planner/graph_topology.h"
#include "planner/hierarchy.h"
#include "planner/hierarchy_cost.h"
#include "planner/machine.h"
#include "planner/trees.h"
#include "topocoll/cluster.h"

namespace topocoll {
namespace {

/// The node's graph: its GPU fabric alone, unless a port is elsewhere.
Result<Graph> node_graph(const Topology& node, const Fabric& fabric) {
  auto machine = machine_of(node);
  if (!machine.ok()) return machine.status();
  const auto has = [&](const FabricPort& port) {
    return std::any_of(machine->graph.nodes.begin(), machine->graph.nodes.end(),
                       [&](const GraphNode& n) { return n.id == port.at; });
  };
  if (std::all_of(fabric.ports.begin(), fabric.ports.end(), has)) return std::move(machine->graph);
  return graph_from_topology(node, {});
}

std::string link_name(const Cluster& cluster, int link) {
  const GraphLink& l = cluster.cell.links[at(link)];
  return fmt::format("{} -> {}", cluster.cell.nodes[at(l.from)].id,
                     cluster.cell.nodes[at(l.to)].id);
}

void describe_lanes(const HierarchicalPlan& plan, ClusterReport& report) {
  const NodeTemplate& made = plan.spreads ? *plan.spreads : *plan.reduces;
  const bool turned = !plan.spreads;
  for (std::size_t l = 0; l < made.lanes.size(); ++l) {
    const auto slots = std::count(made.lane.begin(), made.lane.end(), static_cast<int>(l));
    if (slots == 0) continue;
    const Lane& lane = made.lanes[l];
    report.lanes.push_back({lane.rail, report.gpus[at(turned ? lane.entrance : lane.exit)],
                            report.gpus[at(turned ? lane.exit : lane.entrance)],
                            static_cast<double>(slots) / plan.slots()});
  }
}

/// Weighs the shapes; the first wins ties.
Status choose_plan(const Cluster& cluster, ClusterReport& report) {
  Status first_error;
  for (const NodeShape shape : shapes_of(report.kind)) {
    const std::string algorithm(name(shape));
    auto plan = plan_hierarchy(cluster, {report.kind, shape, report.root, report.bound_gbps, {}});
    if (!plan.ok()) {
      report.candidates.push_back({algorithm, 0, plan.status().text()});
      if (first_error.ok()) first_error = plan.status();
      continue;
    }
    if (Status proof = check(*plan); !proof.ok()) return proof;
    const double gbps = plan->algbw()->to_double();
    report.candidates.push_back(
        {algorithm, gbps,
         fmt::format("{} slots on {} lanes of each node; limited by {}", plan->slots(),
                     (plan->spreads ? plan->spreads : plan->reduces)->lanes.size(),
                     link_name(cluster, plan->bottleneck()))});
    const bool best = report.plans.empty() || gbps > report.plan_gbps;
    report.plans.insert(best ? report.plans.begin() : report.plans.end(),
                        std::make_shared<const HierarchicalPlan>(std::move(*plan)));
    if (!best) continue;
    report.algorithm = algorithm;
    report.plan_gbps = gbps;
  }
  return report.plans.empty() ? first_error : Status();
}

/// What trees over all ranks would have, in GB/s.
Result<double> flat_rate(const Cluster& cluster, CollectiveKind kind, int root) {
  const auto flat = flat_graph(cluster);
  if (!flat.ok()) return flat.status();
  if (kind == CollectiveKind::kAllReduce) {
    const auto pairs = pack_allreduce(*flat);
    if (!pairs.ok()) return pairs.status();
    return pairs->algbw;
  }
  const auto packing = kind == CollectiveKind::kAllGather       ? pack_allgather(*flat)
                       : kind == CollectiveKind::kReduceScatter ? pack_reduce_scatter(*flat)
                       : kind == CollectiveKind::kBroadcast     ? pack_broadcast(*flat, root)
                                                                : pack_reduce(*flat, root);
  if (!packing.ok()) return packing.status();
  return packing->algbw.to_double();
}

/// Few ranks may do better without a template: says so.
void compare_flat(const Cluster& cluster, ClusterReport& report) {
  if (cluster.ranks() > kMostFlatRanks || report.plan_gbps >= kCloseEnough * report.bound_gbps)
    return;
  const auto gbps = flat_rate(cluster, report.kind, report.root);
  if (!gbps.ok()) {
    report.candidates.push_back({"trees", 0, gbps.status().text()});
  } else {
    report.candidates.push_back(
        {"trees", *gbps,
         "over all ranks, by bandwidth alone: plan compare of one file with all nodes says from "
         "which size on they are the faster ones"});
  }
}

Status check_request(const ClusterRequest& request, const Cluster& cluster) {
  if (request.planning.root < 0 || request.planning.root >= cluster.ranks()) {
    return Status(Cause::kInvalidArgument, fmt::format("root {} is not among the {} ranks",
                                                       request.planning.root, cluster.ranks()));
  }
  switch (request.planning.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return Status();
    default:
      return Status(
          Cause::kUnsupported,
          fmt::format(
              "no plan of a cluster is made for {}: plans are made for all_reduce, all_gather, "
              "reduce_scatter, broadcast and reduce",
              name(request.planning.kind)));
  }
}

}  // namespace

Result<ClusterReport> plan_cluster(const Topology& node, const Fabric& fabric,
                                   const ClusterRequest& request) {
  auto graph = node_graph(node, fabric);
  if (!graph.ok()) return graph.status();
  auto cluster = make_cluster(*graph, fabric, request.nodes);
  if (!cluster.ok()) return cluster.status();
  if (Status s = check_request(request, *cluster); !s.ok()) return s;
  auto bound = cluster_bound(*cluster, request.planning.kind, request.planning.root);
  if (!bound.ok()) return bound.status();
  ClusterReport report;
  report.kind = request.planning.kind;
  report.root = has_root(report.kind) ? request.planning.root : 0;
  report.nodes = cluster->nodes;
  report.ranks = cluster->ranks();
  for (int g = 0; g < cluster->gpus(); ++g) report.gpus.push_back(cluster->cell.rank_id(g));
  report.bound = bound->algbw.to_string();
  report.bound_gbps = bound->algbw.to_double();
  report.bound_is_exact = bound->exact;
  report.bottleneck = bound->bottleneck;
  if (Status s = choose_plan(*cluster, report); !s.ok()) return s;
  compare_flat(*cluster, report);
  describe_lanes(*report.plans[0], report);
  return report;
}

Result<std::vector<Step>> rank_steps(const ClusterReport& report, int rank) {
  return rank_steps(*report.plans[0], rank);
}

Result<Topology> expanded_topology(const ClusterReport& report) {
  const auto flat = flat_graph(report.plans[0]->cluster);
  if (!flat.ok()) return flat.status();
  const auto id = [&](int node) { return flat->nodes[at(node)].id; };
  Topology topology;
  topology.host = fmt::format("{} nodes", report.nodes);
  for (const GraphNode& node : flat->nodes) {
    topology.nodes.push_back({node.id, node.rank >= 0 ? NodeKind::kGpu : NodeKind::kSwitch});
  }
  // A topology has one link of a kind from node to node: parallel ones are added up.
  std::map<std::pair<int, int>, std::size_t> edge_of;
  std::vector<std::int64_t> capacity;
  for (const GraphLink& link : flat->links) {
    const auto [known, added] = edge_of.try_emplace({link.from, link.to}, capacity.size());
    if (added) {
      capacity.push_back(0);
      topology.edges.push_back({id(link.from), id(link.to), "link", {}, {}});
    }
    TopologyEdge& edge = topology.edges[known->second];
    std::int64_t& sum = capacity[known->second];
    sum += link.capacity;
    edge.bandwidth_gbps.declared = flat->gbps(static_cast<double>(sum));
    if (link.latency_ns) {
      edge.latency_ns.declared = std::max(edge.latency_ns.declared.value_or(0), *link.latency_ns);
    }
  }
  for (const SharedGroup& group : flat->groups) {
    CapacityGroup shared{group.name, {}, {}};
    shared.bandwidth_gbps.declared = flat->gbps(static_cast<double>(group.capacity));
    for (const int l : group.links) {
      const GraphLink& link = flat->links[at(l)];
      EdgeDirection member{id(link.from), id(link.to), "link"};
      auto& members = shared.members;
      if (std::find(members.begin(), members.end(), member) == members.end())
        members.push_back(std::move(member));
    }
    topology.groups.push_back(std::move(shared));
  }
  return topology;
}

Result<Plan> expand(const ClusterReport& report) {
  auto plan = expand(*report.plans[0]);
  if (!plan.ok()) return plan;
  const auto topology = expanded_topology(report);
  if (!topology.ok()) return topology.status();
  plan->topology_fingerprint = plan_fingerprint(*topology);
  return plan;
}

Result<std::vector<ClusterPrediction>> simulate_cluster(const ClusterReport& report,
                                                        const std::vector<std::uint64_t>& sizes) {
  std::vector<HierarchyCost> costs;
  for (const auto& plan : report.plans) {
    auto cost = HierarchyCost::make(*plan);
    if (!cost.ok()) return cost.status();
    costs.push_back(std::move(*cost));
  }
  std::vector<ClusterPrediction> predictions;
  for (const std::uint64_t bytes : sizes) {
    ClusterPrediction best;
    for (std::size_t i = 0; i < costs.size(); ++i) {
      auto at = costs[i].predict(bytes);
      if (!at.ok()) return at.status();
      if (i == 0 || at->time_us < best.at.time_us) {
        best = {std::string(name(report.plans[i]->shape)), std::move(*at)};
      }
    }
    predictions.push_back(std::move(best));
  }
  return predictions;
}

}  // namespace topocoll
