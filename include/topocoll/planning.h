// Planning: the best plan that topocoll finds for a machine, the bound that no plan can exceed, and what
// limits both.
//
//   auto report = topocoll::plan_collective(*topology, {CollectiveKind::kAllGather});
//   report->bound            // "1200/7": GB/s, exact
//   report->plan_gbps        // of report->plan, which verifies
//   std::fputs(topocoll::explain(*report).c_str(), stdout);
//
// Ranks are the machine's GPUs, in the order in which the topology lists them. GB/s are 10^9 bytes of the
// message per second, with the message as users count it: the gathered output of an all_gather, the input of
// a reduce_scatter, all_to_all or all_reduce, the root's buffer otherwise. What is proved is said in docs/planning.md.
// The same topology and request give the same report, byte for byte.
// Thread rule: free functions on values. Failure rule: kInvalidArgument names the node or link that makes no
// sense; kUnsupported says what no plan is made for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/findings.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"
#include "topocoll/topology_formats.h"
#include "topocoll/types.h"

namespace topocoll {

struct PlanningRequest {
  CollectiveKind kind = CollectiveKind::kAllReduce;  ///< all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce
  int root = 0;            ///< rank; where the kind has a root
  int most_channels = 16;  ///< of ring plans, 1 to 64
};

/// A tree of the plan, in the topology's ids; switches on the way are nodes of it like ranks.
struct PlannedTree {
  std::string root;
  double gbps = 0;           ///< of the message
  bool toward_root = false;  ///< it reduces; otherwise it spreads
  std::vector<std::pair<std::string, std::string>> edges;  ///< in the direction of the data
};

/// A ring: ranks in sending order.
struct PlannedRing {
  std::vector<std::string> order;
  double gbps = 0;  ///< on each link
  /// Absent where the latency of a hop is not known.
  std::optional<double> slowest_hop_ns{};
  std::optional<double> turn_ns{};  ///< all hops together
};

/// What was weighed, the chosen one included.
struct PlanCandidate {
  std::string algorithm;
  double gbps = 0;      ///< 0: cannot be had
  std::string reason;   ///< why not, or what limits it
};

/// What the bound would be if one link were twice as wide.
struct PlanningWish {
  std::string from;
  std::string to;
  double bound_gbps = 0;
  bool both_ways =
      false;  ///< with the link from `to` back to `from`; only where neither alone helps as much
};

struct PlanningReport {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int root = 0;
  std::vector<std::string> ranks;  ///< ids
  std::string fingerprint;         ///< plan_fingerprint() of the topology
  std::string bound;               ///< GB/s as a fraction, e.g. "1200/7"
  double bound_gbps = 0;
  bool bound_is_reached = false;   ///< some plan without rounding attains it; otherwise only not exceeded
  std::string bottleneck;          ///< what sets the bound, in words; empty: not known
  std::vector<std::string> cut;    ///< where a cut sets the bound: nodes on the side that has fewer ranks
  std::string algorithm;
  double plan_gbps = 0;
  double link_gbps = 0;  ///< what the busiest link carries meanwhile, one way; 0: not known
  Plan plan;
  std::vector<PlannedTree> trees;  ///< of tree plans, as they are executed
  std::vector<PlannedRing> rings;  ///< of ring plans
  /// Of a plan of one ring: what a ring in the order in which the topology lists its GPUs would have.
  std::optional<PlannedRing> listed_ring;
  std::vector<PlanCandidate> candidates;
  std::vector<PlanningWish> wishes;  ///< links of the bottleneck, most helpful first
  /// Each costs a bound: not on machines of more than 128 ranks, 16 of an all_to_all.
  bool wishes_asked = true;
  int declared_links = 0;            ///< capacities that rest on what the system declares
  int measured_links = 0;
};

TOPOCOLL_API Result<PlanningReport> plan_collective(const Topology& topology, const PlanningRequest& request);

/// One object: kind, unit, bound, bound_gbps, plan_gbps, link_gbps, bottleneck, algorithm,
/// fingerprint, trees, rings, candidates, wishes.
TOPOCOLL_API std::string to_json(const PlanningReport& report);
/// One line without its end: which bytes the report's GB/s count, what a link carries, and what the
/// fraction is.
TOPOCOLL_API std::string unit_words(const PlanningReport& report);
/// In words: the plan, the bound, the gap, why this one, and what would help.
TOPOCOLL_API std::string explain(const PlanningReport& report);
/// The rings or the largest trees, and the cut, for render_svg(), render_html() and render_dot() of the topology.
TOPOCOLL_API PictureOverlay picture_of(const PlanningReport& report);

/// Names the machine as far as plans depend on it, as 16 hex digits: not its caches and cores, nor the CPUs that
/// a process may use, so that ranks which are bound to cores see the machine that the plan was made for.
TOPOCOLL_API std::string plan_fingerprint(const Topology& topology);
/// Whether plans can be made for it at all: an error blames the topology, and no plan or request.
TOPOCOLL_API Status check_plannable(const Topology& topology);
/// kInvalidArgument if the plan was made for another machine; one without a fingerprint is for any.
TOPOCOLL_API Status check_made_for(const Plan& plan, const Topology& topology);
/// The same; and whether it has as many ranks as there are GPUs, its routes exist, and no link or group has to
/// carry more than it can.
TOPOCOLL_API Status check_fits(const Plan& plan, const Topology& topology);

/// What a plan is predicted to take at one message size.
struct PlanPrediction {
  std::uint64_t bytes = 0;
  int windows = 1;           ///< pieces in which the message passes through the plan
  double time_us = 0;
  double algbw_gbps = 0;     ///< bytes / time
  double spread_us = 0;      ///< from the first rank's finish to the last one's
  std::string bottleneck;    ///< the busiest link
  double bottleneck_share = 0;  ///< of the time that it is busy, 0 to 1
};

/// Simulates a plan of as many ranks as the topology has GPUs, with declared costs for what was not measured.
TOPOCOLL_API Result<std::vector<PlanPrediction>> simulate_plan(const Topology& topology, const Plan& plan,
                                                               const std::vector<std::uint64_t>& sizes);

/// The fastest plan by another algorithm than the chosen one's.
struct PlanRunnerUp {
  std::string algorithm;
  double time_us = 0;
};

/// The plan that is predicted to be the fastest, by message size.
struct PlanChoice {
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  PlanPrediction at_most;  ///< at the largest size of the band that was simulated, a power of two
  Plan plan;
  std::optional<PlanRunnerUp> runner_up{};  ///< at that size; absent: no other algorithm serves
};
/// With what was chosen before the machine was measured again: at each size the plan in force stays unless
/// another one is quicker by more than twice the model's relative error, so that noise changes nothing.
TOPOCOLL_API Result<std::vector<PlanChoice>> choose_plans(const Topology& topology, const PlanningRequest& request,
                                                          const std::vector<PlanChoice>& in_force = {});

/// Adds to findings about links what they cost all_reduce and all_gather: the best trees of the machine as it
/// is, and with that link at its maximum. Nothing is added where it costs less than 0.5 %, to machines of more
/// than 16 GPUs, which would take long, and beyond the first 8 such findings.
TOPOCOLL_API void add_effects(const Topology& topology, std::vector<Finding>& findings);

}  // namespace topocoll
