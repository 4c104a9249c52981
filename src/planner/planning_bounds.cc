#include "planner/planning_bounds.h"

#include <algorithm>

#include "planner/bound.h"
#include "planner/index.h"
#include "planner/max_flow.h"

namespace topocoll {
namespace {

/// Wishes are worth a bound each; more links than this are not asked about.
constexpr std::size_t kMostWishes = 64;
constexpr int kMostAskedExchange = 16;

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

}  // namespace

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

std::vector<PlanningWish> wishes(const Graph& graph, const BoundOf& bound, const PlanningRequest& request) {
  std::vector<PlanningWish> result;
  // Each bound of an all_to_all is a linear program, which takes long for many ranks.
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

}  // namespace topocoll
