#include "planner/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/emit.h"
#include "planner/graph_topology.h"
#include "topocoll/planning.h"
#include "topology/inferred.h"

namespace topocoll {

Result<Machine> machine_of(const Topology& topology) {
  Topology fabric = topology;
  // Inferred switches stand for parts of the tree.
  const InferredLinks inferred(topology);
  std::erase_if(fabric.edges, [&](const TopologyEdge& e) {
    return is_tree_edge(e) || e.kind == "interconnect" || inferred.contain(e);
  });
  auto graph = graph_from_topology(fabric, {});
  const bool alone = graph.ok();
  if (!alone) graph = graph_from_topology(topology, {});
  if (!graph.ok()) return graph.status();
  Machine machine{std::move(*graph)};
  for (const TopologyEdge& e : alone ? fabric.edges : topology.edges) {
    if (is_measurement(e)) continue;
    if (e.bandwidth_gbps.measured) {
      ++machine.measured_links;
    } else if (e.bandwidth_gbps.declared) {
      ++machine.declared_links;
    }
  }
  return machine;
}

std::string plan_fingerprint(const Topology& topology) {
  Topology kept = topology;
  const auto is_inside = [](NodeKind kind) {
    return kind == NodeKind::kCache || kind == NodeKind::kCore || kind == NodeKind::kCpu;
  };
  std::erase_if(kept.edges, [&](const TopologyEdge& edge) {
    const TopologyNode* to = topology.find(edge.to);
    const TopologyNode* from = topology.find(edge.from);
    return (to != nullptr && is_inside(to->kind)) || (from != nullptr && is_inside(from->kind));
  });
  std::erase_if(kept.nodes, [&](const TopologyNode& node) { return is_inside(node.kind); });
  for (TopologyNode& node : kept.nodes) node.cpus.clear();
  return kept.fingerprint();
}

Status check_plannable(const Topology& topology) { return machine_of(topology).status(); }

Status check_made_for(const Plan& plan, const Topology& topology) {
  if (plan.topology_fingerprint.empty()) return Status();
  const std::string here = plan_fingerprint(topology);
  if (plan.topology_fingerprint == here) return Status();
  // Plans are made for machines with two GPUs or more.
  const bool can_make = topology.of_kind(NodeKind::kGpu).size() > 1;
  return Status(Cause::kInvalidArgument,
                fmt::format("the plan was made for the machine {}, and {} is {}: {}"
                            "set the plan's topology_fingerprint to \"\" (topocoll plan make or compare, --any-machine) if it is to "
                            "run there all the same",
                            plan.topology_fingerprint, topology.host.empty() ? "this one" : topology.host, here,
                            can_make ? "make one for it (topocoll plan make), or " : ""));
}

Status check_fits(const Plan& plan, const Topology& topology) {
  if (Status s = check_made_for(plan, topology); !s.ok()) return s;
  auto machine = machine_of(topology);
  if (!machine.ok()) return machine.status();
  return check_routes(plan, machine->graph);
}

}  // namespace topocoll
