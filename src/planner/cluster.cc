#include "planner/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/index.h"
#include "planner/counted.h"

namespace topocoll {
namespace {

Status invalid(std::string text) { return Status(Cause::kInvalidArgument, std::move(text)); }

std::vector<FabricPort> ports_of(const Graph& node, const Fabric& fabric) {
  std::vector<FabricPort> ports = fabric.ports;
  if (!ports.empty()) return ports;
  for (int r = 0; r < node.ranks(); ++r) {
    ports.push_back({node.rank_id(r), r % fabric.rails, fabric.gbps_per_gpu, fabric.gbps_per_gpu});
  }
  return ports;
}

/// Writes the cell as a description, which make_graph() checks.
class CellMaker {
 public:
  CellMaker(const Graph& node, const Fabric& fabric, int nodes)
      : node_(node), fabric_(fabric), ports_(ports_of(node, fabric)) {
    cluster_.nodes = nodes;
    cluster_.rails = fabric.rails;
    cluster_.nodes_per_leaf = std::min(nodes, fabric.nodes_per_leaf.value_or(nodes));
    if (cluster_.leaves() > 1) cluster_.spines = fabric.spine_joins_rails ? 1 : fabric.rails;
  }

  Result<Cluster> make() {
    add_host();
    if (Status s = add_ports(); !s.ok()) return s;
    if (Status s = check_rails(); !s.ok()) return s;
    add_spines();
    Result<Graph> cell = make_graph(out_, "cluster");
    if (!cell.ok()) return cell.status();
    Int128 total = 0;
    for (const GraphLink& link : cell->links) total += link.capacity;
    if (total * cluster_.nodes > kMaxTotalCapacity) {
      return invalid(fmt::format(
          "cluster: the bandwidths of {} nodes have no common unit that is coarse enough: "
          "give them with fewer digits",
          cluster_.nodes));
    }
    cluster_.cell = std::move(*cell);
    return std::move(cluster_);
  }

 private:
  void add_host() {
    for (const GraphNode& n : node_.nodes) {
      index_[n.id] = static_cast<int>(out_.nodes.size());
      out_.nodes.push_back({n.id, n.rank >= 0, "node " + n.id});
    }
    for (const GraphLink& l : node_.links) {
      add_link(node_.nodes[at(l.from)].id, node_.nodes[at(l.to)].id,
               node_.gbps(static_cast<double>(l.capacity)), l.latency_ns);
    }
    for (const SharedGroup& g : node_.groups) {
      out_.groups.push_back({g.name,
                             {g.links.begin(), g.links.end()},
                             node_.gbps(static_cast<double>(g.capacity)),
                             false,
                             "group " + g.name});
    }
    cluster_.host_nodes = static_cast<int>(out_.nodes.size());
    cluster_.host_links = static_cast<int>(out_.links.size());
    for (int r = 0; r < fabric_.rails; ++r) out_.nodes.push_back({leaf(r), false, leaf(r)});
  }

  Status add_ports() {
    const std::optional<double> latency =
        fabric_.latency_ns ? std::optional(*fabric_.latency_ns / 2) : std::nullopt;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      const FabricPort& port = ports_[i];
      const auto found = index_.find(port.at);
      if (found == index_.end()) {
        return invalid(
            fmt::format("fabric: ports[{}]: the node has no \"{}\" that links reach", i, port.at));
      }
      if (port.rail < 0 || port.rail >= fabric_.rails) {
        return invalid(fmt::format("fabric: ports[{}]: rail {}, but there are {}", i, port.rail,
                                   fabric_.rails));
      }
      if (port.out_gbps == 0 && port.in_gbps == 0)
        return invalid(fmt::format("fabric: ports[{}]: no bandwidth", i));
      CellPort result{found->second, port.rail, -1, -1};
      if (port.out_gbps != 0)
        result.out = add_link(port.at, leaf(port.rail), port.out_gbps, latency);
      if (port.in_gbps != 0) result.in = add_link(leaf(port.rail), port.at, port.in_gbps, latency);
      cluster_.ports.push_back(result);
    }
    return Status();
  }

