// The native JSON of a topology: declared and measured figures side by side, absent when unknown.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "topocoll/topology.h"
#include "topology/checked_json.h"
#include "topology/formats/formats.h"
#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr int kVersion = 1;
constexpr JsonLimits kLimits{32U << 20, 2'000'000, 8};
constexpr std::size_t kMaxNodes = 1U << 17;
constexpr std::size_t kMaxEdges = 1U << 18;
constexpr std::size_t kMaxNotes = 1000;
constexpr std::size_t kMaxDepth = 128;  // of the tree, its root included
constexpr std::size_t kMaxAttributes = 4096;
constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::size_t kMaxIdBytes = 256;
constexpr std::size_t kMaxShownName = 60;  // and the longest of a figure
constexpr int kMaxCpus = 1 << 16;
constexpr double kMaxPciSpeed = 1024;  // GT/s
constexpr int kMaxPciWidth = 64;
constexpr double kMaxFigure = 1e15;
constexpr int kMaxSamples = 1'000'000'000;
constexpr std::size_t kMaxFigures = 32;  // of one edge, beside those that every edge has

void append_figure(std::string_view key, const Figure& figure, std::string& text) {
  std::string members;
  const auto append = [&](std::string_view what, const std::optional<double>& value) {
    if (!value || !std::isfinite(*value)) return;
    fmt::format_to(std::back_inserter(members), "{}\"{}\": {}", members.empty() ? "" : ", ", what,
                   *value);
  };
  append("declared", figure.declared);
  append("measured", figure.measured);
  if (figure.spread && figure.measured && std::isfinite(*figure.measured)) {
    const Spread& s = *figure.spread;
    fmt::format_to(std::back_inserter(members),
                   ", \"spread\": {{\"low\": {}, \"high\": {}, \"best\": {}, \"samples\": {}}}",
                   s.low, s.high, s.best, s.samples);
  }
  if (!members.empty()) fmt::format_to(std::back_inserter(text), ", \"{}\": {{{}}}", key, members);
}

