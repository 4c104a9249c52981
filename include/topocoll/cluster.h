// Clusters: many equal nodes on a network, planned as one node and a rank map.
//
//   auto fabric = topocoll::fabric_from_json(text, "rails.json");
//   auto report = topocoll::plan_cluster(*node, *fabric, {{CollectiveKind::kAllReduce}, 2048});
//   report->bound, report->plan_gbps     // exact bound of all 16,384 ranks; what the plan has
//   auto steps = topocoll::rank_steps(*report, 12345);  // made when asked for
//
// Ranks: GPU g of node i (both from 0) is rank i * GPUs + g. Nodes stand below leaf switches in the
// order of their numbers. GB/s are those of planning.h. What is proved and how is said in
// docs/planning.md.
//
// Thread rule: free functions on values.
// Failure rule: kInvalidArgument names the field, port or number that makes no sense; kUnsupported
// says what no plan is made for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/plan.h"
#include "topocoll/planning.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

inline constexpr int kMaxClusterRanks = 65'536;
inline constexpr int kMaxRails = 256;

/// Where a node is attached to the network.
struct FabricPort {
  std::string at;  ///< id of a GPU, NIC or switch of the node
  int rail = 0;
  double out_gbps = 0;  ///< 10^9 bytes per second into the network; 0: this port does not send
  double in_gbps = 0;
};

/// How nodes hang together. Each rail has a leaf switch for every `nodes_per_leaf` nodes; where
/// that leaves more than one leaf, leaves of a rail meet in a spine.
struct Fabric {
  std::string name;
  std::vector<FabricPort>
      ports;                ///< of every node alike; empty: each GPU has one, see gbps_per_gpu
  double gbps_per_gpu = 0;  ///< both ways; GPU k is on rail k modulo rails
  int rails = 1;
  std::optional<int> nodes_per_leaf;  ///< absent: one switch a rail for all nodes
  double oversubscription = 1;        ///< what a leaf's nodes can send over what its uplink carries
  bool spine_joins_rails = false;     ///< one spine for all rails; else one for each
  std::optional<double> latency_ns;   ///< one way, port to port through a leaf
  std::optional<double> spine_latency_ns;  ///< more on the way from leaf to leaf
};

/// {"topocoll_fabric": 1, "rails": 8, "gbps_per_gpu": 50, ...}; `file` stands in front of errors.
TOPOCOLL_API Result<Fabric> fabric_from_json(std::string_view text, const std::string& file);

struct ClusterRequest {
  PlanningRequest planning;
  int nodes = 2;  ///< 2 or more, kMaxClusterRanks ranks at most
};

/// One way for a node's messages into the network and out of it at the next node.
struct ClusterLane {
  int rail = 0;
  std::string exit;      ///< GPU that sends
  std::string entrance;  ///< GPU that receives
  double share = 0;      ///< of what passes between nodes
};

struct HierarchicalPlan;  ///< planner/hierarchy.h

struct ClusterReport {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int root = 0;
  int nodes = 0;
  int ranks = 0;
  std::vector<std::string> gpus;  ///< of a node: rank modulo gpus.size()
  std::string bound;              ///< GB/s as a fraction
  double bound_gbps = 0;
  bool bound_is_exact =
      false;  ///< all_gather and its like, without shared groups: trees would reach it
  std::string bottleneck;
  std::string algorithm;
  double plan_gbps = 0;
  std::vector<ClusterLane> lanes;
  std::vector<PlanCandidate> candidates;
  /// The plan as templates, the one with the most bandwidth first; never empty in a report that
  /// plan_cluster() gave.
  std::vector<std::shared_ptr<const HierarchicalPlan>> plans;
};

TOPOCOLL_API Result<ClusterReport> plan_cluster(const Topology& node, const Fabric& fabric,
                                                const ClusterRequest& request);
TOPOCOLL_API std::string to_json(const ClusterReport& report);
/// One line without its end: which bytes the report's GB/s count, and what the fraction is.
TOPOCOLL_API std::string unit_words(const ClusterReport& report);
TOPOCOLL_API std::string explain(const ClusterReport& report);

/// The steps of one rank, in program order; no other rank's steps are made.
TOPOCOLL_API Result<std::vector<Step>> rank_steps(const ClusterReport& report, int rank);
/// All nodes as one machine, with ids such as "3/g0" for g0 of node 3: what plans of all ranks are
/// made for. kUnsupported beyond 4,096 ranks.
TOPOCOLL_API Result<Topology> expanded_topology(const ClusterReport& report);
/// All steps, for verify() and executors, with the fingerprint of that machine; kUnsupported beyond
/// the limits of plans.
TOPOCOLL_API Result<Plan> expand(const ClusterReport& report);

struct ClusterPrediction {
  std::string algorithm;  ///< the quickest of the report's plans at this size
  PlanPrediction at;
};
/// Predicted times, from a few nodes' work (docs/planning.md says how).
TOPOCOLL_API Result<std::vector<ClusterPrediction>> simulate_cluster(
    const ClusterReport& report, const std::vector<std::uint64_t>& sizes);

}  // namespace topocoll
