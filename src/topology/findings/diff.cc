#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/plain_text.h"
#include "topocoll/findings.h"
#include "topology/checked_json.h"
#include "topology/hwloc_reader.h"

namespace topocoll {
namespace {

constexpr double kSameFigure = 1e-3;
constexpr double kSameMeasured = 0.05;  ///< medians of one thing vary so from run to run
constexpr double kSameMemory = 0.1;     ///< what a kernel keeps for itself varies from boot to boot

/// Attributes that change while nothing is done to the machine.
constexpr std::array kVolatile = {"temperature_c", "utilization_percent", "shm_free_bytes",
                                  "idle_link"};

/// The text of a field and how near another must be to be the same.
struct Field {
  std::string text;
  double value = 0;
  double tolerance = 0;  ///< a part of the larger one; 0: texts are compared
  std::optional<Spread> spread{};
};
using Fields = std::map<std::string, Field>;

template <class T>
void put(Fields& fields, const char* key, const std::optional<T>& value) {
  if (value) fields[key] = {fmt::format("{}", *value)};
}

Fields fields_of(const TopologyNode& node) {
  Fields fields{{"kind", {std::string(name(node.kind))}}};
  if (!node.label.empty()) fields["label"] = {node.label};
  put(fields, "os_index", node.os_index);
  put(fields, "size_bytes", node.size_bytes);
  if (node.size_bytes && node.kind == NodeKind::kNumaNode) {
    fields["size_bytes"].value = static_cast<double>(*node.size_bytes);
    fields["size_bytes"].tolerance = kSameMemory;
  }
  put(fields, "level", node.level);
  if (!node.cpus.empty()) fields["cpus"] = {cpu_ranges(node.cpus)};
  if (!node.uuid.empty()) fields["uuid"] = {node.uuid};
  put(fields, "pci_link.speed_gts", node.pci_link.speed_gts);
  put(fields, "pci_link.width", node.pci_link.width);
  put(fields, "pci_link.max_speed_gts", node.pci_link.max_speed_gts);
  put(fields, "pci_link.max_width", node.pci_link.max_width);
  for (const auto& [key, value] : node.attributes) {
    if (std::find(kVolatile.begin(), kVolatile.end(), key) != kVolatile.end()) continue;
    fields["attributes." + key] = {value};
  }
  return fields;
}

void put(Fields& fields, const std::string& key, const Figure& figure) {
  const auto text = [](double value) { return fmt::format("{:.6g}", value); };
  if (figure.declared) {
    fields[key + ".declared"] = {text(*figure.declared), *figure.declared, kSameFigure};
  }
  if (figure.measured) {
    fields[key + ".measured"] = {text(*figure.measured), *figure.measured, kSameMeasured,
                                 figure.spread};
  }
}

Fields fields_of(const TopologyEdge& edge) {
  Fields fields;
  put(fields, "bandwidth_gbps", edge.bandwidth_gbps);
  put(fields, "latency_ns", edge.latency_ns);
  put(fields, "upward_gbps", edge.upward_gbps);
  put(fields, "count", edge.count);
  for (const auto& [name, figure] : edge.figures) put(fields, "figures." + name, figure);
  if (!edge.fault.empty()) fields["fault"] = {edge.fault};
  return fields;
}

Fields fields_of(const CapacityGroup& group) {
  Fields fields;
  put(fields, "bandwidth_gbps", group.bandwidth_gbps);
  std::string members;
  for (const EdgeDirection& m : group.members) {
    members += fmt::format("{}{} → {} ({})", members.empty() ? "" : ", ", m.from, m.to, m.kind);
  }
  fields["members"] = {members};
  return fields;
}

/// Notes compare as texts.
Fields fields_of(const std::string& /*note*/) { return {}; }

/// Measured figures differ only where their intervals, if both have one, do not touch.
bool same(const Field& a, const Field& b) {
  if (a.text == b.text) return true;
  if (a.tolerance == 0 || b.tolerance == 0) return false;
  if (a.spread && b.spread && a.spread->low <= b.spread->high && b.spread->low <= a.spread->high) {
    return true;
  }
  return std::fabs(a.value - b.value) <=
         a.tolerance * std::max(std::fabs(a.value), std::fabs(b.value));
}

class Differ {
 public:
  template <class List, class Id>
  void compare(const char* what, const List& before, const List& after, Id id_of) {
    std::map<std::string, Fields> others;
    for (const auto& element : after) others.emplace(id_of(element), fields_of(element));
    std::set<std::string> seen;
    for (const auto& element : before) {
      const std::string id = id_of(element);
      if (!seen.insert(id).second) continue;
      const auto other = others.find(id);
      if (other == others.end()) {
        found_.push_back({what, id, "", "there", ""});
      } else {
        compare_fields(what, id, fields_of(element), other->second);
      }
    }
    for (const auto& element : after) {
      const std::string id = id_of(element);
      if (seen.insert(id).second) found_.push_back({what, id, "", "", "there"});
    }
  }