  Status check_rails() {
    out_of_.assign(at(fabric_.rails), 0);
    into_.assign(at(fabric_.rails), 0);
    for (const FabricPort& port : ports_) {
      out_of_[at(port.rail)] += port.out_gbps;
      into_[at(port.rail)] += port.in_gbps;
    }
    // Ports of GPUs are on the first rails, one each.
    if (const int gpus = node_.ranks(); fabric_.ports.empty() && gpus < fabric_.rails) {
      return invalid(fmt::format(
          "fabric: the node has {} and the fabric {}, so some rails have no port: set rails to {} "
          "or fewer, or name each rail's ports",
          counted(gpus, "GPU"), counted(fabric_.rails, "rail"), gpus));
    }
    for (int r = 0; r < fabric_.rails; ++r) {
      if (out_of_[at(r)] > 0 && into_[at(r)] > 0) continue;
      return invalid(fmt::format("fabric: rail {} has no port that {}: give it one, or fewer rails",
                                 r, out_of_[at(r)] > 0 ? "receives" : "sends"));
    }
    return Status();
  }

  void add_spines() {
    for (int s = 0; s < cluster_.spines; ++s) {
      out_.nodes.push_back({fmt::format("spine{}", s), false, fmt::format("spine {}", s)});
    }
    for (int r = 0; r < fabric_.rails && cluster_.spines > 0; ++r) {
      const std::string spine = fmt::format("spine{}", cluster_.spines == 1 ? 0 : r);
      const double uplinks = cluster_.nodes_per_leaf / fabric_.oversubscription;
      const std::optional<double> latency =
          fabric_.spine_latency_ns ? std::optional(*fabric_.spine_latency_ns / 2) : std::nullopt;
      add_link(leaf(r), spine, rounded(out_of_[at(r)] * uplinks), latency);
      add_link(spine, leaf(r), rounded(into_[at(r)] * uplinks), latency);
    }
  }

  /// An oversubscription of 3 has no finite decimal; a millionth of the bandwidth is far below its
  /// tolerance.
  static double rounded(double gbps) { return std::stod(fmt::format("{:.6g}", gbps)); }

  int add_link(const std::string& from, const std::string& to, double gbps,
               std::optional<double> latency_ns) {
    out_.links.push_back(
        {from, to, gbps, false, latency_ns, fmt::format("link {} -> {}", from, to)});
    return static_cast<int>(out_.links.size()) - 1;
  }
  static std::string leaf(int rail) { return fmt::format("rail{}", rail); }

  const Graph& node_;
  const Fabric& fabric_;
  std::vector<FabricPort> ports_;
  Cluster cluster_;
  GraphDescription out_;
  std::map<std::string, int> index_;
  std::vector<double> out_of_;  ///< GB/s of a node's ports into each rail
  std::vector<double> into_;
};

/// Nodes and leaves of an assembly, each standing for some.
struct Part {
  int leaf = 0;  ///< index into leaves, of a node
  std::int64_t copies = 1;
  std::string name;
};

/// Puts copies of the cell's parts together.
class Assembly {
 public:
  Assembly(const Cluster& cluster, std::vector<Part> hosts, std::vector<Part> leaves)
      : cluster_(cluster), hosts_(std::move(hosts)), leaves_(std::move(leaves)) {}

  Graph make() {
    out_.unit = cluster_.cell.unit;
    add_nodes();
    for (std::size_t h = 0; h < hosts_.size(); ++h) add_host(h);
    for (std::size_t f = 0; f < leaves_.size() && cluster_.spines > 0; ++f) {
      for (int l = first_uplink(); l < static_cast<int>(cluster_.cell.links.size()); ++l) {
        add_link(l, leaves_[f].copies, 0, f);
      }
    }
    return std::move(out_);
  }
  [[nodiscard]] const std::vector<std::int64_t>& copies() const { return copies_; }

