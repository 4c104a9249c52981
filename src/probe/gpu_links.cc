#include "probe/gpu_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/index.h"
#include "topology/inferred.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

/// Before the ids of groups that only a probe knows.
constexpr std::string_view kMeasuredGroup = "measured: ";
/// What was seen to pass refutes a declaration of less than this share of it, and fills a gap.
constexpr double kTolerance = 0.97;

void set_measured(Figure& figure, const Figure& source) {
  figure.measured = source.measured;
  figure.spread = source.spread;
}

Figure scaled(Figure figure, double factor) {
  if (figure.measured) *figure.measured *= factor;
  if (figure.spread) {
    figure.spread->low *= factor;
    figure.spread->high *= factor;
    figure.spread->best *= factor;
  }
  return figure;
}

/// The one in the middle, with its own interval; of two the lower.
Figure middle(std::vector<Figure> figures) {
  std::erase_if(figures, [](const Figure& figure) { return !figure.measured; });
  if (figures.empty()) return {};
  std::stable_sort(figures.begin(), figures.end(),
                   [](const Figure& a, const Figure& b) { return *a.measured < *b.measured; });
  return figures[(figures.size() - 1) / 2];
}

bool is_fabric(const TopologyEdge& edge) { return edge.kind == "nvlink" || edge.kind == "xgmi"; }

class LinkWriter {
 public:
  LinkWriter(const GpuConclusions& conclusions, Topology& topology)
      : known_(conclusions), topology_(topology) {
    for (std::size_t g = 0; g < known_.gpus.size(); ++g) {
      if (!known_.gpus[g].empty()) index_[known_.gpus[g]] = static_cast<int>(g);
    }
    for (const TopologyEdge& edge : topology_.edges) {
      if (edge.kind == "transfer") transfers_[{edge.from, edge.to}] = edge;
    }
  }

  void write() {
    remove_inferred(topology_);
    clear();
    write_direct();
    for (const auto& [id, g] : index_) write_port(id, g);
    write_groups();
    bridges_ = declared_bridges(topology_, known_.gpus);
    find_untrusted();
    write_tree();
    write_switches();
    write_crossings();
  }

 private:
  struct Known {
    Figure bandwidth;
    Figure latency;
  };

  [[nodiscard]] bool is_mine(const std::string& id) const { return index_.contains(id); }
  [[nodiscard]] NodeKind kind(const std::string& id) const {
    const TopologyNode* node = topology_.find(id);
    return node == nullptr ? NodeKind::kHost : node->kind;
  }

  void clear() {
    for (TopologyEdge& edge : topology_.edges) {
      const bool fabric = is_fabric(edge) && (is_mine(edge.from) || is_mine(edge.to));
      const bool tree =
          is_tree_edge(edge) && (is_mine(edge.to) || kind(edge.to) == NodeKind::kPciBridge);
      if (!fabric && !tree) continue;
      for (Figure* figure : {&edge.bandwidth_gbps, &edge.latency_ns, &edge.upward_gbps}) {
        set_measured(*figure, {});
      }
    }
  }

  /// What a pair carries while its ends are busy otherwise too; nothing of one that lies.
  [[nodiscard]] Known pair(const std::string& from, const std::string& to,
                           std::initializer_list<const char*> names) const {
    const auto found = transfers_.find({from, to});
    if (found == transfers_.end() || !found->second.fault.empty()) return {};
    const TopologyEdge& edge = found->second;
    for (const char* name : names) {
      const auto figure = edge.figures.find(name);
      if (figure != edge.figures.end()) return {figure->second, edge.latency_ns};
    }
    return {{}, edge.latency_ns};
  }

  void write_direct() {
    for (TopologyEdge& edge : topology_.edges) {
      if (!is_fabric(edge) || !is_mine(edge.from) || !is_mine(edge.to)) continue;
      const Known known = pair(edge.from, edge.to, {kDuplexGbps, kClassGbps});
      set_measured(edge.bandwidth_gbps, known.bandwidth);
      if (known.bandwidth.measured) set_measured(edge.latency_ns, known.latency);
    }
  }

  /// The links of a GPU to switches share what leaves it, and what enters it.
  void write_port(const std::string& id, int g) {
    for (const bool out : {true, false}) {
      std::vector<TopologyEdge*> links = switch_links(id, out);
      double parts = 0;
      for (const TopologyEdge* link : links) parts += part(*link);
      if (links.empty()) continue;
      std::vector<Figure> busy;
      std::vector<Figure> latencies;
      for (const auto& [peer, other] : index_) {
        if (peer == id || switch_links(peer, out).empty()) continue;
        const Known known = pair(out ? id : peer, out ? peer : id, {kClassGbps});
        busy.push_back(known.bandwidth);
        latencies.push_back(known.latency);
      }
      Figure all = middle(std::move(busy));
      if (!all.measured && !known_.ports.empty()) {
        const GpuPort& port = known_.ports[at(g)];
        const double gbps = out ? port.out_gbps : port.in_gbps;
        if (gbps > 0) all.measured = gbps;
      }
      const Figure hop = scaled(middle(std::move(latencies)), 0.5);
      for (TopologyEdge* link : links) {
        set_measured(link->bandwidth_gbps, scaled(all, part(*link) / parts));
        if (all.measured) set_measured(link->latency_ns, hop);
      }
    }
  }

