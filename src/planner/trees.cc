#include "planner/trees.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/index.h"
#include "planner/arborescence.h"
#include "planner/bound.h"
#include "planner/split.h"

namespace topocoll {
namespace {

/// Steps in which the rate is lowered where the bound itself cannot be packed.
constexpr int kRateSteps = 256;

/// The most that all capacities may come to after scaling: flows must stay below 2^62.
constexpr Int128 kMaxScaledTotal = Int128{1} << 55;

/// Splitting looks at all pairs of nodes for every arc.
constexpr std::size_t kMaxPackedNodes = 512;

Status too_large() {
  return Status(
      Cause::kUnsupported,
      "the tree packing of this graph does not fit 64 bits: give bandwidths with fewer digits");
}

/// Divides each group's capacity among its members in proportion, in a finer unit.
Graph without_groups(const Graph& graph) {
  if (graph.groups.empty()) return graph;
  std::int64_t all = 0;
  for (const GraphLink& link : graph.links) all += link.capacity;
  const std::int64_t finer = std::clamp<std::int64_t>(kMaxTotalCapacity / all, 1, 1024);
  Graph result = graph;
  result.groups.clear();
  result.unit = *Rational::make(graph.unit.num(), Int128{graph.unit.den()} * finer);
  for (GraphLink& link : result.links) link.capacity *= finer;
  for (const SharedGroup& group : graph.groups) {
    std::int64_t sum = 0;
    for (const int l : group.links) sum += graph.links[at(l)].capacity;
    for (const int l : group.links) {
      const Int128 share = Int128{graph.links[at(l)].capacity} * group.capacity * finer / sum;
      std::int64_t& capacity = result.links[at(l)].capacity;
      capacity = std::max<std::int64_t>(1, std::min(capacity, static_cast<std::int64_t>(share)));
    }
  }
  return result;
}

/// How finely weights should divide, so that arcs at a switch can be joined evenly in whole
/// numbers.
std::int64_t even_factor(const Graph& graph) {
  constexpr std::int64_t kMost = 5040;
  std::vector<std::int64_t> degree(graph.nodes.size(), 0);
  for (const GraphLink& link : graph.links) ++degree[at(link.to)];
  std::int64_t factor = 1;
  for (std::size_t i = 0; i < degree.size(); ++i) {
    if (graph.is_rank(static_cast<int>(i)) || degree[i] < 2) continue;
    const std::int64_t next = std::lcm(factor, degree[i] - 1);
    if (next <= kMost) factor = next;
  }
  return factor;
}

class TreePacker {
 public:
  /// `roots`: how many times the rate each rank is the root of; 0: it is none.
  TreePacker(const Graph& graph, std::vector<std::int64_t> roots)
      : graph_(graph), roots_(std::move(roots)) {}

  /// `rate`: of a root of weight 1, in units.
  Result<Packing> best(Rational rate) {
    if (graph_.nodes.size() > kMaxPackedNodes) {
      return Status(Cause::kUnsupported,
                    fmt::format("trees are packed for {} nodes at most, not {}: plan one host of "
                                "each kind alone",
                                kMaxPackedNodes, graph_.nodes.size()));
    }
    Result<Packing> found = at_rate(rate);
    if (found.ok() || found.status().cause() != Cause::kUnsupported) return found;
    int low = 0;
    for (int high = kRateSteps; high - low > 1;) {
      const int middle = (low + high) / 2;
      const auto lower = rate.times(*Rational::make(middle, kRateSteps));
      if (!lower) return too_large();
      Result<Packing> next = at_rate(*lower);
      if (!next.ok()) {
        high = middle;
        continue;
      }
      low = middle;
      found = std::move(next);
    }
    return found;
  }