 private:
  [[nodiscard]] int first_uplink() const {
    return static_cast<int>(cluster_.cell.links.size()) -
           2 * (cluster_.spines > 0 ? cluster_.rails : 0);
  }
  [[nodiscard]] int node_of(int cell_node, std::size_t host, std::size_t leaf) const {
    if (cell_node < cluster_.host_nodes)
      return static_cast<int>(host) * cluster_.host_nodes + cell_node;
    const int hosts = static_cast<int>(hosts_.size()) * cluster_.host_nodes;
    const int rail = cell_node - cluster_.host_nodes;
    if (rail < cluster_.rails) return hosts + static_cast<int>(leaf) * cluster_.rails + rail;
    return hosts + static_cast<int>(leaves_.size()) * cluster_.rails + rail - cluster_.rails;
  }
  void add_node(std::string id, bool is_rank, std::int64_t copies) {
    if (is_rank) out_.rank_nodes.push_back(static_cast<int>(out_.nodes.size()));
    out_.nodes.push_back({std::move(id), is_rank ? out_.ranks() - 1 : -1});
    copies_.push_back(copies);
  }
  void add_nodes() {
    const auto& nodes = cluster_.cell.nodes;
    for (const Part& host : hosts_) {
      for (int n = 0; n < cluster_.host_nodes; ++n) {
        add_node(host.name + "/" + nodes[at(n)].id, nodes[at(n)].rank >= 0, host.copies);
      }
    }
    for (const Part& leaf : leaves_) {
      for (int r = 0; r < cluster_.rails; ++r) {
        add_node(leaf.name + nodes[at(cluster_.leaf_node(r))].id, false, leaf.copies);
      }
    }
    for (int s = 0; s < cluster_.spines; ++s) {
      add_node(nodes[at(cluster_.leaf_node(cluster_.rails + s))].id, false, 1);
    }
  }
  void add_link(int link, std::int64_t copies, std::size_t host, std::size_t leaf) {
    const GraphLink& l = cluster_.cell.links[at(link)];
    out_.links.push_back({node_of(l.from, host, leaf), node_of(l.to, host, leaf),
                          l.capacity * copies, l.latency_ns});
  }
  void add_host(std::size_t host) {
    const Part& part = hosts_[host];
    const int first = static_cast<int>(out_.links.size());
    for (int l = 0; l < first_uplink(); ++l) add_link(l, part.copies, host, at(part.leaf));
    for (const SharedGroup& group : cluster_.cell.groups) {
      SharedGroup copy{part.name + "/" + group.name, group.links, group.capacity * part.copies};
      for (int& l : copy.links) l += first;
      out_.groups.push_back(std::move(copy));
    }
  }

  const Cluster& cluster_;
  std::vector<Part> hosts_;
  std::vector<Part> leaves_;
  Graph out_;
  std::vector<std::int64_t> copies_;
};

}  // namespace

Result<Cluster> make_cluster(const Graph& node, const Fabric& fabric, int nodes) {
  if (fabric.rails < 1 || fabric.rails > kMaxRails) {
    return invalid(fmt::format("fabric: {} rails, expected 1 to {}", fabric.rails, kMaxRails));
  }
  if (fabric.nodes_per_leaf && *fabric.nodes_per_leaf < 1) {
    return invalid(
        fmt::format("fabric: {} nodes per leaf, expected 1 or more", *fabric.nodes_per_leaf));
  }
  if (!(fabric.oversubscription >= 1)) {
    return invalid(
        fmt::format("fabric: oversubscription {}, expected 1 or more", fabric.oversubscription));
  }
  const int most = kMaxClusterRanks / node.ranks();
  if (nodes < 2 || nodes > most) {
    return invalid(fmt::format("{} nodes: a cluster of nodes with {} GPUs has 2 to {} ({} ranks)",
                               nodes, node.ranks(), most, kMaxClusterRanks));
  }
  return CellMaker(node, fabric, nodes).make();
}

