#include "topology/views/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "topology/figure_text.h"
#include "topology/hwloc_reader.h"

namespace topocoll {
namespace {

constexpr int kMaxDepth = 64;

void append_figure(std::string& text, const Figure& figure, const char* unit) {
  const auto append = [&](const std::optional<double>& value, const char* origin) {
    if (!value) return;
    text += fmt::format("{}{:.4g} {} {}", text.empty() ? "" : ", ", *value, unit, origin);
  };
  append(figure.declared, "declared");
  append(figure.measured, "measured");
}

}  // namespace

const char* fill_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kHost:
      return "#f7f7f7";
    case NodeKind::kPackage:
      return "#eeeeee";
    case NodeKind::kNumaNode:
      return "#e3ecf7";
    case NodeKind::kPciBridge:
      return "#fff6dd";
    case NodeKind::kGpu:
      return "#d5efd5";
    case NodeKind::kNvSwitch:
    case NodeKind::kSwitch:
      return "#e8dcf5";
    case NodeKind::kNic:
    case NodeKind::kNicPort:
      return "#d6eef2";
    default:
      return "#ffffff";
  }
}

const char* colour_of(const std::string& kind) {
  if (kind == "nvlink") return "#3a8f1e";
  if (kind == "xgmi") return "#b8541a";
  if (kind == "c2c") return "#1e6f8f";
  return kind == "network" ? "#1e5fb8" : "#666666";
}

std::string figure_words(const TopologyEdge& edge) {
  std::string text;
  append_figure(text, edge.bandwidth_gbps, "GB/s");
  append_figure(text, edge.latency_ns, "ns");
  return text;
}

Picture::Picture(const Topology& topology, const std::vector<Finding>& findings)
    : topology_(topology), tree_(topology) {
  for (const Finding& finding : findings) {
    for (const std::string& id : finding.nodes) {
      findings_[id].push_back(
          fmt::format("{} {}: {}", name(finding.severity), finding.code, finding.text));
      if (finding.severity != Severity::kInfo) bad_.insert(id);
    }
  }
  for (const TopologyEdge& edge : topology.edges) {
    const std::size_t from = tree_.index(edge.from);
    const std::size_t to = tree_.index(edge.to);
    if (!is_measurement(edge) || from == TopologyTree::kNone || to == TopologyTree::kNone) continue;
    if (edge.kind == "memory") reads_[from].push_back(&edge);
    if (edge.kind != "transfer") continue;
    transfers_[from].push_back(&edge);
    transfers_[to].push_back(&edge);
  }
}

bool Picture::is_drawn(std::size_t node) const {
  const NodeKind kind = topology_.nodes[node].kind;
  return kind < NodeKind::kCache || kind > NodeKind::kCpu;
}

std::vector<std::size_t> Picture::drawn_children(std::size_t node) const {
  std::vector<std::size_t> drawn;
  std::vector<std::pair<std::size_t, int>> open{{node, 0}};
  while (!open.empty()) {
    const auto [next, depth] = open.back();
    open.pop_back();
    const auto& children = tree_.children(next);
    for (auto child = children.rbegin(); child != children.rend(); ++child) {
      if (!is_drawn(*child) && depth < kMaxDepth) open.emplace_back(*child, depth + 1);
    }
    for (const std::size_t child : children) {
      if (is_drawn(child)) drawn.push_back(child);
    }
  }
  return drawn;
}

std::string Picture::title(std::size_t i) const {
  const TopologyNode& node = topology_.nodes[i];
  switch (node.kind) {
    case NodeKind::kHost:
      return topology_.host.empty() ? node.id : topology_.host;
    case NodeKind::kNumaNode:
      return node.cpus.empty() ? node.id
                               : fmt::format("{}  cpus {}", node.id, cpu_ranges(node.cpus));
    case NodeKind::kNicPort:
      return node.label.empty() ? node.id : node.id.substr(node.id.find(':') + 1);
    default:
      return node.id;
  }
}