 private:
  /// Weights in units of 1 / scale: capacities times den, demands num, over what they have in
  /// common.
  Result<Packing> at_rate(Rational rate) {
    std::int64_t common = rate.num();
    for (const GraphLink& link : graph_.links) {
      common = static_cast<std::int64_t>(gcd(common, Int128{link.capacity} * rate.den()));
    }
    const std::int64_t factor = even_factor(graph_);
    SplitRequest request;
    Int128 total = 0;
    for (const GraphLink& link : graph_.links) {
      const Int128 capacity = Int128{link.capacity} * rate.den() / common * factor;
      total += capacity;
      if (total > kMaxScaledTotal) return too_large();
      request.capacity.push_back(static_cast<std::int64_t>(capacity));
    }
    const Int128 demand = Int128{rate.num()} / common * factor;
    if (demand * all_roots() > kMaxScaledTotal) return too_large();
    for (const std::int64_t root : roots_) {
      request.demand.push_back(static_cast<std::int64_t>(demand) * root);
    }
    const Result<std::vector<LogicalLink>> links = split_off_switches(graph_, request);
    if (!links.ok()) return links.status();
    Result<std::vector<Arborescence>> trees =
        pack_arborescences(graph_.ranks(), *links, request.demand);
    if (!trees.ok()) return trees.status();
    return packing(*links, *trees, rate, factor, common);
  }

  Result<Packing> packing(const std::vector<LogicalLink>& links,
                          const std::vector<Arborescence>& trees, Rational rate,
                          std::int64_t factor, std::int64_t common) const {
    const auto weight = Rational::make(common, Int128{rate.den()} * factor);
    const auto weight_rate = weight ? weight->times(graph_.unit) : std::nullopt;
    const auto all = rate.times(Rational(all_roots()));
    const auto algbw = all ? all->times(graph_.unit) : std::nullopt;
    if (!weight_rate || !algbw) return too_large();
    Packing result;
    result.weight_rate = *weight_rate;
    result.algbw = *algbw;
    std::int64_t divisor = 0;
    for (const Arborescence& tree : trees) divisor = std::gcd(divisor, tree.weight);
    for (const Arborescence& tree : trees) {
      Tree out{tree.root, tree.weight / divisor, {}};
      for (const int l : tree.links) {
        out.hops.push_back({links[at(l)].from, links[at(l)].to, links[at(l)].path});
      }
      result.trees.push_back(std::move(out));
    }
    const auto coarser = result.weight_rate.times(Rational(divisor));
    if (!coarser) return too_large();
    result.weight_rate = *coarser;
    return result;
  }

  [[nodiscard]] std::int64_t all_roots() const {
    return std::accumulate(roots_.begin(), roots_.end(), std::int64_t{0});
  }

  const Graph& graph_;
  std::vector<std::int64_t> roots_;
};

/// Trees of the reversed graph, turned round.
Result<Packing> turned(Result<Packing> packing) {
  if (!packing.ok()) return packing;
  packing->toward_root = true;
  for (Tree& tree : packing->trees) {
    std::reverse(tree.hops.begin(), tree.hops.end());
    for (Hop& hop : tree.hops) {
      std::swap(hop.from, hop.to);
      std::reverse(hop.path.begin(), hop.path.end());
    }
  }
  return packing;
}

class PackingCheck {
 public:
  PackingCheck(const Graph& graph, const Packing& packing) : graph_(graph), packing_(packing) {}

  Status run() const {
    for (std::size_t t = 0; t < packing_.trees.size(); ++t) {
      if (Status s = check_tree(packing_.trees[t]); !s.ok()) {
        return s.annotated(fmt::format("tree {}", t));
      }
    }
    return check_loads();
  }

 private:
  [[nodiscard]] static Status wrong(std::string text) {
    return Status(Cause::kInternal, std::move(text));
  }

  [[nodiscard]] Status check_tree(const Tree& tree) const {
    const int ranks = graph_.ranks();
    if (tree.root < 0 || tree.root >= ranks || tree.weight <= 0) {
      return wrong(fmt::format("root {}, weight {}", tree.root, tree.weight));
    }
    if (tree.hops.size() + 1 != at(ranks)) {
      return wrong(fmt::format("{} hops for {} ranks", tree.hops.size(), ranks));
    }
    std::vector<bool> has(at(ranks), false);
    has[at(tree.root)] = true;
    // Walked from the root: in the order of the hops, or against it.
    for (std::size_t i = 0; i < tree.hops.size(); ++i) {
      const bool back = packing_.toward_root;
      const Hop& hop = tree.hops[back ? tree.hops.size() - 1 - i : i];
      if (Status s = check_path(hop); !s.ok()) return s;
      const int parent = back ? hop.to : hop.from;
      const int child = back ? hop.from : hop.to;
      if (!has[at(parent)] || has[at(child)]) {
        return wrong(fmt::format("the hop from rank {} to {} is out of order", hop.from, hop.to));
      }
      has[at(child)] = true;
    }
    return Status();
  }