Cluster reversed(const Cluster& cluster) {
  Cluster result = cluster;
  result.cell = reversed(cluster.cell);
  for (CellPort& port : result.ports) std::swap(port.out, port.in);
  return result;
}

Graph host_graph(const Cluster& cluster) {
  Graph host = cluster.cell;
  host.nodes.resize(at(cluster.host_nodes));
  host.links.resize(at(cluster.host_links));
  return host;
}

Result<Graph> flat_graph(const Cluster& cluster) {
  const std::int64_t nodes = std::int64_t{cluster.nodes} * cluster.host_nodes;
  const std::int64_t links =
      std::int64_t{cluster.nodes} * static_cast<std::int64_t>(cluster.cell.links.size());
  if (cluster.ranks() > kMaxGraphRanks || nodes > kMaxGraphNodes || links > kMaxGraphLinks) {
    return Status(
        Cause::kUnsupported,
        fmt::format("{} ranks are too many for one flat graph: they are planned as a quotient only",
                    cluster.ranks()));
  }
  std::vector<Part> hosts;
  std::vector<Part> leaves;
  for (int i = 0; i < cluster.nodes; ++i)
    hosts.push_back({cluster.leaf_of(i), 1, std::to_string(i)});
  for (int f = 0; f < cluster.leaves(); ++f) {
    leaves.push_back({0, 1, cluster.leaves() > 1 ? fmt::format("leaf{}/", f) : ""});
  }
  return Assembly(cluster, std::move(hosts), std::move(leaves)).make();
}

Result<Quotient> quotient(const Cluster& cluster, const std::vector<int>& single) {
  std::map<int, int> singles_below;  // leaf: how many of its nodes stand for themselves
  for (const int node : single) ++singles_below[cluster.leaf_of(node)];
  std::vector<Part> hosts;
  std::vector<Part> leaves;
  std::map<int, int> part_of_leaf;
  for (const auto& [leaf, count] : singles_below) {
    part_of_leaf[leaf] = static_cast<int>(leaves.size());
    leaves.push_back({0, 1, fmt::format("leaf{}/", leaf)});
  }
  for (const int node : single)
    hosts.push_back({part_of_leaf[cluster.leaf_of(node)], 1, std::to_string(node)});
  for (const auto& [leaf, count] : singles_below) {
    const int others = cluster.below(leaf) - count;
    if (others > 0)
      hosts.push_back({part_of_leaf[leaf], others, fmt::format("others of leaf {}", leaf)});
  }
  std::map<int, int> leaves_by_size;  // nodes below: how many such leaves
  for (int f = 0; f < cluster.leaves(); ++f) {
    if (!singles_below.contains(f)) ++leaves_by_size[cluster.below(f)];
  }
  for (const auto& [size, count] : leaves_by_size) {
    const std::string name = fmt::format("{} leaves of {}", count, size);
    hosts.push_back({static_cast<int>(leaves.size()), std::int64_t{count} * size, name});
    leaves.push_back({0, count, name + "/"});
  }
  Assembly assembly(cluster, hosts, leaves);
  Quotient result{assembly.make(), {}, {}, {}};
  for (const std::int64_t c : assembly.copies()) result.copies.push_back(static_cast<int>(c));
  for (int r = 0; r < result.graph.ranks(); ++r) {
    const int gpus = cluster.gpus();
    const int host = r / gpus;
    result.ranks.blocks.push_back(hosts[at(host)].copies);
    if (host >= static_cast<int>(single.size())) continue;
    result.ranks.receivers.push_back(r);
    if (r % gpus == 0) result.rank_of.emplace_back();
    result.rank_of.back().push_back(r);
  }
  return result;
}

}  // namespace topocoll
