#include "planner/folded.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/index.h"
#include "planner/host_order.h"
#include "planner/steps.h"

namespace topocoll {
namespace {

Status unsupported(std::string text) { return Status(Cause::kUnsupported, std::move(text)); }

/// Where a node of the graph stands: which host, and which of its nodes; or which network node.
struct Place {
  int host = -1;
  int index = 0;
};

std::vector<Place> places(const Graph& graph, const FoldedMachine& folded) {
  std::vector<Place> result(graph.nodes.size());
  for (std::size_t h = 0; h < folded.classes.nodes.size(); ++h) {
    const std::vector<int>& nodes = folded.classes.nodes[h];
    for (std::size_t i = 0; i < nodes.size(); ++i)
      result[at(nodes[i])] = {static_cast<int>(h), static_cast<int>(i)};
  }
  for (std::size_t r = 0; r < folded.split.network.size(); ++r) {
    result[at(folded.split.network[r])] = {-1, static_cast<int>(r)};
  }
  return result;
}

/// Gathers the least of all hosts: what links two nodes of a host, and what a node sends to and
/// takes from a rail.
class Folder {
 public:
  Folder(const Graph& graph, FoldedMachine& folded) : graph_(graph), folded_(folded) {}

  Result<Cluster> cluster() {
    if (Status s = collect(); !s.ok()) return s;
    auto node = host_template();
    if (!node.ok()) return node.status();
    Fabric fabric;
    fabric.rails = static_cast<int>(folded_.split.network.size());
    std::map<std::pair<int, int>, FabricPort> ports;  // by rail and node
    for (const auto& [key, link] : least(out_)) port(ports, key).out_gbps = gbps(link);
    for (const auto& [key, link] : least(in_)) port(ports, key).in_gbps = gbps(link);
    for (const auto& [key, p] : ports) fabric.ports.push_back(p);
    auto cluster = make_cluster(*node, fabric, static_cast<int>(folded_.split.hosts.size()));
    if (!cluster.ok()) return cluster.status();
    set_latencies(*cluster);
    return cluster;
  }

 private:
  using Key = std::pair<int, int>;
  struct Sum {
    std::int64_t capacity = 0;
    std::optional<double> latency_ns;
  };
  using Links = std::map<Key, Sum>;

  Status collect() {
    const std::size_t hosts = folded_.split.hosts.size();
    inside_.resize(hosts);
    out_.resize(hosts);
    in_.resize(hosts);
    const std::vector<Place> place = places(graph_, folded_);
    for (const GraphLink& l : graph_.links) {
      const Place& from = place[at(l.from)];
      const Place& to = place[at(l.to)];
      if (from.host < 0 && to.host < 0) {
        return unsupported(
            "its network has several tiers: give one host with --nodes and --fabric");
      }
      if (from.host >= 0 && to.host >= 0) {
        if (from.host != to.host)
          return unsupported("its hosts are linked directly, without a switch");
        add(inside_[at(from.host)], {from.index, to.index}, l);
      } else if (from.host >= 0) {
        add(out_[at(from.host)], {to.index, from.index}, l);
      } else {
        add(in_[at(to.host)], {from.index, to.index}, l);
      }
    }
    return Status();
  }
  static void add(Links& links, Key key, const GraphLink& l) {
    Sum& sum = links[key];
    sum.capacity += l.capacity;
    if (l.latency_ns) sum.latency_ns = std::max(sum.latency_ns.value_or(0), *l.latency_ns);
  }

  /// Of links that all hosts have: the least capacity and the largest latency.
  static Links least(const std::vector<Links>& of_hosts) {
    Links result = of_hosts[0];
    for (const Links& links : of_hosts) {
      for (auto& [key, sum] : result) {
        const Sum& other = links.at(key);
        sum.capacity = std::min(sum.capacity, other.capacity);
        if (other.latency_ns)
          sum.latency_ns = std::max(sum.latency_ns.value_or(0), *other.latency_ns);
      }
    }
    return result;
  }

  [[nodiscard]] const std::string& id(int index) const {
    return graph_.nodes[at(folded_.classes.nodes[0][at(index)])].id;
  }
  [[nodiscard]] double gbps(const Sum& sum) const {
    return graph_.gbps(static_cast<double>(sum.capacity));
  }
  FabricPort& port(std::map<Key, FabricPort>& ports, Key key) const {
    FabricPort& p = ports[key];
    p.at = id(key.second);
    p.rail = key.first;
    return p;
  }

  Result<Graph> host_template() const {
    GraphDescription d;
    const std::vector<int>& nodes = folded_.classes.nodes[0];
    for (const int n : nodes)
      d.nodes.push_back({graph_.nodes[at(n)].id, graph_.is_rank(n), graph_.nodes[at(n)].id});
    for (const auto& [key, sum] : least(inside_)) {
      d.links.push_back(
          {id(key.first), id(key.second), gbps(sum), false, sum.latency_ns, "link of a host"});
    }
    return make_graph(d, "host");
  }

