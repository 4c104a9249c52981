#include "planner/planning_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "base/index.h"
#include "planner/bound.h"

namespace topocoll {
namespace {

/// Wishes are worth a bound each; more links than this are not asked about.
constexpr std::size_t kMostWishes = 64;
constexpr std::size_t kMostWishesOfMany = 16;
constexpr int kManyRanks = 32;
constexpr int kMostWishingRanks = 128;
/// Each bound of an all_to_all is a linear program, which takes long for many ranks.
constexpr int kMostWishingExchange = 16;
/// Longer lists of ranks are told by their number.
constexpr std::size_t kMostNamed = 16;

using Parts = std::vector<int>;

/// The ranks of each part that has any, in the order of their first ranks.
std::vector<std::vector<int>> ranks_by_part(const Graph& graph, const Parts& parts) {
  std::map<int, std::size_t> place;
  std::vector<std::vector<int>> result;
  for (int r = 0; r < graph.ranks(); ++r) {
    const auto [known, is_new] = place.try_emplace(parts[at(graph.rank_nodes[at(r)])], result.size());
    if (is_new) result.emplace_back();
    result[known->second].push_back(r);
  }
  return result;
}

std::string rank_names(const Graph& graph, const std::vector<int>& ranks) {
  if (ranks.size() == 1) return graph.rank_id(ranks[0]);
  if (ranks.size() > kMostNamed) return fmt::format("{} ranks", ranks.size());
  std::string text;
  for (const int r : ranks) text += (text.empty() ? "" : ", ") + graph.rank_id(r);
  return "{" + text + "}";
}

std::string what_passes(const Graph& graph, const Parts& parts) {
  auto sides = ranks_by_part(graph, parts);
  std::stable_sort(sides.begin(), sides.end(), [](auto& a, auto& b) { return a.size() < b.size(); });
  return fmt::format("what passes between {} and the rest", rank_names(graph, sides.front()));
}

/// "what g0, g1, ... take in together"
std::string what_parts_do(const Graph& graph, const Parts& parts, bool gives_out) {
  const auto members = ranks_by_part(graph, parts);
  const char* does = gives_out ? "give out" : "take in";
  if (members.size() == at(graph.ranks())) return fmt::format("what all ranks {} together", does);
  if (members.size() > 4) return fmt::format("what {} groups of ranks {} together", members.size(), does);
  std::string text;
  for (const auto& ranks : members) text += (text.empty() ? "" : ", ") + rank_names(graph, ranks);
  return fmt::format("what {} {} together", text, does);
}

BoundOf by_cut(const Graph& graph, Rational algbw, bool reached, const std::vector<int>& cut) {
  Parts parts(graph.nodes.size(), 0);
  for (const int node : cut) parts[at(node)] = 1;
  return {algbw, reached, what_passes(graph, parts), std::move(parts)};
}

Result<BoundOf> rooted_bound(const Graph& graph, int root, bool toward_root) {
  const LeastCut least = least_cut(toward_root ? reversed(graph) : graph, root);
  const auto algbw = graph.unit.times(Rational(least.units));
  if (!algbw) return Status(Cause::kUnsupported, "the bound does not fit 64 bits");
  Parts parts(least.inside.begin(), least.inside.end());
  return BoundOf{*algbw, graph.groups.empty(), what_passes(graph, parts), std::move(parts)};
}

/// The first links that lead from one part to another, `most` at most.
std::vector<int> links_between(const Graph& graph, const Parts& parts, std::size_t most) {
  std::vector<int> links;
  for (std::size_t l = 0; l < graph.links.size() && !parts.empty() && links.size() < most; ++l) {
    if (parts[at(graph.links[l].from)] != parts[at(graph.links[l].to)])
      links.push_back(static_cast<int>(l));
  }
  return links;
}

}  // namespace

BoundOf bound_of(const Graph& graph, const Exchange& exchange) {
  if (exchange.cut.empty()) return {exchange.bound, exchange.reached, "", {}};
  return by_cut(graph, exchange.bound, exchange.reached, exchange.cut);
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
      std::string limit = bound->one_cut ? what_passes(graph, bound->parts)
                                         : what_parts_do(graph, bound->parts, bound->gives_out);
      return BoundOf{bound->upper, bound->upper == bound->reduce_scatter_allgather, std::move(limit),
                     std::move(bound->parts)};
    }
    default: {
      auto bound = kind == CollectiveKind::kAllGather ? allgather_bound(graph) : reduce_scatter_bound(graph);
      if (!bound.ok()) return bound.status();
      return by_cut(graph, bound->algbw, bound->exact, bound->cut);
    }
  }
}

bool wishes_are_asked(const Graph& graph, CollectiveKind kind) {
  return graph.ranks() <=
         (kind == CollectiveKind::kAllToAll ? kMostWishingExchange : kMostWishingRanks);
}

std::vector<PlanningWish> wishes(const Graph& graph, const BoundOf& bound, const PlanningRequest& request) {
  std::vector<PlanningWish> result;
  const std::vector<int> links = links_between(
      graph, bound.parts, graph.ranks() > kManyRanks ? kMostWishesOfMany : kMostWishes);
  const auto ask = [&](std::initializer_list<int> wider) {
    Graph better = graph;
    for (const int l : wider) better.links[at(l)].capacity *= 2;
    const auto with = bound_of(better, request.kind, request.root);
    return with.ok() && with->algbw > bound.algbw ? with->algbw : bound.algbw;
  };
  const auto wish = [&](int l, bool both_ways, const Rational& algbw) {
    const GraphLink& link = graph.links[at(l)];
    result.push_back(
        {graph.nodes[at(link.from)].id, graph.nodes[at(link.to)].id, algbw.to_double(), both_ways});
  };
  std::vector<Rational> alone;
  for (const int l : links) {
    alone.push_back(ask({l}));
    if (alone.back() > bound.algbw) wish(l, false, alone.back());
  }
  // A slot or cable that is replaced gets wider both ways, and the bound may rest on both.
  for (std::size_t i = 0; i < links.size(); ++i) {
    const auto back =
        std::find_if(links.begin() + static_cast<std::ptrdiff_t>(i), links.end(), [&](int l) {
          return graph.links[at(l)].from == graph.links[at(links[i])].to &&
                 graph.links[at(l)].to == graph.links[at(links[i])].from;
        });
    if (back == links.end()) continue;
    const Rational together = ask({links[i], *back});
    const Rational& there = alone[i];
    const Rational& here = alone[static_cast<std::size_t>(back - links.begin())];
    if (together > there && together > here) wish(links[i], true, together);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const PlanningWish& a, const PlanningWish& b) { return a.bound_gbps > b.bound_gbps; });
  return result;
}

std::vector<std::string> smaller_part(const Graph& graph, const std::vector<int>& parts) {
  std::vector<std::string> ids;
  if (parts.empty()) return ids;
  const auto members = ranks_by_part(graph, parts);
  if (members.size() != 2) return ids;
  const auto& fewer = members[1].size() < members[0].size() ? members[1] : members[0];
  const int part = parts[at(graph.rank_nodes[at(fewer[0])])];
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == part) ids.push_back(graph.nodes[i].id);
  }
  return ids;
}

}  // namespace topocoll
