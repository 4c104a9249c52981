// Choice: which plan serves which message size, by simulation.
//
//   Candidates c = *make_candidates(CollectiveKind::kAllReduce, graph, routes, {});
//   PlanTable table = *choose(c.plans, graph, routes, model, {});
//   table.find(bytes)->plan
//
// Sizes are the powers of two from min_bytes to max_bytes; the winner at 2^i serves 2^i to
// 2^(i+1) - 1, the first size also all below and the last all above. Neighbours with the same
// winner are one band. Each candidate is simulated with 1, 2, 4, ... windows until more do not
// help. The earliest candidate wins ties (1e-9), so that the same input gives the same table; list
// simple plans first. Re-planning keeps the plan of a band unless the new one's predicted gain
// exceeds twice the relative error of the model: a choice that hangs on noise must not flap. Thread
// rule: free functions on values. Failure rule: errors of the planner and the simulator pass
// through, with the candidate's name; kUnsupported if no candidate can run on the graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/cost.h"
#include "planner/graph.h"
#include "planner/routes.h"
#include "planner/simulator.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

struct Candidates {
  std::vector<Plan> plans;           ///< one kind, ranks and root; simple ones first
  std::vector<std::string> skipped;  ///< "ring: no order of the ranks closes a ring: use a tree"
};

struct CandidateOptions {
  int root = 0;
  int max_channels = 8;  ///< of multi-ring plans
};

/// one_shot, two_shot, ring, multi_ring, double_tree (all_reduce), trees in fine and coarse chunks
/// and with one or several channels on a path, hierarchical plans (machines of several equal hosts)
/// and exchange (all_to_all), as far as they serve the kind and the graph has the routes. All of
/// them verify.
Result<Candidates> make_candidates(CollectiveKind kind, const Graph& graph, const Routes& routes,
                                   const CandidateOptions& options);

struct ChooseOptions {
  std::uint64_t min_bytes = 1 << 8;
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  int max_windows = 64;
  int slots = 4;
  std::int64_t max_steps = 200'000;  ///< of all ranks and windows; large plans get fewer windows
};

/// The quickest plan by another algorithm than the band's: shows how close it is, and ties.
struct RunnerUp {
  std::string algorithm;
  double time_ns = 0;
};

struct PlanBand {
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  Plan plan;                    ///< its own band is set to this one
  int windows = 1;              ///< at the band's largest simulated size
  double predicted_gbps = 0;    ///< algorithm bandwidth there
  std::optional<RunnerUp> runner_up{};  ///< there; absent: no other algorithm serves the kind
};

struct PlanTable {
  std::vector<PlanBand> bands;  ///< ascending, without gaps from 0 to 2^64 - 1

  [[nodiscard]] const PlanBand* find(std::uint64_t bytes) const;
};

/// `plans` must verify and be of one kind.
Result<PlanTable> choose(const std::vector<Plan>& plans, const Graph& graph, const Routes& routes,
                         const CostModel& model, const ChooseOptions& options);

/// The table for what is now known of the machine, where `current` was made before: at each size
/// the plan in force stays unless a candidate is quicker by more than 2 * model.relative_error.
Result<PlanTable> rechoose(const PlanTable& current, const std::vector<Plan>& plans,
                           const Graph& graph, const Routes& routes, const CostModel& model,
                           const ChooseOptions& options);

/// Whether a change from `current_ns` to `candidate_ns` is more than noise.
[[nodiscard]] bool worth_replacing(double current_ns, double candidate_ns, double relative_error);

}  // namespace topocoll
