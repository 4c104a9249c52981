// A bare graph in JSON: nodes that are GPUs or switches, and directed links with their bandwidth,
// and with latencies and shared capacities where somebody knows them.
#include <fmt/format.h>

#include <set>
#include <utility>

#include "topology/checked_json.h"
#include "topology/file_kind.h"
#include "topology/formats/formats.h"

namespace topocoll {
namespace {

constexpr JsonLimits kLimits{32U << 20, 2'000'000, 16};
constexpr std::size_t kMaxNodes = 1U << 17;
constexpr std::size_t kMaxEdges = 1U << 18;
constexpr std::size_t kMaxIdBytes = 256;
constexpr double kMaxGbps = 1e6;
constexpr double kMaxLatencyNs = 1e12;
constexpr const char* kUnit = "GB/s per direction";

void check_unit(const JsonView& root) {
  if (!root.has("unit")) {
    root.fail(fmt::format("unit is missing: write \"unit\": \"{}\"", kUnit));
  } else if (root["unit"].text(kMaxIdBytes) != kUnit) {
    root["unit"].fail(fmt::format("expected \"{}\"", kUnit));
  }
}

void read_node(const JsonView& view, Topology& result, std::set<std::string>& ids) {
  view.members({"id", "kind"});
  TopologyNode node;
  node.id = view["id"].text(kMaxIdBytes);
  if (node.id.empty()) view["id"].fail("is empty");
  if (!ids.insert(node.id).second) {
    view["id"].fail(json_quote(node.id) + " is given to another node too");
  }
  const std::string kind = view["kind"].text(kMaxIdBytes);
  if (kind == "gpu") {
    node.kind = NodeKind::kGpu;
  } else if (kind == "sw") {
    node.kind = NodeKind::kSwitch;
  } else {
    view["kind"].fail("expected gpu or sw, found " + json_quote(kind));
  }
  result.nodes.push_back(std::move(node));
}

void read_edge(const JsonView& view, Topology& result, const std::set<std::string>& ids,
               std::set<std::pair<std::string, std::string>>& pairs) {
  if (view.array(3) != 3) return view.fail("expected [from, to, GB/s]");
  const auto end = [&](std::size_t i) {
    std::string id = view.at(i).text(kMaxIdBytes);
    if (!ids.contains(id)) view.at(i).fail("there is no node " + json_quote(id));
    return id;
  };
  TopologyEdge edge;
  edge.from = end(0);
  edge.to = end(1);
  edge.kind = "link";
  edge.bandwidth_gbps.declared = view.at(2).number(0, kMaxGbps);
  if (*edge.bandwidth_gbps.declared == 0) view.at(2).fail("a link without bandwidth: leave it out");
  if (edge.from == edge.to) view.at(1).fail("the edge ends where it begins");
  if (!pairs.emplace(edge.from, edge.to).second) view.fail("is given twice");
  result.edges.push_back(std::move(edge));
}

/// A number or null for each edge.
void read_latencies(const JsonView& list, Topology& result, const JsonErrors& errors) {
  const std::size_t count = list.array(kMaxEdges);
  if (errors.ok() && count != result.edges.size()) {
    return list.fail(fmt::format("{} latencies for {} edges", count, result.edges.size()));
  }
  for (std::size_t i = 0; errors.ok() && i < count; ++i) {
    if (list.at(i).is_null()) continue;
    result.edges[i].latency_ns.declared = list.at(i).number(0, kMaxLatencyNs);
  }
}

/// Edges, by their index, that share a capacity.
void read_groups(const JsonView& list, Topology& result, const JsonErrors& errors) {
  const std::size_t count = list.array(kMaxEdges);
  std::set<std::string> names;
  for (std::size_t i = 0; errors.ok() && i < count; ++i) {
    const JsonView view = list.at(i);
    view.members({"name", "edges", "gbps"});
    CapacityGroup group;
    group.id = view["name"].text(kMaxIdBytes);
    if (errors.ok() && group.id.empty()) view["name"].fail("is empty");
    if (!names.insert(group.id).second) view["name"].fail(json_quote(group.id) + " is given twice");
    const double gbps = view["gbps"].number(0, kMaxGbps);
    if (gbps == 0) view["gbps"].fail("a group without bandwidth: leave its edges out");
    group.bandwidth_gbps.declared = gbps;
    const JsonView members = view["edges"];
    const std::size_t size = members.array(result.edges.size());
    std::set<std::int64_t> edges;
    for (std::size_t m = 0; errors.ok() && m < size; ++m) {
      const std::int64_t edge =
          members.at(m).integer(0, static_cast<std::int64_t>(result.edges.size()) - 1);
      if (!errors.ok()) return;
      if (!edges.insert(edge).second) members.at(m).fail("is given twice");
      const TopologyEdge& e = result.edges[static_cast<std::size_t>(edge)];
      group.members.push_back({e.from, e.to, e.kind});
    }
    if (errors.ok() && size < 2) members.fail("a group has 2 edges or more");
    result.groups.push_back(std::move(group));
  }
}

}  // namespace

Result<Topology> read_graph_json(std::string_view text, const std::string& file) {
  const auto json = parse_json(text, file, kLimits);
  if (!json.ok()) return json.status();
  JsonErrors errors(file);
  const JsonView root(*json, errors);
  refuse_other_files(root, FileKind::kMachine);
  if (!errors.ok()) return errors.status();
  root.members(
      {"name", "source", "unit", "nodes", "edges", "latency_ns", "shared", "expect", "published"});
  Topology result;
  if (root.has("name")) result.host = root["name"].text(kMaxIdBytes);
  check_unit(root);
  std::set<std::string> ids;
  const JsonView nodes = root["nodes"];
  const std::size_t node_count = nodes.array(kMaxNodes);
  for (std::size_t i = 0; errors.ok() && i < node_count; ++i) read_node(nodes.at(i), result, ids);
  std::set<std::pair<std::string, std::string>> pairs;
  const JsonView edges = root["edges"];
  const std::size_t edge_count = edges.array(kMaxEdges);
  for (std::size_t i = 0; errors.ok() && i < edge_count; ++i) {
    read_edge(edges.at(i), result, ids, pairs);
  }
  if (root.has("latency_ns")) read_latencies(root["latency_ns"], result, errors);
  if (root.has("shared")) read_groups(root["shared"], result, errors);
  if (!errors.ok()) return errors.status();
  return result;
}

}  // namespace topocoll