  std::vector<TopologyEdge*> switch_links(const std::string& id, bool out) {
    std::vector<TopologyEdge*> links;
    for (TopologyEdge& edge : topology_.edges) {
      const std::string& end = out ? edge.from : edge.to;
      const std::string& other = out ? edge.to : edge.from;
      if (is_fabric(edge) && end == id && is_switch(kind(other))) links.push_back(&edge);
    }
    return links;
  }
  static double part(const TopologyEdge& link) {
    return link.bandwidth_gbps.declared.value_or(link.count.value_or(1));
  }

  /// A mesh whose GPUs together do not reach what their links could.
  void write_groups() {
    if (known_.ports.empty()) return;
    for (const auto& [id, g] : index_) {
      for (const bool out : {true, false}) {
        CapacityGroup group;
        double sum = 0;
        for (const TopologyEdge& edge : topology_.edges) {
          if (!is_fabric(edge) || !is_mine(edge.from) || !is_mine(edge.to)) continue;
          if ((out ? edge.from : edge.to) != id || !edge.bandwidth_gbps.measured) continue;
          sum += *edge.bandwidth_gbps.measured;
          group.members.push_back({edge.from, edge.to, edge.kind});
        }
        const auto peers = std::count_if(transfers_.begin(), transfers_.end(), [&](const auto& t) {
          return (out ? t.first.first : t.first.second) == id &&
                 is_mine(out ? t.first.second : t.first.first) && t.second.bandwidth_gbps.measured;
        });
        const GpuPort& port = known_.ports[at(g)];
        const double gbps = out ? port.out_gbps : port.in_gbps;
        const auto members = static_cast<std::ptrdiff_t>(group.members.size());
        if (members < 2 || members != peers || gbps <= 0 || gbps >= kSharedBelow * sum) continue;
        group.id = fmt::format("{}{} {}", kMeasuredGroup, out ? "out of" : "into", id);
        group.bandwidth_gbps.measured = gbps;
        topology_.groups.push_back(std::move(group));
      }
    }
  }

  /// GPUs below a cluster that no bridge stands for, or that holds such a one.
  void find_untrusted() {
    if (!known_.tree) return;
    const auto& clusters = known_.tree->clusters;
    std::vector<bool> untrusted(clusters.size(), false);
    for (std::size_t c = 0; c < clusters.size(); ++c) {
      if (bridge_of(clusters[c]) == nullptr) untrusted[top(c)] = true;
    }
    for (std::size_t c = 0; c < clusters.size(); ++c) {
      if (!untrusted[top(c)]) continue;
      replaced_clusters_.push_back(c);
      replaced_.insert(clusters[c].gpus.begin(), clusters[c].gpus.end());
    }
  }
  [[nodiscard]] std::size_t top(std::size_t cluster) const {
    while (known_.tree->clusters[cluster].parent >= 0) {
      cluster = at(known_.tree->clusters[cluster].parent);
    }
    return cluster;
  }
  /// GPUs of unknown memory took no part, so they say nothing of a bridge.
  [[nodiscard]] const DeclaredBridge* bridge_of(const GpuCluster& cluster) const {
    for (const DeclaredBridge& bridge : bridges_) {
      std::vector<int> gpus = bridge.gpus;
      std::erase_if(gpus, [&](int g) { return known_.near[at(g)] < 0; });
      if (gpus == cluster.gpus) return &bridge;
    }
    return nullptr;
  }

  struct Alone {
    Figure up;
    Figure down;
  };
  /// What passes between a GPU and the memory near it while nothing else moves.
  [[nodiscard]] Alone alone(int g) const {
    if (known_.near.empty() || known_.near[at(g)] < 0) return {};
    const std::string& memory = known_.memories[at(known_.near[at(g)])];
    const auto up = transfers_.find({known_.gpus[at(g)], memory});
    const auto down = transfers_.find({memory, known_.gpus[at(g)]});
    return {up == transfers_.end() ? Figure() : carried_by(up->second),
            down == transfers_.end() ? Figure() : carried_by(down->second)};
  }

  TopologyEdge* tree_edge(const std::string& below) {
    for (TopologyEdge& edge : topology_.edges) {
      if (is_tree_edge(edge) && edge.to == below) return &edge;
    }
    return nullptr;
  }

