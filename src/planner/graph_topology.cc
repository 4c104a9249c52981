#include "planner/graph_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace topocoll {
namespace {

constexpr std::size_t kMaxShown = 8;  ///< links in an error's text

class TopologyReader {
 public:
  TopologyReader(const Topology& topology, const std::vector<std::string>& ranks)
      : topology_(topology), ranks_(ranks) {}

  Result<Graph> read() {
    if (Status s = find_ranks(); !s.ok()) return s;
    find_measured();
    if (Status s = check_faults(); !s.ok()) return s;
    join_places();
    for (const TopologyEdge& edge : topology_.edges) add_edge(edge);
    for (const CapacityGroup& group : topology_.groups) add_group(group);
    add_nodes();
    Result<Graph> graph = make_graph(out_, "topology");
    if (graph.ok()) return graph;
    return Status(graph.status().cause(),
                  graph.status().text() + left_out("without a known bandwidth", unknown_) +
                      left_out("on which data arrives wrong", faulty_));
  }

 private:
  static std::string left_out(const char* why, const std::vector<std::string>& links) {
    if (links.empty()) return "";
    const auto shown = static_cast<std::ptrdiff_t>(std::min(links.size(), kMaxShown));
    std::string text = fmt::format("; links {} were left out: {}", why,
                                   fmt::join(links.begin(), links.begin() + shown, ", "));
    if (links.size() > kMaxShown) text += fmt::format(" and {} more", links.size() - kMaxShown);
    return text;
  }

  Status find_ranks() {
    for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
      index_[topology_.nodes[i].id] = i;
    }
    std::vector<std::string> ids = ranks_;
    if (ids.empty()) {
      for (const TopologyNode* node : topology_.of_kind(NodeKind::kGpu)) ids.push_back(node->id);
    }
    for (const std::string& id : ids) {
      if (!index_.contains(id)) {
        return Status(Cause::kInvalidArgument,
                      fmt::format("topology: no node is called \"{}\"", id));
      }
      if (!is_rank_.insert(id).second) {
        return Status(Cause::kInvalidArgument,
                      fmt::format("topology: rank \"{}\" is named twice", id));
      }
      out_.nodes.push_back({id, true, fmt::format("node {}", id)});
    }
    return Status();
  }

  [[nodiscard]] const TopologyNode& node(const std::string& id) const {
    return topology_.nodes[index_.at(id)];
  }

  /// What a probe found wrong with the declared machine: ways that change data, and GPUs that stand
  /// elsewhere than the tree says.
  void find_measured() {
    for (const TopologyEdge& edge : topology_.edges) {
      if (!index_.contains(edge.from) || !index_.contains(edge.to)) continue;
      if (!edge.fault.empty() && is_rank_.contains(edge.from) && is_rank_.contains(edge.to)) {
        faults_[{edge.from, edge.to}] = edge.fault;
      }
      if (is_tree_edge(edge)) continue;
      if (is_inferred(node(edge.from)) && node(edge.to).kind == NodeKind::kGpu) {
        moved_.insert(edge.to);
      }
    }
  }

  /// Such a GPU's place is at its inferred switch; and that switch stands below the host for
  /// order's sake only.
  [[nodiscard]] bool is_out_of_date(const TopologyEdge& edge) const {
    return is_tree_edge(edge) && (moved_.contains(edge.to) || is_inferred(node(edge.to)));
  }

  /// A direct link between two ranks can be left out. One that leads through switches cannot be
  /// told from what others send there, so the pair has to be mended or left out.
  Status check_faults() {
    if (faults_.empty()) return Status();
    const Ways ways = all_ways();
    std::map<std::string, std::set<std::string>> reached;
    for (const auto& [pair, fault] : faults_) {
      const auto& [from, to] = pair;
      const auto [known, fresh] = reached.try_emplace(from);
      if (fresh) known->second = beyond_switches(from, ways);
      if (!known->second.contains(to)) continue;
      return Status(
          Cause::kUnsupported,
          fmt::format("topology: data from \"{}\" to \"{}\" arrives wrong ({}): mend it (topocoll "
                      "topo check says how) and probe again, or plan without one of the two "
                      "(topocoll plan make --without {})",
                      from, to, fault, to));
    }
    return Status();
  }

  /// Where each node's links lead.
  using Ways = std::map<std::string, std::vector<std::string>>;
  [[nodiscard]] Ways all_ways() const {
    Ways ways;
    for (const TopologyEdge& edge : topology_.edges) {
      if (!index_.contains(edge.from) || !index_.contains(edge.to)) continue;
      if (is_measurement(edge) || is_out_of_date(edge)) continue;
      ways[edge.from].push_back(edge.to);
      if (is_tree_edge(edge)) ways[edge.to].push_back(edge.from);
    }
    return ways;
  }

  /// What `from` reaches by way of one switch or more, and of nothing else.
  [[nodiscard]] std::set<std::string> beyond_switches(const std::string& from,
                                                      const Ways& ways) const {
    std::set<std::string> reached;
    std::set<std::string> seen;
    std::vector<std::string> open{from};
    while (!open.empty()) {
      const std::string at = std::move(open.back());
      open.pop_back();
      const auto leads = ways.find(at);
      if (leads == ways.end()) continue;
      for (const std::string& next : leads->second) {
        if (at != from) reached.insert(next);
        if (is_switch(node(next).kind) && seen.insert(next).second) open.push_back(next);
      }
    }
    return reached;
  }

