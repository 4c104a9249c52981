// The door of the planner: from a Topology and a request to a plan, its bound and the reasons.
#include "topocoll/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "base/plain_text.h"
#include "planner/choose.h"
#include "planner/exchange.h"
#include "planner/hamilton.h"
#include "planner/hierarchy.h"
#include "planner/machine.h"
#include "planner/planning_bounds.h"
#include "planner/planning_ways.h"
#include "planner/routes.h"
#include "planner/simulator.h"
#include "planner/trees.h"

namespace topocoll {
namespace {

Status check(const PlanningRequest& request, const Graph& graph) {
  switch (request.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kAllToAll: break;
    default:
      return Status(Cause::kUnsupported,
                    fmt::format("no plan is made for {}: its direct plan (every pair of ranks talks) is the "
                                "only one; plans are made for all_reduce, all_gather, reduce_scatter, "
                                "all_to_all, broadcast and reduce",
                                name(request.kind)));
  }
  if (request.root < 0 || request.root >= graph.ranks()) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("root {} is not among the {} ranks", request.root, graph.ranks()));
  }
  if (request.most_channels < 1 || request.most_channels > 64) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("{} channels: 1 to 64 are possible", request.most_channels));
  }
  return Status();
}

/// Keeps the best of what is weighed, and all of it in the report.
struct Scales {
  explicit Scales(PlanningReport& into) : report(into) {}

  void weigh(const char* algorithm, Result<Made> made, double at_least) {
    if (!made.ok()) {
      report.candidates.push_back({algorithm, 0, made.status().text()});
      if (first_error.ok()) first_error = made.status();
      return;
    }
    report.candidates.push_back({made->algorithm, made->gbps, made->reason});
    if (!best || made->gbps >= at_least) best = std::move(*made);
  }
  /// What a simpler plan must have to be preferred.
  [[nodiscard]] double simpler() const { return best ? best->gbps / kWorthTrees : 0; }

  PlanningReport& report;
  std::optional<Made> best;
  Status first_error;
};

/// By the plan's own routes; 0 if it has none.
double busiest_link(const Plan& plan) {
  std::map<std::pair<std::string, std::string>, double> load;
  double most = 0;
  for (const Route& route : plan.routes) {
    for (std::size_t i = 1; i < route.path.size(); ++i) {
      most = std::max(most, load[{route.path[i - 1], route.path[i]}] += route.gbps);
    }
  }
  return most;
}

void weigh_trees_and_rings(const Graph& graph, const PlanningRequest& request, Scales& scales) {
  const auto& best = scales.best;
  if (graph.ranks() > kMostFlatRanks) {
    const double bound = scales.report.bound_gbps;
    scales.weigh("hierarchical", make_hierarchical(graph, request, bound), 0);
    if (best && best->gbps > kCloseEnough * bound) {
      scales.report.candidates.push_back(
          {"trees", 0, "not packed among so many ranks: hosts that follow each other come close to the bound"});
      return;
    }
  }
  scales.weigh("trees", make_trees(graph, request), scales.simpler());
  if (best && graph.ranks() > kMaxExactRing && best->gbps > kCloseEnough * scales.report.bound_gbps) {
    scales.report.candidates.push_back(
        {"rings", 0, "not searched among so many ranks: trees come close to the bound"});
  } else {
    scales.weigh("rings", make_rings(graph, Routes(graph), request), scales.simpler());
  }
}

}  // namespace

