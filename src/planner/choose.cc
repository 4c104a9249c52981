#include "planner/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "base/index.h"
#include "planner/allreduce.h"
#include "planner/double_tree.h"
#include "planner/emit.h"
#include "planner/exchange.h"
#include "planner/folded.h"
#include "planner/hierarchy.h"
#include "planner/ring_packing.h"
#include "planner/ring_plans.h"
#include "planner/rings.h"
#include "planner/trees.h"

namespace topocoll {
namespace {

Status invalid(std::string text) { return Status(Cause::kInvalidArgument, std::move(text)); }

/// A plan's best simulated run at one size.
struct Trial {
  double time_ns = 0;
  int windows = 1;
};

Result<Trial> try_plan(const Plan& plan, const Graph& graph, const Routes& routes,
                       const CostModel& model, const ChooseOptions& options, std::uint64_t bytes) {
  Trial best;
  std::int64_t steps = 0;
  for (const auto& program : plan.steps) steps += static_cast<std::int64_t>(program.size());
  for (int windows = 1; windows <= options.max_windows; windows *= 2) {
    if (windows > 1 && steps * windows > options.max_steps) break;
    SimulationOptions run;
    run.bytes = static_cast<double>(bytes);
    run.windows = windows;
    run.slots = options.slots;
    const Result<SimulationResult> result = simulate(plan, graph, routes, model, run);
    if (!result.ok()) return result.status().annotated(plan.algorithm);
    if (windows > 1 && result->time_ns >= best.time_ns * (1 - 1e-9)) break;
    best = {result->time_ns, windows};
  }
  return best;
}

Status check_plans(const std::vector<Plan>& plans, const ChooseOptions& options) {
  if (plans.empty()) return invalid("choice of plans: no candidate");
  for (const Plan& plan : plans) {
    const Plan& first = plans.front();
    if (plan.kind != first.kind || plan.ranks != first.ranks || plan.root != first.root) {
      return invalid(
          fmt::format("choice of plans: {} is {} of {} ranks from root {}, {} is {} of {} "
                      "from root {}",
                      first.algorithm, name(first.kind), first.ranks, first.root, plan.algorithm,
                      name(plan.kind), plan.ranks, plan.root));
    }
  }
  if (options.min_bytes < 1 || options.min_bytes > options.max_bytes || options.max_windows < 1) {
    return invalid(fmt::format("choice of plans: sizes {} to {} with up to {} windows",
                               options.min_bytes, options.max_bytes, options.max_windows));
  }
  return Status();
}

/// Appends the winner at 2^i, or extends the last band if it is the same plan.
void extend(PlanTable& table, const Plan& plan, const Trial& trial, std::uint64_t bytes,
            std::optional<RunnerUp> runner_up) {
  Plan banded = plan;
  banded.min_bytes = table.bands.empty() ? 0 : bytes;
  banded.max_bytes = std::numeric_limits<std::uint64_t>::max();
  if (!table.bands.empty()) {
    PlanBand& last = table.bands.back();
    Plan same = last.plan;
    same.min_bytes = banded.min_bytes;
    same.max_bytes = banded.max_bytes;
    if (same == banded) {
      banded.min_bytes = last.min_bytes;
      table.bands.pop_back();
    } else {
      last.max_bytes = bytes - 1;
      last.plan.max_bytes = bytes - 1;
    }
  }
  PlanBand band;
  band.min_bytes = banded.min_bytes;
  band.max_bytes = banded.max_bytes;
  band.windows = trial.windows;
  band.predicted_gbps = trial.time_ns > 0 ? static_cast<double>(bytes) / trial.time_ns : 0;
  band.runner_up = std::move(runner_up);
  band.plan = std::move(banded);
  table.bands.push_back(std::move(band));
}

/// The quickest of `plans` that is not by the winner's algorithm; `trials` are theirs.
std::optional<RunnerUp> runner_up(const std::vector<Plan>& plans, const std::vector<Trial>& trials,
                                  const Plan& winner) {
  std::optional<RunnerUp> next;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].algorithm == winner.algorithm) continue;
    if (!next || trials[i].time_ns < next->time_ns) {
      next = RunnerUp{plans[i].algorithm, trials[i].time_ns};
    }
  }
  return next;
}