std::string Picture::details(std::size_t i) const {
  const TopologyNode& node = topology_.nodes[i];
  std::string text = node.id;
  auto to = std::back_inserter(text);
  if (!node.label.empty()) fmt::format_to(to, "\n{}", node.label);
  if (!node.uuid.empty()) fmt::format_to(to, "\nuuid {}", node.uuid);
  if (node.size_bytes) fmt::format_to(to, "\n{} bytes", *node.size_bytes);
  const PciLink& link = node.pci_link;
  if (link.speed_gts) fmt::format_to(to, "\nlink {:g} GT/s", *link.speed_gts);
  if (link.width) fmt::format_to(to, " x{}", *link.width);
  if (link.max_speed_gts && link.max_width) {
    fmt::format_to(to, " of {:g} GT/s x{}", *link.max_speed_gts, *link.max_width);
  }
  const TopologyEdge* above = tree_.edge_above(i);
  if (above != nullptr && !figure_words(*above).empty()) text += "\n" + figure_words(*above);
  for (const auto& [key, value] : node.attributes) fmt::format_to(to, "\n{}: {}", key, value);
  const auto transfers = transfers_.find(i);
  if (node.kind == NodeKind::kGpu && transfers != transfers_.end()) {
    for (const TopologyEdge* transfer : transfers->second)
      text += "\n" + transfer_words(*transfer, true);
  }
  if (const auto reads = reads_.find(i); reads != reads_.end()) {
    for (const TopologyEdge* read : reads->second) {
      fmt::format_to(to, "\nread by {}: {}", read->to, figure_words(*read));
    }
  }
  const auto found = findings_.find(node.id);
  if (found == findings_.end()) return text;
  for (const std::string& finding : found->second) text += "\n" + finding;
  return text;
}

bool Picture::is_bad(std::size_t i) const { return bad_.contains(topology_.nodes[i].id); }

std::vector<DrawnLink> Picture::links() const {
  std::vector<DrawnLink> links;
  std::set<std::tuple<std::size_t, std::size_t, std::string>> seen;
  for (const TopologyEdge& edge : topology_.edges) {
    const std::size_t from = tree_.index(edge.from);
    const std::size_t to = tree_.index(edge.to);
    if (is_tree_edge(edge) || from == TopologyTree::kNone || to == TopologyTree::kNone) continue;
    if (is_measurement(edge)) continue;
    if (!is_drawn(from) || !is_drawn(to)) continue;
    if (!seen.emplace(std::min(from, to), std::max(from, to), edge.kind).second) continue;
    DrawnLink link{from, to, edge.kind, edge.kind, false};
    if (edge.count) link.text += fmt::format(" ×{}", *edge.count);
    const std::string figures = figure_words(edge);
    if (!figures.empty()) link.text += ", " + figures;
    link.bad = is_bad(from) && is_bad(to);
    links.push_back(std::move(link));
  }
  add_transfers(links);
  return links;
}

/// "gpu:a → gpu:b: stores 392 GB/s (391 to 393), ...".
std::string Picture::transfer_words(const TopologyEdge& transfer, bool brief) const {
  const std::size_t from = tree_.index(transfer.from);
  const bool memory = topology_.nodes[from].kind == NodeKind::kNumaNode;
  return fmt::format("{} → {}: {}", transfer.from, transfer.to,
                     brief ? transfer_brief(transfer, memory)
                           : fmt::format("{}", fmt::join(transfer_texts(transfer, memory), ", ")));
}

void Picture::add_transfers(std::vector<DrawnLink>& links) const {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> drawn;
  for (std::size_t i = 0; i < links.size(); ++i) {
    drawn.try_emplace(std::minmax(links[i].from, links[i].to), i);
  }
  for (const TopologyEdge& edge : topology_.edges) {
    const std::size_t from = tree_.index(edge.from);
    const std::size_t to = tree_.index(edge.to);
    if (edge.kind != "transfer" || from == TopologyTree::kNone || to == TopologyTree::kNone)
      continue;
    const auto known = drawn.find(std::minmax(from, to));
    const bool wrong = !edge.fault.empty();
    if (known != drawn.end()) {
      DrawnLink& link = links[known->second];
      link.text += "\n" + transfer_words(edge, false);
      link.bad = link.bad || wrong;
    } else if (wrong && is_drawn(from) && is_drawn(to)) {
      drawn[std::minmax(from, to)] = links.size();
      links.push_back({from, to, edge.kind, transfer_words(edge, false), true});
    }
  }
}

}  // namespace topocoll
