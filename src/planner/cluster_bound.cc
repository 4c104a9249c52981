#include "planner/cluster_bound.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/index.h"
#include "planner/max_flow.h"

namespace topocoll {
namespace {

Status too_large() {
  return Status(
      Cause::kUnsupported,
      "the bound of this cluster does not fit 64-bit fractions: give bandwidths with fewer digits");
}

/// A node of each sort: one below a full leaf, one below the last leaf if that is not full.
std::vector<int> representatives(const Cluster& cluster) {
  std::vector<int> nodes{0};
  if (cluster.below(cluster.leaves() - 1) != cluster.nodes_per_leaf)
    nodes.push_back(cluster.nodes - 1);
  return nodes;
}

/// A node of each sort as seen from `node`, itself first: below its own leaf, below others.
std::vector<int> seen_from(const Cluster& cluster, int node) {
  std::vector<int> nodes{node};
  const int leaf = cluster.leaf_of(node);
  if (cluster.below(leaf) > 1)
    nodes.push_back(node == leaf * cluster.nodes_per_leaf ? node + 1 : node - 1);
  std::vector<int> sizes;
  for (int f = cluster.leaves() - 1; f >= 0; --f) {
    if (f == leaf || std::find(sizes.begin(), sizes.end(), cluster.below(f)) != sizes.end())
      continue;
    sizes.push_back(cluster.below(f));
    nodes.push_back(f * cluster.nodes_per_leaf);
  }
  return nodes;
}

/// What lies outside of the cut, in words. If all but one node does, it is the root's that is
/// inside.
std::string outside_of(const Cluster& cluster, const Quotient& q, const std::vector<bool>& inside) {
  std::vector<std::string> gpus;
  std::int64_t others = 0;
  for (int r = 0; r < q.graph.ranks(); ++r) {
    if (inside[at(q.graph.rank_nodes[at(r)])]) continue;
    if (r < cluster.gpus()) {
      gpus.push_back(cluster.cell.rank_id(r));
    } else {
      others += q.ranks.blocks[at(r)];
    }
  }
  const bool whole = static_cast<int>(gpus.size()) == cluster.gpus();
  if (static_cast<std::int64_t>(gpus.size()) + others == cluster.ranks() - cluster.gpus())
    return "the root's node";
  if (others == 0)
    return whole ? "one node" : fmt::format("{{{}}} of one node", fmt::join(gpus, ", "));
  if (whole && others == std::int64_t{cluster.below(0) - 1} * cluster.gpus())
    return "the nodes of one leaf";
  return fmt::format("{} of the {} GPUs", static_cast<std::int64_t>(gpus.size()) + others,
                     cluster.ranks());
}

std::vector<bool> set_of(const Graph& graph, const std::vector<int>& nodes) {
  std::vector<bool> inside(graph.nodes.size(), false);
  for (const int n : nodes) inside[at(n)] = true;
  return inside;
}

Result<ClusterBound> gather_bound(const Cluster& cluster) {
  std::optional<ClusterBound> least;
  for (const int node : representatives(cluster)) {
    auto q = quotient(cluster, {node});
    if (!q.ok()) return q.status();
    auto bound = allgather_bound(q->graph, q->ranks);
    if (!bound.ok()) return bound.status();
    if (least && !(bound->algbw < least->algbw)) continue;
    least = ClusterBound{bound->algbw, bound->exact,
                         outside_of(cluster, *q, set_of(q->graph, bound->cut))};
  }
  return *least;
}

struct Flow {
  std::int64_t units = MaxFlow::kUnlimited;
  std::string bottleneck;
};

/// The least max-flow from `root` to any other rank.
Result<Flow> least_flow(const Cluster& cluster, int root) {
  Flow least;
  const int home = root / cluster.gpus();
  for (const int node : seen_from(cluster, home)) {
    std::vector<int> single{node};
    if (node != home) single.push_back(home);
    auto q = quotient(cluster, single);
    if (!q.ok()) return q.status();
    MaxFlow network(static_cast<int>(q->graph.nodes.size()));
    for (const GraphLink& l : q->graph.links) network.add_arc(l.from, l.to, l.capacity);
    const int source = q->rank_of.back()[at(root % cluster.gpus())];
    for (const int r : q->rank_of.front()) {
      if (r == source) continue;
      const std::int64_t flow =
          network.run(q->graph.rank_nodes[at(source)], q->graph.rank_nodes[at(r)], least.units);
      if (flow >= least.units) continue;
      least = {flow, outside_of(cluster, *q, network.source_side())};
    }
  }
  return least;
}

Result<ClusterBound> rooted_bound(const Cluster& cluster, int root) {
  auto flow = least_flow(cluster, root);
  if (!flow.ok()) return flow.status();
  const auto algbw = cluster.cell.unit.times(Rational(flow->units));
  if (!algbw) return too_large();
  return ClusterBound{*algbw, cluster.cell.groups.empty(), flow->bottleneck};
}

/// What parts take in together over the messages that they must take in, in units; nothing: one
/// part.
struct Parts {
  Int128 entering = 0;  ///< in one node
  std::int64_t count = 0;
  std::string name;
};

std::vector<Parts> parts_of(const Cluster& cluster) {
  std::vector<Parts> result;
  const Graph host = host_graph(cluster);
  const auto add = [&](const std::vector<std::vector<bool>>& sets, const char* name) {
    Parts parts{0, static_cast<std::int64_t>(sets.size()) * cluster.nodes, name};
    for (const std::vector<bool>& set : sets) {
      std::vector<bool> rest(cluster.cell.nodes.size(), true);
      for (std::size_t n = 0; n < set.size(); ++n) rest[n] = !set[n];
      parts.entering += Int128{leaving_capacity(cluster.cell, rest)} * cluster.nodes;
    }
    result.push_back(parts);
  };
  // Of equal ones the first is named: whole nodes before their parts.
  add({std::vector<bool>(host.nodes.size(), true)}, "one node");
  if (cluster.spines > 0) {
    Parts leaves{0, cluster.leaves(), "the nodes of one leaf"};
    for (const GraphLink& l : cluster.cell.links) {
      if (l.from >= cluster.leaf_node(cluster.rails))
        leaves.entering += Int128{l.capacity} * cluster.leaves();
    }
    result.push_back(leaves);
  }
  for (const std::vector<int>& partition : partitions(host))
    add(parts_with_ranks(host, partition), "parts of nodes");
  return result;
}

Result<ClusterBound> allreduce_bound_of(const Cluster& cluster) {
  std::optional<ClusterBound> least;
  const auto consider = [&](const std::optional<Rational>& units, const std::string& bottleneck) {
    const auto algbw = units ? units->times(cluster.cell.unit) : std::nullopt;
    if (!algbw) return false;
    if (!least || *algbw < least->algbw) least = ClusterBound{*algbw, false, bottleneck};
    return true;
  };
  const Cluster turned = reversed(cluster);
  for (const Cluster* c : {&cluster, &turned}) {
    auto flow = least_flow(*c, 0);
    if (!flow.ok()) return flow.status();
    if (!consider(Rational(flow->units), flow->bottleneck)) return too_large();
    for (const Parts& parts : parts_of(*c)) {
      if (!consider(Rational::make(parts.entering, 2 * (Int128{parts.count} - 1)), parts.name))
        return too_large();
    }
  }
  auto gather = gather_bound(cluster);
  if (!gather.ok()) return gather.status();
  auto scatter = gather_bound(turned);
  if (!scatter.ok()) return scatter.status();
  const auto sum = gather->algbw.plus(scatter->algbw);
  const auto product = gather->algbw.times(scatter->algbw);
  const auto both = sum && product ? product->over(*sum) : std::nullopt;
  least->exact = both && *both == least->algbw;
  return *least;
}

}  // namespace

Result<ClusterBound> cluster_bound(const Cluster& cluster, CollectiveKind kind, int root) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return gather_bound(cluster);
    case CollectiveKind::kReduceScatter:
      return gather_bound(reversed(cluster));
    case CollectiveKind::kBroadcast:
      return rooted_bound(cluster, root);
    case CollectiveKind::kReduce:
      return rooted_bound(reversed(cluster), root);
    case CollectiveKind::kAllReduce:
      return allreduce_bound_of(cluster);
    default:
      return Status(Cause::kUnsupported,
                    fmt::format("no bound is known for {} on clusters", name(kind)));
  }
}

}  // namespace topocoll