Result<PlanTable> make_table(const PlanTable* current, const std::vector<Plan>& plans,
                             const Graph& graph, const Routes& routes, const CostModel& model,
                             const ChooseOptions& options) {
  if (Status s = check_plans(plans, options); !s.ok()) return s;
  PlanTable table;
  for (std::uint64_t bytes = std::bit_floor(options.min_bytes);; bytes *= 2) {
    const Plan* winner = nullptr;
    Trial best;
    std::vector<Trial> trials;
    for (const Plan& plan : plans) {
      const Result<Trial> trial = try_plan(plan, graph, routes, model, options, bytes);
      if (!trial.ok()) return trial.status();
      trials.push_back(*trial);
      if (winner == nullptr || trial->time_ns < best.time_ns * (1 - 1e-9)) {
        winner = &plan;
        best = *trial;
      }
    }
    const PlanBand* band = current == nullptr ? nullptr : current->find(bytes);
    if (band != nullptr && band->plan.ranks == graph.ranks()) {
      // A plan that can no longer run is replaced whatever the gain.
      const Result<Trial> kept = try_plan(band->plan, graph, routes, model, options, bytes);
      if (kept.ok() && !worth_replacing(kept->time_ns, best.time_ns, model.relative_error)) {
        winner = &band->plan;
        best = *kept;
      }
    }
    extend(table, *winner, best, bytes, runner_up(plans, trials, *winner));
    if (bytes > options.max_bytes / 2) break;
  }
  return table;
}

/// Whether every pair that the plan lets talk has a route; else the first that has none.
std::string missing_route(const Plan& plan, const Routes& routes) {
  if (!plan.routes.empty()) return "";
  for (int r = 0; r < plan.ranks; ++r) {
    for (const Step& step : plan.steps[at(r)]) {
      if (step.kind != StepKind::kSend && step.kind != StepKind::kSignal) continue;
      if (routes.find(r, step.peer) != nullptr) continue;
      return fmt::format("rank {} has no way to rank {} that avoids other ranks", r, step.peer);
    }
  }
  return "";
}

class Collector {
 public:
  Collector(const Routes& routes, Candidates& candidates)
      : routes_(routes), candidates_(candidates) {}

  void add(std::string_view what, const Result<Plan>& plan) {
    if (!plan.ok()) return skip(what, plan.status().text());
    if (std::string missing = missing_route(*plan, routes_); !missing.empty()) {
      return skip(what, missing);
    }
    const auto& plans = candidates_.plans;
    if (std::find(plans.begin(), plans.end(), *plan) != plans.end()) return;
    if (Status s = verify(*plan); !s.ok()) return skip(what, s.text());
    candidates_.plans.push_back(*plan);
  }
  void skip(std::string_view what, std::string_view why) {
    candidates_.skipped.push_back(fmt::format("{}: {}", what, why));
  }

 private:
  const Routes& routes_;
  Candidates& candidates_;
};

bool rings_serve(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kReduce;
}

Result<Plan> routed_rings(CollectiveKind kind, const std::vector<std::vector<int>>& orders,
                          int root, const Graph& graph, const Routes& routes, double rate) {
  Result<Plan> plan = make_ring_plan(kind, orders, root);
  if (!plan.ok()) return plan;
  if (Status s = set_routes(*plan, graph, routes, graph.gbps(rate)); !s.ok()) return s;
  return plan;
}

Status add_rings(CollectiveKind kind, const Graph& graph, const Routes& routes,
                 const CandidateOptions& options, Collector& collector) {
  const Result<RingResult> ring = best_ring(routes);
  if (!ring.ok()) {
    if (ring.status().cause() != Cause::kUnsupported) return ring.status();
    collector.skip("ring", ring.status().text());
    return Status();
  }
  collector.add("ring",
                routed_rings(kind, {ring->order}, options.root, graph, routes, ring->cost.rate));
  std::vector<int> counts;
  for (int channels = 2; channels <= options.max_channels; channels *= 2)
    counts.push_back(channels);
  if (counts.empty()) return Status();
  const Result<std::vector<RingChannels>> rounded = round_rings(routes, counts);
  if (!rounded.ok()) return rounded.status();
  double before = ring->cost.rate;
  for (const RingChannels& rings : *rounded) {
    if (rings.rate() <= before * (1 + 1e-9)) continue;
    before = rings.rate();
    collector.add(fmt::format("multi_ring of {}", rings.orders.size()),
                  routed_rings(kind, rings.orders, options.root, graph, routes, rings.rate_each));
  }
  return Status();
}

/// Parts of the exact rate to which weights are rounded. Fewer chunks are fewer messages, which is
/// worth more than the last per cents of a link for all but very large messages.
constexpr double kCoarser[] = {0.95, 0.85};

/// `round(wanted, channels)` gives the plan at a part of the exact rate (nothing: the part that is
/// usual) with so many channels on a path at most.
template <class Round>
Status add_rounded(Collector& collector, Round round) {
  const Result<TreePlan> fine = round(std::nullopt, 1);
  if (!fine.ok()) {
    if (fine.status().cause() == Cause::kInternal) return fine.status();
    collector.skip("trees", fine.status().text());
    return Status();
  }
  collector.add("trees", fine->plan);
  for (const double wanted : kCoarser) {
    const Result<TreePlan> coarse = round(wanted, 1);
    if (coarse.ok()) collector.add(fmt::format("trees rounded to {}", wanted), coarse->plan);
  }
  // Links are shared fairly among channels, not by the trees' weights. Dividing the
  // other two roundings as well brought next to nothing on 1,000 random machines.
  const Result<TreePlan> divided = round(kCoarser[0], kPathChannels);
  if (divided.ok()) collector.add("trees with channels by weight", divided->plan);
  return Status();
}