Result<PlanningReport> plan_collective(const Topology& topology, const PlanningRequest& request) {
  auto read = machine_of(topology);
  if (!read.ok()) return read.status();
  const Graph& graph = read->graph;
  if (Status s = check(request, graph); !s.ok()) return s;
  std::optional<Exchange> exchange;
  if (request.kind == CollectiveKind::kAllToAll) {
    auto packed = pack_exchange(graph);
    if (!packed.ok()) return packed.status();
    exchange = std::move(*packed);
  }
  auto bound = exchange ? bound_of(graph, *exchange) : bound_of(graph, request.kind, request.root);
  if (!bound.ok()) return bound.status();

  PlanningReport report;
  report.kind = request.kind;
  report.root = has_root(request.kind) ? request.root : 0;
  for (int r = 0; r < graph.ranks(); ++r) report.ranks.push_back(graph.rank_id(r));
  report.fingerprint = plan_fingerprint(topology);
  report.bound = bound->algbw.to_string();
  report.bound_gbps = bound->algbw.to_double();
  report.bound_is_reached = bound->reached;
  report.bottleneck = bound->bottleneck;
  report.cut = smaller_part(graph, bound->parts);
  report.declared_links = read->declared_links;
  report.measured_links = read->measured_links;

  Scales scales(report);
  if (exchange) {
    scales.weigh("exchange", make_exchange(graph, *exchange), 0);
    scales.weigh("direct", make_direct_exchange(graph, Routes(graph)), scales.simpler());
  } else {
    weigh_trees_and_rings(graph, request, scales);
  }
  std::optional<Made>& best = scales.best;
  if (!best) return scales.first_error;
  if (Status s = verify(best->plan); !s.ok()) {
    return Status(Cause::kInternal, "the plan that was made does not verify: " + s.text());
  }
  report.algorithm = best->algorithm;
  report.plan_gbps = best->gbps;
  report.link_gbps = busiest_link(best->plan);
  report.plan = std::move(best->plan);
  report.plan.topology_fingerprint = report.fingerprint;
  report.trees = std::move(best->trees);
  report.rings = std::move(best->rings);
  report.listed_ring = std::move(best->listed_ring);
  report.wishes_asked = wishes_are_asked(graph, request.kind);
  if (report.wishes_asked) report.wishes = wishes(graph, *bound, request);
  return report;
}

Result<std::vector<PlanPrediction>> simulate_plan(const Topology& topology, const Plan& plan,
                                                  const std::vector<std::uint64_t>& sizes) {
  if (Status s = verify(plan); !s.ok()) return s;
  auto read = machine_of(topology);
  if (!read.ok()) return read.status();
  const Routes routes(read->graph);
  std::vector<PlanPrediction> predictions;
  for (const std::uint64_t bytes : sizes) {
    PlanPrediction best;
    for (int windows = 1; windows <= 64; windows *= 2) {
      SimulationOptions options;
      options.bytes = static_cast<double>(bytes);
      options.windows = windows;
      auto run = simulate(plan, read->graph, routes, CostModel::declared(), options);
      if (!run.ok()) return run.status();
      if (windows > 1 && run->time_ns / 1e3 >= best.time_us) break;
      best = {bytes,
              windows,
              run->time_ns / 1e3,
              run->algbw_gbps(options.bytes),
              run->spread_ns / 1e3,
              run->bottleneck < 0 ? "" : plain_text(routes.resource_name(run->bottleneck)),
              run->bottleneck_share};
    }
    predictions.push_back(std::move(best));
  }
  return predictions;
}

Result<std::vector<PlanChoice>> choose_plans(const Topology& topology, const PlanningRequest& request,
                                             const std::vector<PlanChoice>& in_force) {
  auto read = machine_of(topology);
  if (!read.ok()) return read.status();
  const Graph& graph = read->graph;
  if (Status s = check(request, graph); !s.ok()) return s;
  const Routes routes(graph);
  auto candidates = make_candidates(request.kind, graph, routes, {request.root, request.most_channels});
  if (!candidates.ok()) return candidates.status();
  PlanTable before;
  for (const PlanChoice& c : in_force) {
    if (c.plan.kind != request.kind || (has_root(request.kind) && c.plan.root != request.root)) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("a choice in force is for {} from rank {}, not for {} from rank {}", name(c.plan.kind),
                                c.plan.root, name(request.kind), request.root));
    }
    before.bands.push_back({c.min_bytes, c.max_bytes, c.plan});
  }
  auto table = rechoose(before, candidates->plans, graph, routes, CostModel::declared(), {});
  if (!table.ok()) return table.status();
  std::vector<PlanChoice> choices;
  const std::string fingerprint = plan_fingerprint(topology);
  for (PlanBand& band : table->bands) {
    const std::uint64_t shown = std::bit_floor(std::min(band.max_bytes, ChooseOptions{}.max_bytes));
    auto predicted = simulate_plan(topology, band.plan, {shown});
    if (!predicted.ok()) return predicted.status();
    band.plan.topology_fingerprint = fingerprint;
    choices.push_back(
        {band.min_bytes, band.max_bytes, std::move(predicted->front()), std::move(band.plan)});
    if (!band.runner_up) continue;
    choices.back().runner_up =
        PlanRunnerUp{std::move(band.runner_up->algorithm), band.runner_up->time_ns / 1e3};
  }
  return choices;
}

}  // namespace topocoll