  void compare_fields(const char* what, const std::string& id, const Fields& before,
                      const Fields& after) {
    std::set<std::string> keys;
    for (const auto& [key, value] : before) keys.insert(key);
    for (const auto& [key, value] : after) keys.insert(key);
    for (const std::string& key : keys) {
      const auto a = before.find(key);
      const auto b = after.find(key);
      const Field x = a == before.end() ? Field{} : a->second;
      const Field y = b == after.end() ? Field{} : b->second;
      if (!same(x, y)) found_.push_back({what, id, key, x.text, y.text});
    }
  }

  std::vector<TopologyDifference> take() { return std::move(found_); }

 private:
  std::vector<TopologyDifference> found_;
};

}  // namespace

std::vector<TopologyDifference> diff_topologies(const Topology& before, const Topology& after) {
  Differ differ;
  Fields a;
  Fields b;
  if (!before.host.empty()) a["name"] = {before.host};
  if (!after.host.empty()) b["name"] = {after.host};
  differ.compare_fields("host", "", a, b);
  differ.compare("node", before.nodes, after.nodes, [](const TopologyNode& n) { return n.id; });
  differ.compare("edge", before.edges, after.edges, [](const TopologyEdge& e) {
    return fmt::format("{} → {} ({})", e.from, e.to, e.kind);
  });
  differ.compare("group", before.groups, after.groups, [](const CapacityGroup& g) { return g.id; });
  differ.compare("note", before.notes, after.notes, [](const std::string& n) { return n; });
  return differ.take();
}

std::string render_text(const std::vector<TopologyDifference>& differences) {
  std::string text;
  for (const TopologyDifference& d : differences) {
    const std::string subject = d.id.empty() ? d.what : d.what + " " + d.id;
    if (d.field.empty()) {
      text += fmt::format("{} {}\n", d.before.empty() ? "+" : "-", subject);
    } else {
      text += fmt::format("~ {}  {}: {} → {}\n", subject, d.field,
                          d.before.empty() ? "(absent)" : d.before,
                          d.after.empty() ? "(absent)" : d.after);
    }
  }
  return plain_text(std::move(text));
}

std::string to_json(const std::vector<TopologyDifference>& differences) {
  std::string text = "[";
  const char* separator = "\n  ";
  for (const TopologyDifference& d : differences) {
    text += fmt::format("{}{{\"what\": \"{}\", \"id\": {}", separator, d.what, json_quote(d.id));
    if (!d.field.empty()) text += ", \"field\": " + json_quote(d.field);
    if (!d.before.empty()) text += ", \"before\": " + json_quote(d.before);
    if (!d.after.empty()) text += ", \"after\": " + json_quote(d.after);
    text += "}";
    separator = ",\n  ";
  }
  return text + "]\n";
}

}  // namespace topocoll