Status add_allreduce_trees(const Graph& graph, Collector& collector) {
  const Result<AllReduceTrees> trees = pack_allreduce(graph);
  return add_rounded(collector,
                     [&](std::optional<double> wanted, int channels) -> Result<TreePlan> {
                       if (!trees.ok()) return trees.status();
                       RoundingLimits limits = kPairRounding;
                       limits.wanted = wanted.value_or(limits.wanted);
                       return plan_from_pairs(graph, trees->pairs, limits, channels);
                     });
}

Status add_trees(CollectiveKind kind, const Graph& graph, const CandidateOptions& options,
                 Collector& collector) {
  if (kind == CollectiveKind::kAllReduce) {
    collector.add("double_tree", make_double_tree_plan(graph.ranks()));
    return add_allreduce_trees(graph, collector);
  }
  const int root = options.root;
  const Result<Packing> packing = kind == CollectiveKind::kAllGather ? pack_allgather(graph)
                                  : kind == CollectiveKind::kReduceScatter
                                      ? pack_reduce_scatter(graph)
                                  : kind == CollectiveKind::kBroadcast ? pack_broadcast(graph, root)
                                                                       : pack_reduce(graph, root);
  return add_rounded(collector,
                     [&](std::optional<double> wanted, int channels) -> Result<TreePlan> {
                       if (!packing.ok()) return packing.status();
                       RoundingLimits limits;
                       limits.wanted = wanted.value_or(limits.wanted);
                       return plan_from_packing(kind, graph, *packing, limits, channels);
                     });
}

/// Of machines of several hosts: they follow each other, which costs fewer steps than rings and
/// trees over all ranks. Coarser chunks have fewer messages here, too.
Status add_hierarchical(CollectiveKind kind, const Graph& graph, const CandidateOptions& options,
                        Collector& collector) {
  const auto folded = fold(graph);
  if (!folded.ok()) {
    if (folded.status().cause() == Cause::kInternal) return folded.status();
    collector.skip("hierarchical", folded.status().text());
    return Status();
  }
  for (const NodeShape shape : shapes_of(kind)) {
    double enough = kMaxGraphGbps;  // the most that any chunks reach
    for (const double part : {1.0, kCoarser[0], kCoarser[1]}) {
      const auto made = plan_folded(*folded, graph, kind, shape, options.root, part * enough);
      collector.add(name(shape), made.ok() ? Result<Plan>(made->plan) : made.status());
      if (!made.ok()) break;
      enough = std::min(enough, made->algbw);
    }
  }
  return Status();
}

}  // namespace

Result<Candidates> make_candidates(CollectiveKind kind, const Graph& graph, const Routes& routes,
                                   const CandidateOptions& options) {
  Candidates candidates;
  Collector collector(routes, candidates);
  for (const std::string_view algorithm : {"one_shot", "two_shot"}) {
    const Result<Plan> plan = make_direct_plan(kind, algorithm, graph.ranks(), options.root);
    if (!plan.ok() && plan.status().cause() != Cause::kUnsupported) return plan.status();
    collector.add(algorithm, plan);
  }
  if (rings_serve(kind)) {
    if (Status s = add_rings(kind, graph, routes, options, collector); !s.ok()) return s;
    if (Status s = add_trees(kind, graph, options, collector); !s.ok()) return s;
    if (Status s = add_hierarchical(kind, graph, options, collector); !s.ok()) return s;
  }
  if (kind == CollectiveKind::kAllToAll) {
    const Result<Exchange> exchange = pack_exchange(graph);
    if (!exchange.ok()) return exchange.status();
    Result<TreePlan> plan = plan_from_exchange(graph, *exchange);
    if (!plan.ok()) return plan.status();
    collector.add("exchange", std::move(plan->plan));
  }
  return candidates;
}

const PlanBand* PlanTable::find(std::uint64_t bytes) const {
  for (const PlanBand& band : bands) {
    if (bytes >= band.min_bytes && bytes <= band.max_bytes) return &band;
  }
  return nullptr;
}

Result<PlanTable> choose(const std::vector<Plan>& plans, const Graph& graph, const Routes& routes,
                         const CostModel& model, const ChooseOptions& options) {
  return make_table(nullptr, plans, graph, routes, model, options);
}

Result<PlanTable> rechoose(const PlanTable& current, const std::vector<Plan>& plans,
                           const Graph& graph, const Routes& routes, const CostModel& model,
                           const ChooseOptions& options) {
  return make_table(&current, plans, graph, routes, model, options);
}

bool worth_replacing(double current_ns, double candidate_ns, double relative_error) {
  return current_ns - candidate_ns > 2 * relative_error * current_ns;
}

}  // namespace topocoll
