#include "planner/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/index.h"
#include "planner/exchange_steps.h"
#include "planner/stages.h"
#include "planner/steps.h"

namespace topocoll {
namespace {

/// Bytes a second that links and then groups can carry, in GB/s.
std::vector<double> capacities(const Graph& graph) {
  std::vector<double> result;
  for (const GraphLink& link : graph.links) {
    result.push_back(graph.gbps(static_cast<double>(link.capacity)));
  }
  for (const SharedGroup& group : graph.groups) {
    result.push_back(graph.gbps(static_cast<double>(group.capacity)));
  }
  return result;
}

void add_loads(const Graph& graph, const Tree& tree, std::map<int, int>& uses) {
  for (const Hop& hop : tree.hops) {
    for (const int l : hop.path) ++uses[l];
  }
  const int links = static_cast<int>(graph.links.size());
  for (std::size_t g = 0; g < graph.groups.size(); ++g) {
    for (const int l : graph.groups[g].links) {
      const auto found = uses.find(l);
      if (found != uses.end()) uses[links + static_cast<int>(g)] += found->second;
    }
  }
}

std::vector<std::pair<int, int>> loads_of(const Graph& graph,
                                          const std::vector<const Tree*>& trees) {
  std::map<int, int> total;
  for (const Tree* tree : trees) {
    std::map<int, int> uses;
    add_loads(graph, *tree, uses);
    for (const auto& [resource, count] : uses) total[resource] += count;
  }
  return {total.begin(), total.end()};
}

Status check_size(const Plan& plan, std::size_t chunks) {
  const auto cells = static_cast<std::uint64_t>(plan.ranks) * chunks;
  if (cells * 2 <= kMaxPlanCells) return Status();
  return Status(
      Cause::kUnsupported,
      fmt::format("a flat tree plan of {} ranks would have {} chunks on each", plan.ranks, chunks));
}

Plan header(CollectiveKind kind, std::string algorithm, const Graph& graph, int root, int chunks) {
  Plan plan;
  plan.kind = kind;
  plan.algorithm = std::move(algorithm);
  plan.ranks = graph.ranks();
  plan.root = has_root(kind) ? root : 0;
  plan.chunks = chunks;
  return plan;
}

}  // namespace

Result<TreePlan> plan_from_packing(CollectiveKind kind, const Graph& graph, const Packing& packing,
                                   const RoundingLimits& limits, int path_channels) {
  const bool toward = kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kReduce;
  const bool all_roots =
      kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllGather;
  if ((!toward && !all_roots && kind != CollectiveKind::kBroadcast) ||
      toward != packing.toward_root || packing.trees.empty()) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("this packing of trees serves no {}", name(kind)));
  }
  std::vector<Share> shares;
  for (const Tree& tree : packing.trees) {
    shares.push_back(
        {all_roots ? tree.root : 0, static_cast<double>(tree.weight), loads_of(graph, {&tree})});
  }
  const Rounding rounding = round_shares(shares, capacities(graph), limits);
  TreePlan result{header(kind, "trees", graph, packing.trees[0].root, rounding.chunks), 0};
  Plan& plan = result.plan;
  if (Status s = check_size(plan, at(rounding.chunks) * at(all_roots ? plan.ranks : 1)); !s.ok()) {
    return s;
  }
  std::vector<ChunkTrees> chunks;
  std::vector<int> next(at(plan.ranks), 0);
  for (std::size_t t = 0; t < packing.trees.size(); ++t) {
    const Tree& tree = packing.trees[t];
    for (int k = 0; k < rounding.count[t]; ++k) {
      const int piece = next[at(tree.root)]++;
      const int block = all_roots ? tree.root * rounding.chunks + piece : piece;
      ChunkTrees chunk;
      (toward ? chunk.in : chunk.out) = &tree;
      chunk.input = toward ? block : piece;
      chunk.root_output = toward ? piece : block;
      chunk.output = block;
      chunks.push_back(chunk);
    }
  }
  StageWriter writer(plan, chunks, path_channels);
  writer.write();
  result.chunks = rounding.count;
  result.algbw = rounding.rate * (all_roots ? plan.ranks : 1);
  plan.routes = writer.channels().routes(graph, rounding.rate / rounding.chunks);
  return result;
}

Result<TreePlan> plan_from_pairs(const Graph& graph, const std::vector<TreePair>& pairs,
                                 const RoundingLimits& limits, int path_channels) {
  if (pairs.empty()) return Status(Cause::kInvalidArgument, "no pair of trees is given");
  std::vector<Share> shares;
  for (const TreePair& pair : pairs) {
    shares.push_back({0, pair.weight, loads_of(graph, {&pair.in, &pair.out})});
  }
  const Rounding rounding = round_shares(shares, capacities(graph), limits);
  TreePlan result{header(CollectiveKind::kAllReduce, "trees", graph, 0, rounding.chunks),
                  rounding.rate, rounding.count};
  std::vector<ChunkTrees> chunks;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    for (int k = 0; k < rounding.count[p]; ++k) {
      const int c = static_cast<int>(chunks.size());
      chunks.push_back({&pairs[p].in, &pairs[p].out, c, c, c});
    }
  }
  StageWriter writer(result.plan, chunks, path_channels);
  writer.write();
  result.plan.routes = writer.channels().routes(graph, rounding.rate / rounding.chunks);
  return result;
}