  /// Crossing from a host, package or NUMA node to one below it costs something that must be known.
  [[nodiscard]] bool is_one_place(const TopologyEdge& edge) const {
    if (edge.kind != "contains" || edge.bandwidth_gbps.best() || edge.upward_gbps.best())
      return false;
    if (is_rank_.contains(edge.from) || is_rank_.contains(edge.to)) return false;
    const NodeKind below = node(edge.to).kind;
    return below != NodeKind::kPackage && below != NodeKind::kNumaNode && below != NodeKind::kHost;
  }

  void join_places() {
    place_.resize(topology_.nodes.size());
    std::iota(place_.begin(), place_.end(), std::size_t{0});
    for (const TopologyEdge& edge : topology_.edges) {
      if (!index_.contains(edge.from) || !index_.contains(edge.to) || !is_one_place(edge)) continue;
      if (is_out_of_date(edge)) continue;
      const std::size_t above = place_of(edge.from);
      const std::size_t below = place_of(edge.to);
      if (above != below) place_[below] = above;
    }
  }

  std::size_t place_of(const std::string& id) {
    std::size_t i = index_.at(id);
    while (place_[i] != i) i = place_[i] = place_[place_[i]];
    return i;
  }
  const std::string& place_id(const std::string& id) { return topology_.nodes[place_of(id)].id; }

  void add_edge(const TopologyEdge& edge) {
    if (!index_.contains(edge.from) || !index_.contains(edge.to)) return;
    if (is_measurement(edge)) return;  // what CPUs and pairs reach is no capacity of a link
    if (is_out_of_date(edge)) return;
    if (faults_.contains({edge.from, edge.to})) {
      faulty_.push_back(fmt::format("{} -> {}", edge.from, edge.to));
      return;
    }
    const bool both = is_tree_edge(edge);
    add_direction(edge, edge.from, edge.to, edge.bandwidth_gbps);
    if (both) {
      add_direction(edge, edge.to, edge.from,
                    edge.upward_gbps.best() ? edge.upward_gbps : edge.bandwidth_gbps);
    }
  }

  void add_direction(const TopologyEdge& edge, const std::string& from, const std::string& to,
                     const Figure& gbps) {
    const std::string& a = place_id(from);
    const std::string& b = place_id(to);
    if (a == b) return;
    if (!gbps.best()) {
      const bool carries_data = !is_processor(node(to).kind) || !is_processor(node(from).kind) ||
                                edge.kind == "interconnect";
      if (carries_data) unknown_.push_back(fmt::format("{} -> {}", from, to));
      return;
    }
    links_[{from, to, edge.kind}] = out_.links.size();
    out_.links.push_back({a, b, *gbps.best(), gbps.measured.has_value(), edge.latency_ns.best(),
                          fmt::format("edge {} -> {} ({})", from, to, edge.kind)});
  }

  /// A group that measurement made wider than its members limits nothing; members that are wider
  /// than the group can never be used beyond it.
  void add_group(const CapacityGroup& group) {
    if (!group.bandwidth_gbps.best()) return;
    GraphDescription::Group result{group.id,
                                   {},
                                   *group.bandwidth_gbps.best(),
                                   group.bandwidth_gbps.measured.has_value(),
                                   fmt::format("group {}", group.id)};
    double sum = 0;
    const double capacity = result.measured ? quantised(result.gbps) : result.gbps;
    for (const EdgeDirection& member : group.members) {
      const auto found = links_.find({member.from, member.to, member.kind});
      if (found == links_.end()) continue;
      GraphDescription::Link& link = out_.links[found->second];
      const double has = link.measured ? quantised(link.gbps) : link.gbps;
      if (has > capacity) {
        link.gbps = result.gbps;
        link.measured = result.measured;
      }
      sum += std::min(has, capacity);
      result.links.push_back(static_cast<std::int64_t>(found->second));
    }
    if (result.links.size() >= 2 && capacity < sum) out_.groups.push_back(std::move(result));
  }

  /// Places that a link touches; the rest of the machine is of no use to a plan.
  void add_nodes() {
    std::set<std::string> known = is_rank_;
    for (const auto& link : out_.links) {
      for (const std::string& id : {link.from, link.to}) {
        if (known.insert(id).second) out_.nodes.push_back({id, false, fmt::format("node {}", id)});
      }
    }
  }

  const Topology& topology_;
  const std::vector<std::string>& ranks_;
  std::map<std::string, std::size_t> index_;
  std::set<std::string> is_rank_;
  std::map<std::pair<std::string, std::string>, std::string> faults_;  ///< of ways between ranks
  std::set<std::string> moved_;  ///< GPUs at an inferred switch
  std::vector<std::size_t> place_;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> links_;
  std::vector<std::string> unknown_;  ///< links that were left out, "a -> b"
  std::vector<std::string> faulty_;   ///< the same
  GraphDescription out_;
};

}  // namespace

Result<Graph> graph_from_topology(const Topology& topology, const std::vector<std::string>& ranks) {
  return TopologyReader(topology, ranks).read();
}

}  // namespace topocoll
