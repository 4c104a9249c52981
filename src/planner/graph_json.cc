// Graphs as JSON: {nodes, edges} with bandwidths in GB/s per direction.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "planner/graph.h"
#include "topology/checked_json.h"

namespace topocoll {
namespace {

constexpr std::size_t kMaxIdBytes = 256;
// An edge is four values: room for kMaxGraphLinks of them, nodes and groups. 10,000 ranks fit too,
// so that they are refused by their number and not by the size of the text.
constexpr JsonLimits kLimits{8U << 20, 1'000'000, 16};

bool is_unit_known(const std::string& unit) {
  return unit == "GB/s per direction" || unit == "GB/s";
}

void read_nodes(const JsonView& root, GraphDescription& out, JsonErrors& errors) {
  const JsonView nodes = root["nodes"];
  const std::size_t count = nodes.array(kLimits.values);
  for (std::size_t i = 0; errors.ok() && i < count; ++i) {
    const JsonView node = nodes.at(i);
    const std::string id = node["id"].text(kMaxIdBytes);
    const std::string kind = node["kind"].text(kMaxIdBytes);
    if (kind != "gpu" && kind != "cpu" && kind != "sw") {
      node["kind"].fail("expected gpu, cpu or sw, found " + json_quote(kind));
    }
    out.nodes.push_back({id, kind != "sw", node.path()});
  }
}

void read_edges(const JsonView& root, GraphDescription& out, JsonErrors& errors) {
  const JsonView edges = root["edges"];
  const std::size_t count = edges.array(kLimits.values);
  for (std::size_t i = 0; errors.ok() && i < count; ++i) {
    const JsonView edge = edges.at(i);
    if (edge.array(3) != 3) {
      edge.fail("expected [from, to, GB/s]");
      return;
    }
    GraphDescription::Link link;
    link.from = edge.at(0).text(kMaxIdBytes);
    link.to = edge.at(1).text(kMaxIdBytes);
    link.gbps = edge.at(2).number(kMinGraphGbps, kMaxGraphGbps);
    link.where = edge.path();
    out.links.push_back(std::move(link));
  }
}

void read_latencies(const JsonView& root, GraphDescription& out, JsonErrors& errors) {
  if (!root.has("latency_ns")) return;
  const JsonView list = root["latency_ns"];
  const std::size_t count = list.array(kLimits.values);
  if (errors.ok() && count != out.links.size()) {
    list.fail(fmt::format("{} latencies for {} edges", count, out.links.size()));
  }
  for (std::size_t i = 0; errors.ok() && i < count; ++i) {
    if (!list.at(i).is_null()) out.links[i].latency_ns = list.at(i).number(0, 1e12);
  }
}

void read_groups(const JsonView& root, GraphDescription& out, JsonErrors& errors) {
  if (!root.has("shared")) return;
  const JsonView groups = root["shared"];
  const std::size_t count = groups.array(kLimits.values);
  for (std::size_t i = 0; errors.ok() && i < count; ++i) {
    const JsonView group = groups.at(i);
    GraphDescription::Group result;
    group.members({"name", "edges", "gbps"});
    result.name = group["name"].text(kMaxIdBytes);
    result.gbps = group["gbps"].number(kMinGraphGbps, kMaxGraphGbps);
    result.where = group.path();
    const JsonView edges = group["edges"];
    const std::size_t members = edges.array(kLimits.values);
    for (std::size_t e = 0; errors.ok() && e < members; ++e) {
      result.links.push_back(edges.at(e).integer(0, kMaxGraphLinks));
    }
    out.groups.push_back(std::move(result));
  }
}

}  // namespace

Result<Graph> graph_from_json(std::string_view text, std::string_view what) {
  const Result<nlohmann::json> json = parse_json(text, what, kLimits);
  if (!json.ok()) return json.status();
  JsonErrors errors{std::string(what)};
  const JsonView root(*json, errors);
  GraphDescription description;
  if (root.has("unit")) {
    const std::string unit = root["unit"].text(kMaxIdBytes);
    if (!is_unit_known(unit))
      root["unit"].fail("expected GB/s per direction, found " + json_quote(unit));
  }
  read_nodes(root, description, errors);
  read_edges(root, description, errors);
  read_latencies(root, description, errors);
  read_groups(root, description, errors);
  if (!errors.ok()) return errors.status();
  return make_graph(description, what);
}

}  // namespace topocoll