  void write_tree() {
    for (const auto& [id, g] : index_) {
      TopologyEdge* edge = tree_edge(id);
      const Alone figures = alone(g);
      if (edge == nullptr || replaced_.contains(g) || !figures.up.measured ||
          !figures.down.measured) {
        continue;
      }
      set_measured(edge->bandwidth_gbps, figures.down);
      set_measured(edge->upward_gbps, figures.up);
      refute(edge->from, {g}, {*figures.up.measured, *figures.down.measured});
    }
    if (!known_.tree) return;
    for (const GpuCluster& cluster : known_.tree->clusters) {
      const DeclaredBridge* bridge = bridge_of(cluster);
      TopologyEdge* edge = bridge == nullptr ? nullptr : tree_edge(bridge->bridge);
      if (edge == nullptr || replaced_.contains(cluster.gpus.front())) continue;
      edge->bandwidth_gbps.measured = cluster.carried.down_gbps;
      edge->upward_gbps.measured = cluster.carried.up_gbps;
    }
    for (std::size_t b = 0; b < std::min(bridges_.size(), known_.tree->declared.size()); ++b) {
      refute(bridges_[b].bridge, bridges_[b].gpus, known_.tree->declared[b]);
    }
  }

  /// Gives what was seen to pass to the links from `node` upwards that declare less or nothing, as
  /// long as these and no other GPUs are below.
  void refute(std::string node, const std::vector<int>& gpus, const Carried& seen) {
    while (kind(node) == NodeKind::kPciBridge && below(node) == gpus) {
      TopologyEdge* edge = tree_edge(node);
      if (edge == nullptr) return;
      const double down = edge->bandwidth_gbps.declared.value_or(0);
      const double up = edge->upward_gbps.declared.value_or(down);
      const bool less = down < kTolerance * seen.down_gbps || up < kTolerance * seen.up_gbps;
      if (less && edge->kind == "pci" && !edge->bandwidth_gbps.measured) {
        edge->bandwidth_gbps.measured = seen.down_gbps;
        edge->upward_gbps.measured = seen.up_gbps;
      }
      node = edge->from;
    }
  }
  [[nodiscard]] std::vector<int> below(const std::string& bridge) const {
    const TopologyTree tree(topology_);
    const std::size_t above = tree.index(bridge);
    std::vector<int> gpus;
    for (const auto& [id, g] : index_) {
      const auto path = tree.path_up(tree.index(id));
      if (std::find(path.begin(), path.end(), above) != path.end()) gpus.push_back(g);
    }
    std::sort(gpus.begin(), gpus.end());
    return gpus;
  }

  /// The part of the host that the declared tree has above all of these; where it names NUMA nodes,
  /// but not the same for all, the memory that they are near.
  [[nodiscard]] std::string place_of(const std::vector<int>& gpus) const {
    const TopologyTree tree(topology_);
    std::vector<std::size_t> common;
    bool all_local = true;
    std::set<int> near;
    for (const int g : gpus) {
      const std::size_t node = tree.index(known_.gpus[at(g)]);
      all_local = all_local && tree.above(node, NodeKind::kNumaNode) != TopologyTree::kNone;
      near.insert(known_.near[at(g)]);
      std::vector<std::size_t> path = tree.path_up(node);
      std::erase_if(path, [&](std::size_t i) { return !is_processor(topology_.nodes[i].kind); });
      if (g == gpus.front()) common = path;
      std::erase_if(common, [&](std::size_t i) {
        return std::find(path.begin(), path.end(), i) == path.end();
      });
    }
    const bool declared =
        !common.empty() && topology_.nodes[common.front()].kind == NodeKind::kNumaNode;
    if (!declared && all_local && near.size() == 1) return known_.memories[at(*near.begin())];
    if (!common.empty()) return topology_.nodes[common.front()].id;
    const auto hosts = topology_.of_kind(NodeKind::kHost);
    return hosts.empty() ? "" : hosts.front()->id;
  }

  void add_link(const std::string& from, const std::string& to, const Figure& gbps) {
    TopologyEdge edge{from, to, "link", {}, {}};
    set_measured(edge.bandwidth_gbps, gbps);
    if (!from.empty() && !to.empty() && gbps.measured) topology_.edges.push_back(std::move(edge));
  }

