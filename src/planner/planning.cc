// The door of the planner: from a Topology and a request to a plan, its bound and the reasons.
#include "topocoll/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/allreduce.h"
#include "planner/bound.h"
#include "planner/choose.h"
#include "planner/emit.h"
#include "planner/exchange.h"
#include "planner/folded.h"
#include "planner/hamilton.h"
#include "planner/hierarchy.h"
#include "planner/index.h"
#include "planner/machine.h"
#include "planner/max_flow.h"
#include "planner/ring_packing.h"
#include "planner/ring_plans.h"
#include "planner/routes.h"
#include "planner/simulator.h"
#include "planner/trees.h"

namespace topocoll {
namespace {

/// Tree plans that are no faster than this give way to rings, which have one hop to a neighbour at a time.
constexpr double kWorthTrees = 1.001;
/// Wishes are worth a bound each; more links than this are not asked about.
constexpr std::size_t kMostWishes = 64;
constexpr int kMostWishingRanks = 128;
constexpr int kMostAskedExchange = 16;

struct BoundOf {
  Rational algbw;
  bool reached = true;
  std::string bottleneck;
  std::vector<int> cut;  ///< nodes whose outgoing links limit; empty: not known
};

/// The nodes that still get more from the root than the one that gets least, and its rate.
Result<BoundOf> rooted_bound(const Graph& graph, int root, bool toward_root) {
  const Graph used = toward_root ? reversed(graph) : graph;
  MaxFlow network(static_cast<int>(used.nodes.size()));
  for (const GraphLink& l : used.links) network.add_arc(l.from, l.to, l.capacity);
  BoundOf result;
  std::int64_t least = MaxFlow::kUnlimited;
  for (int r = 0; r < used.ranks(); ++r) {
    if (r == root) continue;
    const std::int64_t flow = network.run(used.rank_nodes[at(root)], used.rank_nodes[at(r)], least);
    if (flow >= least) continue;
    least = flow;
    const std::vector<bool> side = network.source_side();
    result.cut.clear();
    for (std::size_t n = 0; n < side.size(); ++n) {
      if (side[n]) result.cut.push_back(static_cast<int>(n));
    }
  }
  // Groups lower it further; broadcast_rate() knows them.
  const std::int64_t rate = toward_root ? reduce_rate(graph, root) : broadcast_rate(graph, root);
  const auto algbw = graph.unit.times(Rational(rate));
  if (!algbw) return Status(Cause::kUnsupported, "the bound does not fit 64 bits");
  result.algbw = *algbw;
  result.reached = graph.groups.empty();
  result.bottleneck = describe_cut(graph, result.cut);
  return result;
}

BoundOf bound_of(const Graph& graph, const Exchange& exchange) {
  return {exchange.bound, exchange.reached, exchange.cut.empty() ? "" : describe_cut(graph, exchange.cut), exchange.cut};
}

Result<BoundOf> bound_of(const Graph& graph, CollectiveKind kind, int root) {
  switch (kind) {
    case CollectiveKind::kBroadcast: return rooted_bound(graph, root, false);
    case CollectiveKind::kReduce: return rooted_bound(graph, root, true);
    case CollectiveKind::kAllToAll: {
      const auto exchange = pack_exchange(graph);
      if (!exchange.ok()) return exchange.status();
      return bound_of(graph, *exchange);
    }
    case CollectiveKind::kAllReduce: {
      auto bound = allreduce_bound(graph);
      if (!bound.ok()) return bound.status();
      auto gather = allgather_bound(graph);
      if (!gather.ok()) return gather.status();
      return BoundOf{bound->upper, bound->upper == bound->reduce_scatter_allgather,
                     describe_cut(graph, gather->cut), gather->cut};
    }
    default: {
      auto bound = kind == CollectiveKind::kAllGather ? allgather_bound(graph) : reduce_scatter_bound(graph);
      if (!bound.ok()) return bound.status();
      return BoundOf{bound->algbw, bound->exact, describe_cut(graph, bound->cut), bound->cut};
    }
  }
}

/// What a ring that moves `rate` GB/s over each of its links is worth to the collective.
double ring_algbw(CollectiveKind kind, double rate, int ranks) {
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce: return rate * n / (2 * (n - 1));
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter: return rate * n / (n - 1);
    default: return rate;
  }
}

PlannedTree planned(const Graph& graph, const Tree& tree, bool toward_root, double gbps) {
  PlannedTree result{graph.rank_id(tree.root), gbps, toward_root, {}};
  for (const Hop& hop : tree.hops) {
    for (const int l : hop.path) {
      const GraphLink& link = graph.links[at(l)];
      result.edges.emplace_back(graph.nodes[at(link.from)].id, graph.nodes[at(link.to)].id);
    }
  }
  return result;
}

/// One way to do it, ready to be chosen.
struct Made {
  std::string algorithm;
  double gbps = 0;
  std::string reason;
  Plan plan;
  std::vector<PlannedTree> trees;
  std::vector<PlannedRing> rings;
  std::optional<PlannedRing> listed_ring{};
};

Result<Made> make_trees(const Graph& graph, const PlanningRequest& request) {
  Made made{"trees", 0, "", {}, {}, {}};
  if (request.kind == CollectiveKind::kAllReduce) {
    auto pairs = pack_allreduce(graph);
    if (!pairs.ok()) return pairs.status();
    auto plan = plan_from_pairs(graph, pairs->pairs);
    if (!plan.ok()) return plan.status();
    for (std::size_t p = 0; p < pairs->pairs.size(); ++p) {
      if (plan->chunks[p] == 0) continue;
      const double gbps = plan->algbw * plan->chunks[p] / plan->plan.chunks;
      made.trees.push_back(planned(graph, pairs->pairs[p].in, true, gbps));
      made.trees.push_back(planned(graph, pairs->pairs[p].out, false, gbps));
    }
    made.gbps = plan->algbw;
    made.reason = fmt::format("{} pairs of trees; no weights of tree pairs give more than {:.4g} GB/s",
                              made.trees.size() / 2, pairs->upper);
    made.plan = std::move(plan->plan);
    return made;
  }
  auto packing = request.kind == CollectiveKind::kAllGather       ? pack_allgather(graph)
                 : request.kind == CollectiveKind::kReduceScatter ? pack_reduce_scatter(graph)
                 : request.kind == CollectiveKind::kBroadcast     ? pack_broadcast(graph, request.root)
                                                                  : pack_reduce(graph, request.root);
  if (!packing.ok()) return packing.status();
  auto plan = plan_from_packing(request.kind, graph, *packing);
  if (!plan.ok()) return plan.status();
  const bool all_roots =
      request.kind == CollectiveKind::kAllGather || request.kind == CollectiveKind::kReduceScatter;
  const double per_root = plan->algbw / (all_roots ? graph.ranks() : 1);
  for (std::size_t t = 0; t < packing->trees.size(); ++t) {
    if (plan->chunks[t] == 0) continue;
    made.trees.push_back(planned(graph, packing->trees[t], packing->toward_root,
                                 per_root * plan->chunks[t] / plan->plan.chunks));
  }
  made.gbps = plan->algbw;
  made.reason = fmt::format("{} trees, weights in {} chunks; {} GB/s before rounding", made.trees.size(),
                            plan->plan.chunks, packing->algbw.to_string());
  made.plan = std::move(plan->plan);
  return made;
}

PlannedRing planned(const Graph& graph, const Routes& routes, const std::vector<int>& order, double gbps) {
  PlannedRing ring{{}, gbps, 0, 0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    ring.order.push_back(graph.rank_id(order[i]));
    const RankRoute* hop = routes.find(order[i], order[(i + 1) % order.size()]);
    if (hop == nullptr || !hop->latency_ns || !ring.turn_ns) {
      ring.slowest_hop_ns.reset();
      ring.turn_ns.reset();
      continue;
    }
    ring.slowest_hop_ns = std::max(*ring.slowest_hop_ns, *hop->latency_ns);
    *ring.turn_ns += *hop->latency_ns;
  }
  return ring;
}

Result<Made> make_rings(const Graph& graph, const Routes& routes, const PlanningRequest& request) {
  // One ring too much is no gain: the fewest channels that reach the best rate.
  auto best = round_rings(routes, request.most_channels);
  if (!best.ok()) return best.status();
  for (int channels = 1; channels < request.most_channels; channels *= 2) {
    auto fewer = round_rings(routes, channels);
    if (!fewer.ok()) return fewer.status();
    if (fewer->rate() * kWorthTrees < best->rate()) continue;
    best = std::move(fewer);
    break;
  }
  auto plan = make_ring_plan(request.kind, best->orders, request.root);
  if (!plan.ok()) return plan.status();
  if (Status s = set_routes(*plan, graph, routes, graph.gbps(best->rate_each)); !s.ok()) return s;
  Made made{best->orders.size() == 1 ? "ring" : "rings", 0, "", {}, {}, {}};
  made.gbps = ring_algbw(request.kind, graph.gbps(best->rate()), graph.ranks());
  made.reason = fmt::format("{} ring{} of {:.4g} GB/s; no such choice gives more than {:.4g} GB/s", best->orders.size(),
                            best->orders.size() == 1 ? "" : "s", graph.gbps(best->rate_each),
                            ring_algbw(request.kind, graph.gbps(best->upper_bound), graph.ranks()));
  for (const std::vector<int>& order : best->orders) {
    made.rings.push_back(planned(graph, routes, order, graph.gbps(best->rate_each)));
  }
  if (best->orders.size() == 1) {
    std::vector<int> listed(at(graph.ranks()));
    std::iota(listed.begin(), listed.end(), 0);
    const double rate = routes.rate(listed);
    if (rate > 0 && listed != best->orders[0]) {
      made.listed_ring = planned(graph, routes, listed, graph.gbps(rate));
    }
  }
  made.plan = std::move(*plan);
  return made;
}

/// Every rank sends to every other along one route.
Result<Made> make_direct_exchange(const Graph& graph, const Routes& routes) {
  std::vector<double> load(routes.capacities().size(), 0);
  for (int a = 0; a < graph.ranks(); ++a) {
    for (int b = 0; b < graph.ranks(); ++b) {
      if (a == b) continue;
      const RankRoute* route = routes.find(a, b);
      if (route == nullptr) {
        return Status(Cause::kUnsupported, fmt::format("{} reaches {} through other ranks only", graph.rank_id(a),
                                                       graph.rank_id(b)));
      }
      for (const Load& l : route->loads) load[at(l.resource)] += l.load;
    }
  }
  int fullest = 0;
  for (int r = 1; r < routes.resources(); ++r) {
    if (load[at(r)] * routes.capacities()[at(fullest)] > load[at(fullest)] * routes.capacities()[at(r)]) fullest = r;
  }
  const double each = graph.gbps(routes.capacities()[at(fullest)] / load[at(fullest)]);
  auto plan = make_direct_plan(CollectiveKind::kAllToAll, "one_shot", graph.ranks(), 0);
  if (!plan.ok()) return plan.status();
  if (Status s = set_routes(*plan, graph, routes, each); !s.ok()) return s;
  Made made{"direct", each * graph.ranks(), "", std::move(*plan), {}, {}};
  made.reason = fmt::format("every pair by its shortest route; {} carries {:g} blocks", routes.resource_name(fullest),
                            load[at(fullest)]);
  return made;
}

Result<Made> make_exchange(const Graph& graph, const Exchange& exchange) {
  auto plan = plan_from_exchange(graph, exchange);
  if (!plan.ok()) return plan.status();
  Made made{"exchange", plan->algbw, "", std::move(plan->plan), {}, {}};
  std::size_t most_hops = 0;
  for (const ExchangeWay& way : exchange.ways) most_hops = std::max(most_hops, way.way.hops.size());
  made.reason = fmt::format("{} ways of at most {} hops, shares in {} chunks; no ways give more than {:.4g} GB/s",
                            exchange.ways.size(), most_hops, made.plan.chunks, exchange.bound.to_double());
  return made;
}

/// Bounds with one link of the bottleneck twice as wide. Each bound of an all_to_all is a linear program,
/// which takes long for many ranks.
std::vector<PlanningWish> wishes(const Graph& graph, const BoundOf& bound, const PlanningRequest& request) {
  std::vector<PlanningWish> result;
  if (request.kind == CollectiveKind::kAllToAll && graph.ranks() > kMostAskedExchange) return result;
  std::vector<bool> inside(graph.nodes.size(), false);
  for (const int n : bound.cut) inside[at(n)] = true;
  for (std::size_t l = 0; l < graph.links.size() && result.size() < kMostWishes; ++l) {
    const GraphLink& link = graph.links[l];
    if (inside[at(link.from)] == inside[at(link.to)]) continue;
    Graph better = graph;
    better.links[l].capacity *= 2;
    const auto with = bound_of(better, request.kind, request.root);
    if (!with.ok() || !(with->algbw > bound.algbw)) continue;
    result.push_back({graph.nodes[at(link.from)].id, graph.nodes[at(link.to)].id, with->algbw.to_double()});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const PlanningWish& a, const PlanningWish& b) { return a.bound_gbps > b.bound_gbps; });
  return result;
}

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