Result<TreePlan> plan_from_exchange(const Graph& graph, const Exchange& exchange,
                                    const RoundingLimits& limits) {
  std::map<std::pair<int, int>, int> pairs;
  std::vector<Share> shares;
  for (const ExchangeWay& way : exchange.ways) {
    const auto [pair, added] =
        pairs.try_emplace({way.way.root, way.to}, static_cast<int>(pairs.size()));
    shares.push_back({pair->second, way.share, loads_of(graph, {&way.way})});
  }
  const Rounding rounding = round_shares(shares, capacities(graph), limits);
  TreePlan result{header(CollectiveKind::kAllToAll, "exchange", graph, 0, rounding.chunks),
                  rounding.rate * graph.ranks(), rounding.count};
  if (Status s = check_size(result.plan, at(rounding.chunks) * at(result.plan.ranks)); !s.ok()) return s;
  std::vector<ExchangePiece> pieces;
  std::vector<int> next(pairs.size(), 0);
  for (std::size_t w = 0; w < exchange.ways.size(); ++w) {
    const ExchangeWay& way = exchange.ways[w];
    for (int k = 0; k < rounding.count[w]; ++k) {
      pieces.push_back({&way.way, way.to, next[at(shares[w].group)]++});
    }
  }
  const ChannelTable channels = write_exchange(result.plan, std::move(pieces));
  result.plan.routes = channels.routes(graph, rounding.rate / rounding.chunks);
  return result;
}

namespace {

/// Links between two nodes count together: a route names nodes, not links.
class RouteCheck {
 public:
  explicit RouteCheck(const Graph& graph) : graph_(graph), load_(graph.links.size(), 0) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      index_[graph.nodes[i].id] = static_cast<int>(i);
    for (std::size_t l = 0; l < graph.links.size(); ++l) {
      between_[{graph.links[l].from, graph.links[l].to}].push_back(static_cast<int>(l));
    }
  }

  /// Empty, or what is wrong with the route.
  std::string add(const Route& route) {
    if (route.path.front() != graph_.rank_id(route.from) ||
        route.path.back() != graph_.rank_id(route.to)) {
      return fmt::format("the path does not lead from \"{}\" to \"{}\"", graph_.rank_id(route.from),
                         graph_.rank_id(route.to));
    }
    for (std::size_t i = 1; i < route.path.size(); ++i) {
      const auto from = index_.find(route.path[i - 1]);
      const auto to = index_.find(route.path[i]);
      const auto links = from == index_.end() || to == index_.end()
                             ? between_.end()
                             : between_.find({from->second, to->second});
      if (links == between_.end()) {
        return fmt::format("no link leads from \"{}\" to \"{}\"", route.path[i - 1], route.path[i]);
      }
      if (i > 1 && graph_.is_rank(from->second)) {
        return fmt::format("it passes \"{}\", which is no switch", route.path[i - 1]);
      }
      double total = 0;
      for (const int l : links->second) total += capacity(l);
      for (const int l : links->second) load_[at(l)] += route.gbps * capacity(l) / total;
    }
    return "";
  }

  /// Empty, or which link or group is too slow.
  [[nodiscard]] std::string overload() const {
    constexpr double kRoundingErrors = 1 + 1e-9;
    for (std::size_t l = 0; l < load_.size(); ++l) {
      const GraphLink& link = graph_.links[l];
      if (load_[l] <= capacity(static_cast<int>(l)) * kRoundingErrors) continue;
      return fmt::format("the link from \"{}\" to \"{}\" has {} GB/s and is to carry {}",
                         graph_.nodes[at(link.from)].id, graph_.nodes[at(link.to)].id,
                         capacity(static_cast<int>(l)), load_[l]);
    }
    for (const SharedGroup& group : graph_.groups) {
      double sum = 0;
      for (const int l : group.links) sum += load_[at(l)];
      const double has = graph_.gbps(static_cast<double>(group.capacity));
      if (sum > has * kRoundingErrors) {
        return fmt::format("the links of \"{}\" have {} GB/s together and are to carry {}",
                           group.name, has, sum);
      }
    }
    return "";
  }

 private:
  [[nodiscard]] double capacity(int link) const {
    return graph_.gbps(static_cast<double>(graph_.links[at(link)].capacity));
  }

  const Graph& graph_;
  std::vector<double> load_;
  std::map<std::string, int> index_;
  std::map<std::pair<int, int>, std::vector<int>> between_;
};

}  // namespace

Status check_routes(const Plan& plan, const Graph& graph) {
  if (plan.ranks != graph.ranks()) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("plan: {} ranks, but the graph has {}", plan.ranks, graph.ranks()));
  }
  RouteCheck check(graph);
  for (std::size_t i = 0; i < plan.routes.size(); ++i) {
    if (std::string wrong = check.add(plan.routes[i]); !wrong.empty()) {
      return Status(Cause::kInvalidArgument, fmt::format("plan: routes[{}]: {}", i, wrong));
    }
  }
  if (std::string wrong = check.overload(); !wrong.empty()) {
    return Status(Cause::kInvalidArgument, "plan: routes: " + wrong);
  }
  return Status();
}

}  // namespace topocoll
