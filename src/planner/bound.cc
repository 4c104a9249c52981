#include "planner/bound.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "base/index.h"
#include "planner/max_flow.h"

namespace topocoll {
namespace {

Status too_large() {
  return Status(
      Cause::kUnsupported,
      "the bound of this graph does not fit 64-bit fractions: give bandwidths with fewer digits");
}

/// B / count in units.
struct Ratio {
  std::int64_t capacity = 0;
  std::int64_t count = 1;
  [[nodiscard]] bool below(const Ratio& other) const {
    return Int128{capacity} * other.count < Int128{other.capacity} * count;
  }
};

int ranks_inside(const Graph& graph, const std::vector<bool>& inside) {
  return static_cast<int>(std::count_if(graph.rank_nodes.begin(), graph.rank_nodes.end(),
                                        [&](int node) { return inside[at(node)]; }));
}

RankBlocks one_block_each(const Graph& graph) {
  RankBlocks ranks{std::vector<std::int64_t>(at(graph.ranks()), 1),
                   std::vector<int>(at(graph.ranks()))};
  std::iota(ranks.receivers.begin(), ranks.receivers.end(), 0);
  return ranks;
}

std::int64_t all_blocks(const RankBlocks& ranks) {
  return std::accumulate(ranks.blocks.begin(), ranks.blocks.end(), std::int64_t{0});
}

std::int64_t blocks_inside(const Graph& graph, const RankBlocks& ranks,
                           const std::vector<bool>& inside) {
  std::int64_t count = 0;
  for (int r = 0; r < graph.ranks(); ++r) {
    if (inside[at(graph.rank_nodes[at(r)])]) count += ranks.blocks[at(r)];
  }
  return count;
}

std::vector<int> members(const std::vector<bool>& inside) {
  std::vector<int> result;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (inside[i]) result.push_back(static_cast<int>(i));
  }
  return result;
}

/// The links of a graph as a flow network, with one node more for a source that feeds the ranks.
MaxFlow network_of(const Graph& graph, std::int64_t scale) {
  MaxFlow network(static_cast<int>(graph.nodes.size()) + 1);
  for (const GraphLink& link : graph.links) {
    network.add_arc(link.from, link.to, link.capacity * scale);
  }
  return network;
}

/// Dinkelbach's method on max blocks(S) / B+(S): a rate is right if all blocks flow at it from the
/// source to every receiver; if not, the minimum cut gives a smaller one. A rank that is served at
/// one rate is served at any smaller one, so one pass over the receivers is enough.
class GatherBound {
 public:
  GatherBound(const Graph& graph, const RankBlocks& ranks)
      : graph_(graph), ranks_(ranks), all_(all_blocks(ranks)) {}

  void run() {
    consider_single_ranks();
    for (const int r : ranks_.receivers) {
      while (!cut_.empty() && !serves(graph_.rank_nodes[at(r)])) {
      }
    }
  }
  [[nodiscard]] Ratio best() const { return best_; }
  [[nodiscard]] const std::vector<bool>& cut() const { return cut_; }

 private:
  void consider_single_ranks() {
    std::vector<std::int64_t> entering(graph_.nodes.size(), 0);
    for (const GraphLink& link : graph_.links) entering[at(link.to)] += link.capacity;
    for (const int r : ranks_.receivers) {
      const int node = graph_.rank_nodes[at(r)];
      const Ratio ratio{entering[at(node)], all_ - ranks_.blocks[at(r)]};
      if (ratio.count == 0 || (!cut_.empty() && !ratio.below(best_))) continue;
      best_ = ratio;
      cut_.assign(graph_.nodes.size(), true);
      cut_[at(node)] = false;
    }
    if (!cut_.empty()) set_rate();
  }

  void set_rate() {
    const std::int64_t common = std::gcd(best_.capacity, best_.count);
    demand_ = best_.capacity / common;
    network_ = network_of(graph_, best_.count / common);
    for (int r = 0; r < graph_.ranks(); ++r) {
      if (ranks_.blocks[at(r)] == 0) continue;
      network_->add_arc(static_cast<int>(graph_.nodes.size()), graph_.rank_nodes[at(r)],
                        demand_ * ranks_.blocks[at(r)]);
    }
  }

