#include "planner/planning_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/index.h"
#include "planner/allreduce.h"
#include "planner/counted.h"
#include "planner/emit.h"
#include "planner/folded.h"
#include "planner/hierarchy.h"
#include "planner/ring_packing.h"
#include "planner/ring_plans.h"
#include "planner/trees.h"

namespace topocoll {
namespace {

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

}  // namespace

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
    made.reason = fmt::format("{} of trees; no weights of tree pairs give more than {:.4g} GB/s",
                              counted(made.trees.size() / 2, "pair"), pairs->upper);
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
  made.reason =
      fmt::format("{}, weights in {}; {} GB/s before rounding", counted(made.trees.size(), "tree"),
                  counted(plan->plan.chunks, "chunk"), packing->algbw.to_string());
  made.plan = std::move(plan->plan);
  return made;
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
  made.reason = fmt::format("{} of {:.4g} GB/s; no such choice gives more than {:.4g} GB/s",
                            counted(best->orders.size(), "ring"), graph.gbps(best->rate_each),
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
  made.reason = fmt::format("every pair by its shortest route; {} carries {}",
                            routes.resource_name(fullest), counted(load[at(fullest)], "block"));
  return made;
}

Result<Made> make_exchange(const Graph& graph, const Exchange& exchange) {
  auto plan = plan_from_exchange(graph, exchange);
  if (!plan.ok()) return plan.status();
  Made made{"exchange", plan->algbw, "", std::move(plan->plan), {}, {}};
  std::size_t most_hops = 0;
  for (const ExchangeWay& way : exchange.ways) most_hops = std::max(most_hops, way.way.hops.size());
  made.reason = fmt::format("{} of at most {}, shares in {}; no ways give more than {:.4g} GB/s",
                            counted(exchange.ways.size(), "way"), counted(most_hops, "hop"),
                            counted(made.plan.chunks, "chunk"), exchange.bound.to_double());
  return made;
}

Result<Made> make_hierarchical(const Graph& graph, const PlanningRequest& request, double enough) {
  auto folded = fold(graph);
  if (!folded.ok()) return folded.status();
  const NodeShape shape = shapes_of(request.kind).front();
  auto made_plan = plan_folded(*folded, graph, request.kind, shape, request.root, enough);
  if (!made_plan.ok()) return made_plan.status();
  const auto hosts = folded->split.hosts.size();
  Made made{std::string(name(shape)), made_plan->algbw, "", std::move(made_plan->plan), {}, {}, {}};
  made.reason = folded->classes.classes == 1
                    ? fmt::format("one template for {} equal hosts", hosts)
                    : fmt::format("one template for {} hosts of {} capacities, the least of them", hosts,
                                  folded->classes.classes);
  if (!folded->order.empty()) made.reason += "; in the order of the least skew";
  return made;
}

}  // namespace topocoll