  /// Numbers follow the ids of GPUs, so that they do not depend on a driver's order.
  void write_switches() {
    const auto first = [&](std::size_t c) {
      std::string least = known_.gpus[at(known_.tree->clusters[c].gpus.front())];
      for (const int g : known_.tree->clusters[c].gpus) least = std::min(least, known_.gpus[at(g)]);
      return least;
    };
    std::stable_sort(replaced_clusters_.begin(), replaced_clusters_.end(),
                     [&](std::size_t a, std::size_t b) { return first(a) < first(b); });
    std::map<std::size_t, std::string> ids;
    for (const std::size_t c : replaced_clusters_) {
      ids[c] = fmt::format("switch:inferred:{}", ids.size());
    }
    const auto hosts = topology_.of_kind(NodeKind::kHost);
    const std::string host = hosts.empty() ? "" : hosts.front()->id;
    for (const std::size_t c : replaced_clusters_) {
      const GpuCluster& cluster = known_.tree->clusters[c];
      const std::string above =
          cluster.parent >= 0 ? ids.at(at(cluster.parent)) : place_of(cluster.gpus);
      TopologyNode node;
      node.id = ids[c];
      node.kind = NodeKind::kSwitch;
      node.attributes[kInferredFrom] = "contention";
      topology_.nodes.push_back(std::move(node));
      if (!host.empty()) topology_.edges.push_back({host, ids[c], "contains", {}, {}});
      add_link(ids[c], above, {{}, cluster.carried.up_gbps});
      add_link(above, ids[c], {{}, cluster.carried.down_gbps});
    }
    for (const auto& [id, g] : index_) {
      if (!replaced_.contains(g)) continue;
      const std::string& above = ids.at(least_cluster(g));
      add_link(id, above, alone(g).up);
      add_link(above, id, alone(g).down);
    }
  }
  [[nodiscard]] std::size_t least_cluster(int g) const {
    std::size_t least = 0;
    for (const std::size_t c : replaced_clusters_) {
      const auto& gpus = known_.tree->clusters[c].gpus;
      if (std::binary_search(gpus.begin(), gpus.end(), g)) least = std::max(least, c);
    }
    return least;
  }

  void write_crossings() {
    for (const Crossing& crossing : known_.crossings) {
      const std::string& from = known_.memories[at(crossing.from)];
      const std::string& to = known_.memories[at(crossing.to)];
      const auto found =
          std::find_if(topology_.edges.begin(), topology_.edges.end(), [&](const auto& edge) {
            return edge.kind == "interconnect" && edge.from == from && edge.to == to;
          });
      if (found == topology_.edges.end()) {
        topology_.edges.push_back({from, to, "interconnect", crossing.gbps, {}});
      } else {
        set_measured(found->bandwidth_gbps, crossing.gbps);
      }
    }
  }

  const GpuConclusions& known_;
  Topology& topology_;
  std::map<std::string, int> index_;
  std::map<std::pair<std::string, std::string>, TopologyEdge> transfers_;
  std::vector<DeclaredBridge> bridges_;
  std::set<int> replaced_;  ///< GPUs whose place in the tree is not to be trusted
  std::vector<std::size_t> replaced_clusters_;
};

}  // namespace

std::vector<DeclaredBridge> declared_bridges(const Topology& topology,
                                             const std::vector<std::string>& gpus) {
  const TopologyTree tree(topology);
  std::map<std::size_t, std::vector<int>> below;
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    if (gpus[g].empty()) continue;
    for (const std::size_t node : tree.path_up(tree.index(gpus[g]))) {
      if (topology.nodes[node].kind == NodeKind::kPciBridge) {
        below[node].push_back(static_cast<int>(g));
      }
    }
  }
  std::vector<DeclaredBridge> bridges;
  for (const auto& [node, set] : below) {
    const bool lower = std::any_of(below.begin(), below.end(), [&](const auto& other) {
      const auto path = tree.path_up(other.first);
      return other.first != node && other.second == set &&
             std::find(path.begin(), path.end(), node) != path.end();
    });
    if (set.size() > 1 && !lower) bridges.push_back({topology.nodes[node].id, set});
  }
  std::sort(bridges.begin(), bridges.end(), [](const DeclaredBridge& a, const DeclaredBridge& b) {
    return a.gpus != b.gpus ? a.gpus < b.gpus : a.bridge < b.bridge;
  });
  return bridges;
}

Figure carried_by(const TopologyEdge& transfer) {
  const auto engine = transfer.figures.find(kCopyEngineGbps);
  const bool has_engine = engine != transfer.figures.end();
  return has_engine && !transfer.bandwidth_gbps.measured ? engine->second : transfer.bandwidth_gbps;
}

bool is_measured_group(const CapacityGroup& group) { return group.id.starts_with(kMeasuredGroup); }

void remove_inferred(Topology& topology) {
  const InferredLinks inferred(topology);
  std::erase_if(topology.edges, [&](const TopologyEdge& edge) { return inferred.contain(edge); });
  std::erase_if(topology.nodes, is_inferred);
  std::erase_if(topology.groups, is_measured_group);
}

void write_gpu_links(const GpuConclusions& conclusions, Topology& topology) {
  LinkWriter(conclusions, topology).write();
}

}  // namespace topocoll