  /// True if all blocks at the present rate reach `node`; else lowers the rate.
  bool serves(int node) {
    const int source = static_cast<int>(graph_.nodes.size());
    const std::int64_t wanted = demand_ * all_;
    if (network_->run(source, node, wanted) == wanted) return true;
    cut_ = network_->source_side();
    cut_.pop_back();
    best_ = {0, blocks_inside(graph_, ranks_, cut_)};
    for (const GraphLink& link : graph_.links) {
      if (cut_[at(link.from)] && !cut_[at(link.to)]) best_.capacity += link.capacity;
    }
    set_rate();
    return false;
  }

  const Graph& graph_;
  const RankBlocks& ranks_;
  std::int64_t all_;
  std::optional<MaxFlow> network_;
  std::int64_t demand_ = 0;
  Ratio best_;
  std::vector<bool> cut_;
};

/// Parts that hang together by links of `threshold` and more, as a part number for each node.
std::vector<int> components(const Graph& graph, std::int64_t threshold) {
  std::vector<int> parent(graph.nodes.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int node) {
    while (parent[at(node)] != node) node = parent[at(node)] = parent[at(parent[at(node)])];
    return node;
  };
  for (const GraphLink& link : graph.links) {
    const int a = root(link.from);
    const int b = root(link.to);
    if (link.capacity >= threshold && a != b) parent[at(std::max(a, b))] = std::min(a, b);
  }
  for (int i = 0; i < static_cast<int>(parent.size()); ++i) parent[at(i)] = root(i);
  return parent;
}

/// With shared groups: looks at more cuts, with the groups counted. Every cut gives a valid bound,
/// one way or with both directions together.
void tighten_by_groups(const Graph& graph, const RankBlocks& ranks, Ratio& best,
                       std::vector<bool>& cut) {
  const std::int64_t all = all_blocks(ranks);
  const auto consider = [&](const std::vector<bool>& inside) {
    const std::int64_t count = blocks_inside(graph, ranks, inside);
    if (count == 0 || count == all) return;
    std::vector<bool> outside = inside;
    outside.flip();
    const Ratio candidates[] = {
        {leaving_capacity(graph, inside), count},
        {leaving_capacity(graph, outside), all - count},
        {crossing_capacity(graph, inside), all},
    };
    for (const Ratio& ratio : candidates) {
      if (!ratio.below(best)) continue;
      best = ratio;
      cut = &ratio == &candidates[1] ? outside : inside;
    }
  };
  consider(std::vector<bool>(cut));
  for (const std::vector<int>& parts : partitions(graph)) {
    for (const std::vector<bool>& inside : parts_with_ranks(graph, parts)) consider(inside);
  }
}

/// Capacity of the links that `counts` accepts; each link counts in its first group.
template <class Counts>
std::int64_t grouped_capacity(const Graph& graph, const Counts& counts) {
  std::vector<bool> counted(graph.links.size(), false);
  std::int64_t total = 0;
  for (const SharedGroup& group : graph.groups) {
    std::int64_t sum = 0;
    for (const int l : group.links) {
      if (counted[at(l)] || !counts(graph.links[at(l)])) continue;
      counted[at(l)] = true;
      sum += graph.links[at(l)].capacity;
    }
    total += std::min(sum, group.capacity);
  }
  for (std::size_t l = 0; l < graph.links.size(); ++l) {
    if (!counted[l] && counts(graph.links[l])) total += graph.links[l].capacity;
  }
  return total;
}

/// What the parts of a partition take in together, over the messages that they must take in.
Ratio partition_ratio(const Graph& graph, const std::vector<int>& parts) {
  std::vector<std::vector<bool>> sets = parts_with_ranks(graph, parts);
  std::int64_t sum = 0;
  for (std::vector<bool>& inside : sets) {
    inside.flip();
    sum += leaving_capacity(graph, inside);
  }
  return {sum, 2 * (static_cast<std::int64_t>(sets.size()) - 1)};
}

struct AllReduceLimit {
  Ratio ratio;
  std::vector<int> parts;
  bool one_cut = false;
  bool gives_out = false;
};

AllReduceLimit allreduce_limit(const Graph& graph) {
  const Graph turned = reversed(graph);
  const LeastCut out = least_cut(graph, 0);
  const LeastCut back = least_cut(turned, 0);
  const LeastCut& least = back.units < out.units ? back : out;
  AllReduceLimit best{{least.units, 1}, {least.inside.begin(), least.inside.end()}, true, false};
  for (const Graph* g : {&graph, &turned}) {
    for (std::vector<int>& parts : partitions(*g)) {
      const Ratio ratio = partition_ratio(*g, parts);
      if (ratio.count == 0 || !ratio.below(best.ratio)) continue;
      best = {ratio, std::move(parts), false, g == &turned};
    }
  }
  return best;
}

}  // namespace

