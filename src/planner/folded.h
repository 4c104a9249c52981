// Machines of several hosts in one graph, folded into a cluster: one node template and a rank map.
//
//   Result<FoldedMachine> folded = fold(graph);
//   Result<Plan> plan = unfold(*folded, graph, hierarchical);    // with the graph's ranks and node
//   ids
//
// Hosts must be built alike (hosts.h), each network node a switch between hosts: a rail. Hosts that
// differ in capacity only get the template of the least: no ring is faster than its slowest host.
// Thread rule: values. Failure rule: kUnsupported says why a machine is not folded; it is planned
// flat then.
#pragma once

#include <string>
#include <vector>

#include "planner/cluster.h"
#include "planner/hierarchy.h"
#include "planner/hosts.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

struct FoldedMachine {
  Cluster cluster;
  HostSplit split;
  HostClasses classes;
  std::vector<int> order;  ///< of hosts; empty where nothing tells them apart
};

Result<FoldedMachine> fold(const Graph& graph);

/// A plan of the cluster as one of the machine.
Result<Plan> unfold(const FoldedMachine& folded, const Graph& graph, const HierarchicalPlan& plan);

struct UnfoldedPlan {
  Plan plan;
  double algbw = 0;  ///< GB/s that the most loaded link allows
};
/// A hierarchical plan of the cluster as one of the machine, whose rank `root` is; finer chunks are
/// tried until it has `enough` GB/s.
Result<UnfoldedPlan> plan_folded(const FoldedMachine& folded, const Graph& graph,
                                 CollectiveKind kind, NodeShape shape, int root, double enough);

/// The rank of the cluster that the machine's `rank` is.
int cluster_rank(const FoldedMachine& folded, const Graph& graph, int rank);

}  // namespace topocoll
