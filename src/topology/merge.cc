#include "topology/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/hash.h"
#include "topology/hwloc_reader.h"

namespace topocoll {
namespace {

constexpr std::size_t kMaxPrefixBytes = 64;  ///< ids have 256 at most
constexpr std::size_t kMaxNotes = 1000;      ///< that the format allows

/// The graph of one host out of its ranks' parts, lowest rank first.
class HostMerger {
 public:
  explicit HostMerger(const std::string& host_id) : host_id_(host_id) {}

  Status add(const TopologyPart& part) {
    rank_ = part.rank;
    ranks_.push_back(part.rank);
    if (result_.host.empty()) result_.host = part.topology.host;
    for (const TopologyNode& node : part.topology.nodes) {
      if (Status s = add_node(node); !s.ok()) return s;
    }
    for (const TopologyEdge& edge : part.topology.edges) {
      if (Status s = add_edge(edge); !s.ok()) return s;
    }
    for (const CapacityGroup& group : part.topology.groups) {
      if (groups_.insert(group.id).second) result_.groups.push_back(group);
    }
    for (const std::string& note : part.topology.notes) {
      if (notes_.insert(note).second) result_.notes.push_back(note);
    }
    return {};
  }

  Topology take() {
    for (TopologyNode& node : result_.nodes) {
      if (node.kind == NodeKind::kHost) node.attributes["ranks"] = cpu_ranges(ranks_);
    }
    return std::move(result_);
  }

 private:
  using EdgeKey = std::tuple<std::string, std::string, std::string>;
  struct Known {
    std::size_t index = 0;
    int rank = 0;  ///< that brought it
  };

  Status add_node(const TopologyNode& node) {
    const auto [at, added] = nodes_.try_emplace(node.id, Known{result_.nodes.size(), rank_});
    if (added) {
      result_.nodes.push_back(node);
      return {};
    }
    TopologyNode& known = result_.nodes[at->second.index];
    const std::string& id = node.id;
    const int before = at->second.rank;
    const auto size = [](const TopologyNode& n) {
      return n.kind == NodeKind::kCache ? n.size_bytes : std::nullopt;  // memory may be plugged in
    };
    for (Status s :
         {same(before, id, "kind", std::string(name(known.kind)), std::string(name(node.kind))),
          same(before, id, "label", known.label, node.label),
          same(before, id, "level", text(known.level), text(node.level)),
          same(before, id, "size_bytes", text(size(known)), text(size(node))),
          same(before, id, "bdf", known.bdf, node.bdf),
          same(before, id, "uuid", known.uuid, node.uuid)}) {
      if (!s.ok()) return s;
    }
    std::vector<int> cpus;
    std::set_union(known.cpus.begin(), known.cpus.end(), node.cpus.begin(), node.cpus.end(),
                   std::back_inserter(cpus));
    known.cpus = std::move(cpus);
    known.attributes.insert(node.attributes.begin(), node.attributes.end());
    if (known.uuid.empty()) known.uuid = node.uuid;
    if (known.label.empty()) known.label = node.label;
    return {};
  }

  Status add_edge(const TopologyEdge& edge) {
    if (is_tree_edge(edge)) {
      const auto [at, added] = parents_.try_emplace(edge.to, edge.from, rank_);
      const auto& [parent, before] = at->second;
      if (Status s = same(before, edge.to, "place in the tree", parent, edge.from); !s.ok())
        return s;
    }
    const auto [at, added] = edges_.try_emplace(EdgeKey{edge.from, edge.to, edge.kind},
                                                Known{result_.edges.size(), rank_});
    if (added) {
      result_.edges.push_back(edge);
      return {};
    }
    TopologyEdge& known = result_.edges[at->second.index];
    const std::string id = fmt::format("{} → {} ({})", edge.from, edge.to, edge.kind);
    const int before = at->second.rank;
    if (Status s = same(before, id, "count", text(known.count), text(edge.count)); !s.ok())
      return s;
    for (Status s : {take(before, id, "bandwidth_gbps", edge.bandwidth_gbps, known.bandwidth_gbps),
                     take(before, id, "latency_ns", edge.latency_ns, known.latency_ns),
                     take(before, id, "upward_gbps", edge.upward_gbps, known.upward_gbps)}) {
      if (!s.ok()) return s;
    }
    for (const auto& [name, figure] : edge.figures) {
      if (Status s = take(before, id, name.c_str(), figure, known.figures[name]); !s.ok()) return s;
    }
    if (known.fault.empty()) known.fault = edge.fault;
    return {};
  }