std::vector<std::vector<int>> partitions(const Graph& graph) {
  constexpr std::size_t kMost = 32;
  std::vector<std::int64_t> thresholds;
  for (const GraphLink& link : graph.links) thresholds.push_back(link.capacity);
  std::sort(thresholds.begin(), thresholds.end(), std::greater<>());
  thresholds.erase(std::unique(thresholds.begin(), thresholds.end()), thresholds.end());
  std::vector<std::vector<int>> result(1, std::vector<int>(graph.nodes.size()));
  std::iota(result[0].begin(), result[0].end(), 0);
  const std::size_t step = thresholds.size() / kMost + 1;
  for (std::size_t i = 0; i < thresholds.size(); i += step) {
    std::vector<int> parts = components(graph, thresholds[i]);
    if (parts != result.back()) result.push_back(std::move(parts));
  }
  return result;
}

std::vector<std::vector<bool>> parts_with_ranks(const Graph& graph, const std::vector<int>& parts) {
  std::vector<std::vector<bool>> result;
  for (int p = 0; p < static_cast<int>(parts.size()); ++p) {
    std::vector<bool> inside(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) inside[i] = parts[i] == p;
    if (ranks_inside(graph, inside) > 0) result.push_back(std::move(inside));
  }
  return result;
}

std::int64_t leaving_capacity(const Graph& graph, const std::vector<bool>& inside) {
  return grouped_capacity(
      graph, [&](const GraphLink& link) { return inside[at(link.from)] && !inside[at(link.to)]; });
}

std::int64_t crossing_capacity(const Graph& graph, const std::vector<bool>& inside) {
  return grouped_capacity(
      graph, [&](const GraphLink& link) { return inside[at(link.from)] != inside[at(link.to)]; });
}

Graph reversed(const Graph& graph) {
  Graph result = graph;
  for (GraphLink& link : result.links) std::swap(link.from, link.to);
  return result;
}

Result<Bound> allgather_bound(const Graph& graph) {
  return allgather_bound(graph, one_block_each(graph));
}

Result<Bound> allgather_bound(const Graph& graph, const RankBlocks& ranks) {
  GatherBound gather(graph, ranks);
  gather.run();
  Ratio best = gather.best();
  std::vector<bool> cut = gather.cut();
  if (cut.empty()) return Status(Cause::kInvalidArgument, "no receiver has anything to receive");
  if (!graph.groups.empty()) tighten_by_groups(graph, ranks, best, cut);
  const auto rate = Rational::make(best.capacity, best.count);
  const auto units = Rational::make(Int128{best.capacity} * all_blocks(ranks), best.count);
  const auto algbw = units ? units->times(graph.unit) : std::nullopt;
  if (!rate || !algbw) return too_large();
  return Bound{*algbw, *rate, graph.groups.empty(), members(cut)};
}

Result<Bound> reduce_scatter_bound(const Graph& graph) { return allgather_bound(reversed(graph)); }

LeastCut least_cut(const Graph& graph, int root) {
  MaxFlow network = network_of(graph, 1);
  const int source = graph.rank_nodes[at(root)];
  LeastCut least{MaxFlow::kUnlimited, {}};
  for (const int node : graph.rank_nodes) {
    if (node == source) continue;
    const std::int64_t flow = network.run(source, node, least.units);
    if (flow >= least.units) continue;
    least = {flow, network.source_side()};
    least.inside.resize(graph.nodes.size());
  }
  return least;
}

std::int64_t broadcast_rate(const Graph& graph, int root) { return least_cut(graph, root).units; }

Result<AllReduceBound> allreduce_bound(const Graph& graph) {
  const Result<Bound> gather = allgather_bound(graph);
  if (!gather.ok()) return gather.status();
  const Result<Bound> scatter = reduce_scatter_bound(graph);
  if (!scatter.ok()) return scatter.status();
  AllReduceLimit limit = allreduce_limit(graph);
  const auto upper = Rational::make(limit.ratio.capacity, limit.ratio.count)->times(graph.unit);
  // Two phases, one after the other: 1 / (1/a + 1/b).
  const auto product = gather->algbw.times(scatter->algbw);
  const auto sum = gather->algbw.plus(scatter->algbw);
  const auto both = product && sum ? product->over(*sum) : std::nullopt;
  if (!upper || !both) return too_large();
  return AllReduceBound{*upper, *both, std::move(limit.parts), limit.one_cut, limit.gives_out};
}

}  // namespace topocoll