/// Of what a cut parts, the side with fewer ranks.
std::vector<std::string> smaller_side(const Graph& graph, const std::vector<int>& cut) {
  std::vector<bool> inside(graph.nodes.size(), false);
  for (const int node : cut) inside[at(node)] = true;
  const auto ranks = std::count_if(graph.rank_nodes.begin(), graph.rank_nodes.end(),
                                   [&](int node) { return inside[at(node)]; });
  if (2 * ranks > graph.ranks()) inside.flip();
  std::vector<std::string> ids;
  for (std::size_t i = 0; !cut.empty() && i < inside.size(); ++i) {
    if (inside[i]) ids.push_back(graph.nodes[i].id);
  }
  return ids;
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

/// One template for all hosts, where they are built alike.
Result<Made> make_hierarchical(const Graph& graph, const PlanningRequest& request, double enough) {
  auto folded = fold(graph);
  if (!folded.ok()) return folded.status();
  const NodeShape shape = has_root(request.kind) ? NodeShape::kChain : NodeShape::kRing;
  const int root = has_root(request.kind) ? cluster_rank(*folded, graph, request.root) : 0;
  auto plan = plan_hierarchy(folded->cluster, {request.kind, shape, root, enough, folded->order});
  if (!plan.ok()) return plan.status();
  auto unfolded = unfold(*folded, graph, *plan);
  if (!unfolded.ok()) return unfolded.status();
  const auto hosts = folded->split.hosts.size();
  Made made{std::string(name(shape)), plan->algbw()->to_double(), "", std::move(*unfolded), {}, {}, {}};
  made.reason = folded->classes.classes == 1
                    ? fmt::format("one template for {} equal hosts", hosts)
                    : fmt::format("one template for {} hosts of {} capacities, the least of them", hosts,
                                  folded->classes.classes);
  if (!folded->order.empty()) made.reason += "; in the order of the least skew";
  return made;
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
  report.cut = smaller_side(graph, bound->cut);
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
  report.plan = std::move(best->plan);
  report.plan.topology_fingerprint = report.fingerprint;
  report.trees = std::move(best->trees);
  report.rings = std::move(best->rings);
  report.listed_ring = std::move(best->listed_ring);
  report.wishes_asked = graph.ranks() <= kMostWishingRanks;
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
              run->bottleneck < 0 ? "" : routes.resource_name(run->bottleneck),
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
    const std::uint64_t shown = std::min(band.max_bytes, ChooseOptions{}.max_bytes);
    auto predicted = simulate_plan(topology, band.plan, {shown});
    if (!predicted.ok()) return predicted.status();
    band.plan.topology_fingerprint = fingerprint;
    choices.push_back({band.min_bytes, band.max_bytes, std::move(predicted->front()), std::move(band.plan)});
  }
  return choices;
}

}  // namespace topocoll