  void set_latencies(Cluster& cluster) const {
    const Links outs = least(out_);
    const Links ins = least(in_);
    for (const CellPort& p : cluster.ports) {
      if (p.out >= 0)
        cluster.cell.links[at(p.out)].latency_ns = outs.at({p.rail, p.node}).latency_ns;
      if (p.in >= 0) cluster.cell.links[at(p.in)].latency_ns = ins.at({p.rail, p.node}).latency_ns;
    }
  }

  const Graph& graph_;
  FoldedMachine& folded_;
  std::vector<Links> inside_;
  std::vector<Links> out_;  ///< by rail and node
  std::vector<Links> in_;
};

}  // namespace

Result<FoldedMachine> fold(const Graph& graph) {
  if (!graph.groups.empty()) return unsupported("links share capacities");
  FoldedMachine folded;
  auto split = split_hosts(graph);
  if (!split) return unsupported("it is one host");
  folded.split = std::move(*split);
  folded.classes = classify(graph, folded.split);
  for (std::size_t h = 0; h < folded.classes.nodes.size(); ++h) {
    if (folded.classes.nodes[h].empty())
      return unsupported(fmt::format("host {} is built in another way than host 0", h));
  }
  auto cluster = Folder(graph, folded).cluster();
  if (!cluster.ok()) return cluster.status();
  folded.cluster = std::move(*cluster);
  const bool told_apart = folded.classes.classes > 1 ||
                          std::any_of(graph.links.begin(), graph.links.end(),
                                      [](const GraphLink& l) { return l.latency_ns.has_value(); });
  if (told_apart) {
    auto order = order_hosts(graph, folded.split);
    if (order.ok()) folded.order = std::move(*order);
  }
  return folded;
}

int cluster_rank(const FoldedMachine& folded, const Graph& graph, int rank) {
  const Place place = places(graph, folded)[at(graph.rank_nodes[at(rank)])];
  return place.host * folded.cluster.gpus() + folded.cluster.cell.nodes[at(place.index)].rank;
}

Result<Plan> unfold(const FoldedMachine& folded, const Graph& graph, const HierarchicalPlan& plan) {
  auto expanded = expand(plan);
  if (!expanded.ok()) return expanded.status();
  const Cluster& cluster = folded.cluster;
  std::vector<int> rank_of(at(cluster.ranks()));
  std::map<std::string, std::string> ids;
  for (std::size_t h = 0; h < folded.classes.nodes.size(); ++h) {
    for (std::size_t i = 0; i < folded.classes.nodes[h].size(); ++i) {
      const GraphNode& node = graph.nodes[at(folded.classes.nodes[h][i])];
      ids[fmt::format("{}/{}", h, cluster.cell.nodes[i].id)] = node.id;
      if (node.rank >= 0)
        rank_of[h * at(cluster.gpus()) + at(cluster.cell.nodes[i].rank)] = node.rank;
    }
  }
  for (int r = 0; r < cluster.rails; ++r) {
    ids[cluster.cell.nodes[at(cluster.leaf_node(r))].id] =
        graph.nodes[at(folded.split.network[at(r)])].id;
  }
  const auto block = [&](int chunk) {
    return rank_of[at(chunk / expanded->chunks)] * expanded->chunks + chunk % expanded->chunks;
  };
  const auto renumber = [&](ChunkRef& ref) {
    const bool blocks =
        (plan.kind == CollectiveKind::kAllGather && ref.buffer == BufferId::kOutput) ||
        (plan.kind == CollectiveKind::kReduceScatter && ref.buffer == BufferId::kInput);
    if (blocks) ref.chunk = block(ref.chunk);
  };
  Plan result = *expanded;
  for (std::size_t r = 0; r < expanded->steps.size(); ++r) {
    auto& steps = result.steps[at(rank_of[r])];
    steps = std::move(expanded->steps[r]);
    for (Step& step : steps) {
      for (ChunkRef& source : step.source) renumber(source);
      renumber(step.target);
      if (step.peer >= 0) step.peer = rank_of[at(step.peer)];
    }
  }
  result.root = has_root(plan.kind) ? rank_of[at(plan.root)] : 0;
  for (Route& route : result.routes) {
    route.from = rank_of[at(route.from)];
    route.to = rank_of[at(route.to)];
    for (std::string& id : route.path) id = ids.at(id);
  }
  std::sort(result.routes.begin(), result.routes.end(), [](const Route& a, const Route& b) {
    return std::tie(a.from, a.to, a.channel) < std::tie(b.from, b.to, b.channel);
  });
  return result;
}

Result<UnfoldedPlan> plan_folded(const FoldedMachine& folded, const Graph& graph,
                                 CollectiveKind kind, NodeShape shape, int root, double enough) {
  const int from = has_root(kind) ? cluster_rank(folded, graph, root) : 0;
  auto plan = plan_hierarchy(folded.cluster, {kind, shape, from, enough, folded.order});
  if (!plan.ok()) return plan.status();
  auto unfolded = unfold(folded, graph, *plan);
  if (!unfolded.ok()) return unfolded.status();
  return UnfoldedPlan{std::move(*unfolded), plan->algbw()->to_double()};
}

}  // namespace topocoll