/// A word in lower case that ends in its unit: "loads_gbps", "loaded_latency_ns"; not one that
/// stands beside the further figures.
bool is_figure_name(std::string_view name) {
  if (name == "bandwidth_gbps" || name == "latency_ns" || name == "upward_gbps") return false;
  if (name.size() > kMaxShownName) return false;
  const bool has_unit = name.ends_with("_gbps") || name.ends_with("_ns");
  return has_unit && name.front() != '_' && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

void append_pci_link(const PciLink& link, std::string& text) {
  std::string members;
  const auto append = [&](std::string_view what, const auto& value) {
    if (!value) return;
    fmt::format_to(std::back_inserter(members), "{}\"{}\": {}", members.empty() ? "" : ", ", what,
                   *value);
  };
  append("speed_gts", link.speed_gts);
  append("width", link.width);
  append("max_speed_gts", link.max_speed_gts);
  append("max_width", link.max_width);
  if (!members.empty()) text += ", \"pci_link\": {" + members + "}";
}

void append_node(const TopologyNode& node, std::string& text) {
  auto to = std::back_inserter(text);
  fmt::format_to(to, "{{\"id\": {}, \"kind\": \"{}\"", json_quote(node.id), name(node.kind));
  if (!node.label.empty()) fmt::format_to(to, ", \"label\": {}", json_quote(node.label));
  if (node.os_index) fmt::format_to(to, ", \"os_index\": {}", *node.os_index);
  if (node.level) fmt::format_to(to, ", \"level\": {}", *node.level);
  if (node.size_bytes) fmt::format_to(to, ", \"size_bytes\": {}", *node.size_bytes);
  fmt::format_to(to, ", \"cpus\": [{}]", fmt::join(node.cpus, ", "));
  if (!node.attributes.empty()) {
    const char* separator = ", \"attributes\": {";
    for (const auto& [key, value] : node.attributes) {
      fmt::format_to(to, "{}{}: {}", separator, json_quote(key), json_quote(value));
      separator = ", ";
    }
    text += '}';
  }
  if (!node.bdf.empty()) text += ", \"bdf\": " + json_quote(node.bdf);
  if (!node.uuid.empty()) text += ", \"uuid\": " + json_quote(node.uuid);
  append_pci_link(node.pci_link, text);
  text += '}';
}

void append_direction(const EdgeDirection& direction, std::string& text) {
  fmt::format_to(std::back_inserter(text), "{{\"from\": {}, \"to\": {}, \"kind\": {}}}",
                 json_quote(direction.from), json_quote(direction.to), json_quote(direction.kind));
}

void append_group(const CapacityGroup& group, std::string& text) {
  text += "{\"id\": " + json_quote(group.id);
  append_figure("bandwidth_gbps", group.bandwidth_gbps, text);
  const char* separator = ", \"members\": [";
  for (const EdgeDirection& member : group.members) {
    text += separator;
    append_direction(member, text);
    separator = ", ";
  }
  text += group.members.empty() ? ", \"members\": []}" : "]}";
}

void append_edge(const TopologyEdge& edge, std::string& text) {
  fmt::format_to(std::back_inserter(text), "{{\"from\": {}, \"to\": {}, \"kind\": {}",
                 json_quote(edge.from), json_quote(edge.to), json_quote(edge.kind));
  append_figure("bandwidth_gbps", edge.bandwidth_gbps, text);
  append_figure("latency_ns", edge.latency_ns, text);
  append_figure("upward_gbps", edge.upward_gbps, text);
  if (edge.count) fmt::format_to(std::back_inserter(text), ", \"count\": {}", *edge.count);
  std::string figures;
  for (const auto& [key, figure] : edge.figures) append_figure(key, figure, figures);
  if (!figures.empty()) text += ", \"figures\": {" + figures.substr(2) + "}";  // past the comma
  if (!edge.fault.empty()) text += ", \"fault\": " + json_quote(edge.fault);
  text += '}';
}

template <class List, class Append>
void append_list(std::string_view key, const List& list, std::string& text, Append append) {
  fmt::format_to(std::back_inserter(text), ",\n\"{}\": [", key);
  const char* separator = "\n  ";
  for (const auto& element : list) {
    text += separator;
    append(element, text);
    separator = ",\n  ";
  }
  text += "]";
}

class Reader {
 public:
  explicit Reader(JsonErrors& errors) : errors_(errors) {}

  Topology read(const JsonView& root) {
    root.members({"topocoll_topology", "host", "nodes", "edges", "groups", "notes"});
    root["topocoll_topology"].integer(kVersion, kVersion);
    result_.host = root["host"].text(kMaxIdBytes);
    each(root["nodes"], kMaxNodes, [&](const JsonView& view) { read_node(view); });
    each(root["edges"], kMaxEdges, [&](const JsonView& view) { read_edge(view); });
    if (root.has("groups")) {
      each(root["groups"], kMaxEdges, [&](const JsonView& view) { read_group(view); });
    }
    each(root["notes"], kMaxNotes,
         [&](const JsonView& view) { result_.notes.push_back(view.text(kMaxTextBytes)); });
    check_cycles(root);
    check_depth(root);
    return std::move(result_);
  }

 private:
  template <class Read>
  void each(const JsonView& list, std::size_t max, Read read_element) {
    const std::size_t count = list.array(max);
    for (std::size_t i = 0; errors_.ok() && i < count; ++i) read_element(list.at(i));
  }

  void read_node(const JsonView& view) {
    view.members({"id", "kind", "label", "os_index", "level", "size_bytes", "cpus", "attributes",
                  "bdf", "uuid", "pci_link"});
    TopologyNode node;
    node.id = view["id"].text(kMaxIdBytes);
    if (node.id.empty()) view["id"].fail("is empty");
    if (!index_.emplace(node.id, result_.nodes.size()).second) {
      view["id"].fail(json_quote(node.id) + " is given to another node too");
    }
    read_kind(view["kind"], node);
    if (view.has("label")) node.label = view["label"].text(kMaxTextBytes);
    if (view.has("os_index")) {
      node.os_index = static_cast<int>(view["os_index"].integer(0, INT32_MAX));
    }
    if (view.has("level")) node.level = static_cast<int>(view["level"].integer(1, 9));
    if (view.has("size_bytes")) node.size_bytes = view["size_bytes"].natural(UINT64_MAX);
    each(view["cpus"], kMaxCpus, [&](const JsonView& cpu) {
      // Ascending, so no CPU is listed twice.
      const int lowest = node.cpus.empty() ? 0 : node.cpus.back() + 1;
      node.cpus.push_back(static_cast<int>(cpu.integer(lowest, kMaxCpus)));
    });
    if (view.has("bdf")) read_bdf(view["bdf"], node);
    if (view.has("uuid")) node.uuid = view["uuid"].text(kMaxIdBytes);
    if (view.has("pci_link")) node.pci_link = read_pci_link(view["pci_link"]);
    if (view.has("attributes")) {
      const JsonView attributes = view["attributes"];
      for (const std::string& key : attributes.keys(kMaxAttributes)) {
        node.attributes[key] = attributes[key].text(kMaxTextBytes);
      }
    }
    result_.nodes.push_back(std::move(node));
  }

  static void read_kind(const JsonView& view, TopologyNode& node) {
    const std::string text = view.text(kMaxIdBytes);
    std::string known;
    for (int k = 0; k < kNumNodeKinds; ++k) {
      known += (k == 0 ? "" : ", ") + std::string(name(static_cast<NodeKind>(k)));
      if (name(static_cast<NodeKind>(k)) != text) continue;
      node.kind = static_cast<NodeKind>(k);
      return;
    }
    view.fail("expected one of " + known + ", found " + json_quote(text));
  }

  void read_bdf(const JsonView& view, TopologyNode& node) {
    node.bdf = view.text(kMaxIdBytes);
    if (canonical_bdf(node.bdf) != node.bdf) {
      view.fail("expected a PCI address such as \"0000:4e:00.0\", found " + json_quote(node.bdf));
    }
  }

  static PciLink read_pci_link(const JsonView& view) {
    view.members({"speed_gts", "width", "max_speed_gts", "max_width"});
    PciLink link;
    if (view.has("speed_gts")) link.speed_gts = view["speed_gts"].number(0.1, kMaxPciSpeed);
    if (view.has("width")) link.width = static_cast<int>(view["width"].integer(1, kMaxPciWidth));
    if (view.has("max_speed_gts")) {
      link.max_speed_gts = view["max_speed_gts"].number(0.1, kMaxPciSpeed);
    }
    if (view.has("max_width")) {
      link.max_width = static_cast<int>(view["max_width"].integer(1, kMaxPciWidth));
    }
    return link;
  }

  void read_group(const JsonView& view) {
    view.members({"id", "bandwidth_gbps", "members"});
    CapacityGroup group;
    group.id = view["id"].text(kMaxIdBytes);
    if (group.id.empty()) view["id"].fail("is empty");
    if (!group_ids_.insert(group.id).second) {
      view["id"].fail(json_quote(group.id) + " is given to another group too");
    }
    if (view.has("bandwidth_gbps")) group.bandwidth_gbps = read_figure(view["bandwidth_gbps"]);
    each(view["members"], kMaxEdges, [&](const JsonView& member) {
      member.members({"from", "to", "kind"});
      EdgeDirection direction{read_end(member["from"]), read_end(member["to"]),
                              member["kind"].text(kMaxIdBytes)};
      const bool tree = direction.kind == "contains" || direction.kind == "pci";
      if (!edge_keys_.contains(key_of(direction.from, direction.to, direction.kind)) &&
          !(tree && edge_keys_.contains(key_of(direction.to, direction.from, direction.kind)))) {
        member.fail("there is no such edge");
      }
      group.members.push_back(std::move(direction));
    });
    result_.groups.push_back(std::move(group));
  }

  static std::string key_of(const std::string& from, const std::string& to,
                            const std::string& kind) {
    return json_quote(from) + json_quote(to) + kind;
  }

  void read_edge(const JsonView& view) {
    view.members({"from", "to", "kind", "bandwidth_gbps", "latency_ns", "upward_gbps", "count",
                  "figures", "fault"});
    TopologyEdge edge;
    edge.from = read_end(view["from"]);
    edge.to = read_end(view["to"]);
    edge.kind = view["kind"].text(kMaxIdBytes);
    const auto& kinds = edge_kinds();
    if (std::find(kinds.begin(), kinds.end(), edge.kind) == kinds.end()) {
      view["kind"].fail(fmt::format("expected one of {}, found {}", fmt::join(kinds, ", "),
                                    json_quote(edge.kind)));
    }
    if (edge.from == edge.to) view["to"].fail("the edge ends where it begins");
    if (is_tree_edge(edge)) {
      const auto [known, added] = parent_edge_.emplace(edge.to, result_.edges.size());
      if (!added && errors_.ok()) {
        view["to"].fail(fmt::format("{} is contained in {} already", json_quote(edge.to),
                                    json_quote(result_.edges[known->second].from)));
      }
    }
    if (!edge_keys_.insert(key_of(edge.from, edge.to, edge.kind)).second && errors_.ok()) {
      view.fail("is given twice");
    }
    if (view.has("bandwidth_gbps")) edge.bandwidth_gbps = read_figure(view["bandwidth_gbps"]);
    if (view.has("latency_ns")) edge.latency_ns = read_figure(view["latency_ns"]);
    if (view.has("upward_gbps")) {
      if (!is_tree_edge(edge)) view["upward_gbps"].fail("only tree edges have it");
      edge.upward_gbps = read_figure(view["upward_gbps"]);
    }
    if (view.has("count")) edge.count = static_cast<int>(view["count"].integer(1, kMaxLinks));
    if (view.has("figures")) read_figures(view["figures"], edge);
    if (view.has("fault")) read_fault(view["fault"], edge);
    result_.edges.push_back(std::move(edge));
  }

  static void read_figures(const JsonView& view, TopologyEdge& edge) {
    if (edge.kind != "transfer") view.fail("only transfers have them");
    for (const std::string& key : view.keys(kMaxFigures)) {
      if (!is_figure_name(key)) {
        view.fail(
            fmt::format("expected a name of a further figure that ends in _gbps or _ns, found {}",
                        json_quote(key.substr(0, kMaxShownName))));
      }
      edge.figures[key] = read_figure(view[key]);
    }
  }

  static void read_fault(const JsonView& view, TopologyEdge& edge) {
    if (edge.kind != "transfer") view.fail("only transfers have one");
    edge.fault = view.text(kMaxTextBytes);
    if (edge.fault.empty()) view.fail("is empty");
  }

  std::string read_end(const JsonView& view) {
    std::string id = view.text(kMaxIdBytes);
    if (!index_.contains(id)) view.fail("there is no node " + json_quote(id));
    return id;
  }

  static Figure read_figure(const JsonView& view) {
    view.members({"declared", "measured", "spread"});
    Figure figure;
    if (view.has("declared")) figure.declared = view["declared"].number(0, kMaxFigure);
    if (view.has("measured")) figure.measured = view["measured"].number(0, kMaxFigure);
    if (view.has("spread")) figure.spread = read_spread(view["spread"], figure);
    return figure;
  }

  static Spread read_spread(const JsonView& view, const Figure& figure) {
    view.members({"low", "high", "best", "samples"});
    Spread spread{view["low"].number(0, kMaxFigure), view["high"].number(0, kMaxFigure),
                  view["best"].number(0, kMaxFigure),
                  static_cast<int>(view["samples"].integer(1, kMaxSamples))};
    if (!figure.measured) {
      view.fail("belongs to a measured figure, and there is none");
    } else if (spread.low > *figure.measured || spread.high < *figure.measured) {
      view.fail(fmt::format("{} to {} does not hold the measured {}", spread.low, spread.high,
                            *figure.measured));
    }
    return spread;
  }

  /// Every node has one parent at most; following parents must end.
  void check_cycles(const JsonView& root) {
    if (!errors_.ok()) return;
    std::unordered_map<std::string_view, std::size_t> seen_from;  // node -> the walk that met it
    const JsonView edges = root["edges"];
    for (std::size_t walk = 0; walk < result_.edges.size(); ++walk) {
      if (!is_tree_edge(result_.edges[walk])) continue;
      std::string_view id = result_.edges[walk].to;
      while (seen_from.emplace(id, walk).second) {
        const auto up = parent_edge_.find(std::string(id));
        if (up == parent_edge_.end()) break;
        id = result_.edges[up->second].from;
      }
      const auto up = parent_edge_.find(std::string(id));
      if (up == parent_edge_.end() || seen_from[id] != walk) continue;
      return edges.at(walk).fail(fmt::format("a cycle: {} contains itself", json_quote(id)));
    }
  }

  /// No machine is so deep, and what looks at all that stands above each part relies on it.
  void check_depth(const JsonView& root) {
    if (!errors_.ok()) return;
    std::unordered_map<std::string_view, std::size_t> depths;
    for (std::size_t walk = 0; walk < result_.edges.size(); ++walk) {
      if (!is_tree_edge(result_.edges[walk])) continue;
      std::vector<std::string_view> below;
      std::string_view id = result_.edges[walk].to;
      while (!depths.contains(id)) {
        below.push_back(id);
        const auto up = parent_edge_.find(std::string(id));
        if (up == parent_edge_.end()) break;
        id = result_.edges[up->second].from;
      }
      std::size_t depth = below.empty() || below.back() == id ? 0 : depths.at(id);
      for (auto part = below.rbegin(); part != below.rend(); ++part) depths[*part] = ++depth;
      if (depth <= kMaxDepth) continue;
      return root["edges"].at(walk).fail(fmt::format("{} stands below more than {} others",
                                                     json_quote(result_.edges[walk].to),
                                                     kMaxDepth - 1));
    }
  }

  JsonErrors& errors_;
  Topology result_;
  std::unordered_map<std::string, std::size_t> index_;        // id -> nodes[]
  std::unordered_map<std::string, std::size_t> parent_edge_;  // id -> edges[] that contains it
  std::unordered_set<std::string> edge_keys_;
  std::unordered_set<std::string> group_ids_;
};

}  // namespace

std::string to_json(const Topology& topology) {
  std::string text = fmt::format("{{\n\"topocoll_topology\": {},\n\"host\": {}", kVersion,
                                 json_quote(topology.host));
  append_list("nodes", topology.nodes, text, append_node);
  append_list("edges", topology.edges, text, append_edge);
  if (!topology.groups.empty()) append_list("groups", topology.groups, text, append_group);
  append_list("notes", topology.notes, text,
              [](const std::string& note, std::string& to) { to += json_quote(note); });
  return text + "\n}\n";
}

Result<Topology> topology_from_json(std::string_view text) {
  const Result<nlohmann::json> json = parse_json(text, "topology", kLimits);
  if (!json.ok()) return json.status();
  JsonErrors errors("topology");
  Topology result = Reader(errors).read(JsonView(*json, errors));
  if (!errors.ok()) return errors.status();
  return result;
}

}  // namespace topocoll