  template <class T>
  static std::string text(const std::optional<T>& value) {
    return value ? fmt::format("{}", *value) : "";
  }

  /// What one rank does not know contradicts nobody.
  [[nodiscard]] Status same(int before, const std::string& id, const char* field,
                            const std::string& theirs, const std::string& ours) const {
    if (theirs == ours || theirs.empty() || ours.empty()) return {};
    return Status::operation(
        Cause::kMismatch, {before, rank_}, 0, 0, "",
        fmt::format("ranks {} and {} are both on host {}, but {} of {} is {} on one and {} on the "
                    "other: give ranks of different hosts different TOPOCOLL_HOST_ID, or let all "
                    "ranks see the same devices",
                    before, rank_, host_id_, field, id, theirs, ours));
  }

  Status take(int before, const std::string& id, const char* field, const Figure& from,
              Figure& to) {
    if (Status s = same(before, id, field, text(to.declared), text(from.declared)); !s.ok())
      return s;
    if (!to.declared) to.declared = from.declared;
    if (!to.measured) {
      to.measured = from.measured;
      to.spread = from.spread;
    }
    return {};
  }

  const std::string& host_id_;
  int rank_ = 0;
  std::vector<int> ranks_;
  std::map<std::string, Known> nodes_;
  std::map<EdgeKey, Known> edges_;
  std::map<std::string, std::pair<std::string, int>> parents_;
  std::set<std::string> groups_;
  std::set<std::string> notes_;
  Topology result_;
};

/// Hosts' ids as beginnings of ids: as they are if they are short.
std::string prefix_of(const std::string& host_id) {
  return (host_id.size() <= kMaxPrefixBytes ? host_id : hash_text(host_id)) + "/";
}

void append(const std::string& prefix, Topology host, Topology& all) {
  const std::string name = host.host.empty() ? prefix.substr(0, prefix.size() - 1) : host.host;
  for (TopologyNode& node : host.nodes) {
    node.id = prefix + node.id;
    if (node.kind == NodeKind::kHost && node.label.empty()) node.label = name;
    all.nodes.push_back(std::move(node));
  }
  for (TopologyEdge& edge : host.edges) {
    edge.from = prefix + edge.from;
    edge.to = prefix + edge.to;
    all.edges.push_back(std::move(edge));
  }
  for (CapacityGroup& group : host.groups) {
    group.id = prefix + group.id;
    for (EdgeDirection& member : group.members) {
      member.from = prefix + member.from;
      member.to = prefix + member.to;
    }
    all.groups.push_back(std::move(group));
  }
  for (const std::string& note : host.notes) all.notes.push_back(name + ": " + note);
}

void limit_notes(std::vector<std::string>& notes) {
  if (notes.size() <= kMaxNotes) return;
  const std::size_t more = notes.size() - kMaxNotes + 1;
  notes.resize(kMaxNotes - 1);
  notes.push_back(fmt::format("{} more notes are left out", more));
}

}  // namespace

Result<Topology> merge_topologies(std::vector<TopologyPart> parts) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const TopologyPart& a, const TopologyPart& b) { return a.rank < b.rank; });
  std::vector<std::pair<std::string, HostMerger>> hosts;  // by their lowest rank
  std::map<std::string, std::size_t> index;
  for (const TopologyPart& part : parts) index.try_emplace(part.host_id, 0);
  for (auto& [id, at] : index) at = parts.size();
  for (const TopologyPart& part : parts) {
    std::size_t& at = index.at(part.host_id);
    if (at == parts.size()) {
      at = hosts.size();
      hosts.emplace_back(part.host_id, HostMerger(index.find(part.host_id)->first));
    }
    if (Status s = hosts[at].second.add(part); !s.ok()) return s;
  }
  Topology all;
  if (hosts.size() == 1) {
    all = hosts.front().second.take();
  } else {
    all.host = fmt::format("{} hosts", hosts.size());
    for (auto& [id, host] : hosts) append(prefix_of(id), host.take(), all);
  }
  limit_notes(all.notes);
  // Parts that are sound may make a cycle, or too much, together.
  auto checked = topology_from_json(to_json(all));
  if (!checked.ok()) return checked.status().annotated("the ranks' topologies together");
  return checked;
}

}  // namespace topocoll