  [[nodiscard]] Status check_path(const Hop& hop) const {
    const int ranks = graph_.ranks();
    if (std::min(hop.from, hop.to) < 0 || std::max(hop.from, hop.to) >= ranks || hop.path.empty()) {
      return wrong(
          fmt::format("hop from rank {} to {} over {} links", hop.from, hop.to, hop.path.size()));
    }
    int node = graph_.rank_nodes[at(hop.from)];
    for (std::size_t i = 0; i < hop.path.size(); ++i) {
      const int l = hop.path[i];
      if (l < 0 || l >= static_cast<int>(graph_.links.size())) {
        return wrong(fmt::format("there is no link {}", l));
      }
      if (graph_.links[at(l)].from != node || (i > 0 && graph_.is_rank(node))) {
        return wrong(
            fmt::format("link {} does not go on from node \"{}\"", l, graph_.nodes[at(node)].id));
      }
      node = graph_.links[at(l)].to;
    }
    if (node == graph_.rank_nodes[at(hop.to)]) return Status();
    return wrong(fmt::format("the path from rank {} to {} ends elsewhere", hop.from, hop.to));
  }

  [[nodiscard]] Status check_loads() const {
    const std::vector<std::int64_t> loads = link_loads(graph_, packing_.trees);
    const auto weight = packing_.weight_rate.over(graph_.unit);
    const auto exceeds = [&](std::int64_t load, std::int64_t capacity) {
      return !weight || Int128{load} * weight->num() > Int128{capacity} * weight->den();
    };
    for (std::size_t l = 0; l < loads.size(); ++l) {
      if (exceeds(loads[l], graph_.links[l].capacity)) {
        return wrong(fmt::format("link {} carries weight {}, more than its capacity", l, loads[l]));
      }
    }
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) {
      std::int64_t sum = 0;
      for (const int l : graph_.groups[g].links) sum += loads[at(l)];
      if (exceeds(sum, graph_.groups[g].capacity)) {
        return wrong(fmt::format("group {} carries weight {}, more than its capacity", g, sum));
      }
    }
    return Status();
  }

  const Graph& graph_;
  const Packing& packing_;
};

}  // namespace

std::vector<std::int64_t> link_loads(const Graph& graph, const std::vector<Tree>& trees) {
  std::vector<std::int64_t> loads(graph.links.size(), 0);
  for (const Tree& tree : trees) {
    for (const Hop& hop : tree.hops) {
      for (const int l : hop.path) loads[at(l)] += tree.weight;
    }
  }
  return loads;
}

Result<Packing> pack_allgather(const Graph& graph) {
  const Graph plain = without_groups(graph);
  const Result<Bound> bound = allgather_bound(plain);
  if (!bound.ok()) return bound.status();
  return TreePacker(plain, std::vector<std::int64_t>(at(graph.ranks()), 1)).best(bound->rank_rate);
}

Result<Packing> pack_reduce_scatter(const Graph& graph) {
  return turned(pack_allgather(reversed(graph)));
}

Result<Packing> pack_broadcast(const Graph& graph, int root) {
  const Graph plain = without_groups(graph);
  std::vector<std::int64_t> roots(at(graph.ranks()), 0);
  roots[at(root)] = 1;
  return TreePacker(plain, std::move(roots)).best(Rational(broadcast_rate(plain, root)));
}

Result<Packing> pack_reduce(const Graph& graph, int root) {
  return turned(pack_broadcast(reversed(graph), root));
}

Result<Packing> pack_weighted(const Graph& graph, const std::vector<std::int64_t>& blocks) {
  const Graph plain = without_groups(graph);
  RankBlocks ranks{blocks, std::vector<int>(at(graph.ranks()))};
  std::iota(ranks.receivers.begin(), ranks.receivers.end(), 0);
  const Result<Bound> bound = allgather_bound(plain, ranks);
  if (!bound.ok()) return bound.status();
  return TreePacker(plain, blocks).best(bound->rank_rate);
}

Status check_packing(const Graph& graph, const Packing& packing) {
  return PackingCheck(graph, packing).run();
}

}  // namespace topocoll
