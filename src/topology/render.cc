// An indented tree. What has exactly one child with the same CPUs shares its line, and siblings
// that look alike share one line too, so that a machine of 192 cores still fits on a screen. A
// chain of PCI bridges shares the line of what hangs below it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/plain_text.h"
#include "topocoll/size.h"
#include "topocoll/topology.h"
#include "topology/figure_text.h"
#include "topology/hwloc_reader.h"

namespace topocoll {
namespace {

constexpr std::size_t kMinAlike = 3;  ///< siblings that are shown as one line
constexpr int kMaxDepth = 64;         ///< of a tree that is worth showing

std::string figures_text(const TopologyEdge& edge) {
  std::string text;
  const auto append = [&text](const std::string& figure) {
    if (!figure.empty()) text += ", " + figure;
  };
  append(bandwidth_text(edge.bandwidth_gbps));
  append(latency_text(edge.latency_ns));
  const std::string upward = bandwidth_text(edge.upward_gbps);
  if (!upward.empty()) append("upward " + upward);
  return text;
}

std::string cpus_text(const std::vector<int>& cpus) {
  if (cpus.empty()) return "no usable CPU";
  return fmt::format("{} {}", cpus.size() == 1 ? "cpu" : "cpus", cpu_ranges(cpus));
}

class Renderer {
 public:
  explicit Renderer(const Topology& topology) : topology_(topology) {
    for (std::size_t i = 0; i < topology.nodes.size(); ++i) index_[topology.nodes[i].id] = i;
    hosts_ = topology.of_kind(NodeKind::kHost).size();
    children_.resize(topology.nodes.size());
    parent_edge_.resize(topology.nodes.size(), nullptr);
    for (const TopologyEdge& edge : topology.edges) {
      const auto from = index_.find(edge.from);
      const auto to = index_.find(edge.to);
      if (!is_tree_edge(edge) || from == index_.end() || to == index_.end()) continue;
      if (parent_edge_[to->second] != nullptr) continue;  // each node is shown once
      children_[from->second].push_back(to->second);
      parent_edge_[to->second] = &edge;
    }
  }

  std::string take() {
    for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
      if (parent_edge_[i] == nullptr) tree(i, "", "", 0);
    }
    links();
    for (const std::string& note : topology_.notes) text_ += "note: " + note + "\n";
    return std::move(text_);
  }

 private:
  /// The nodes that share a line, from `node` downwards.
  [[nodiscard]] std::vector<std::size_t> line_of(std::size_t node) const {
    std::vector<std::size_t> line{node};
    while (children_[node].size() == 1 && topology_.nodes[node].kind != NodeKind::kHost &&
           line.size() < kMaxDepth) {
      const std::size_t child = children_[node].front();
      const NodeKind kind = topology_.nodes[node].kind;
      const bool chain = kind == NodeKind::kPciBridge || kind == NodeKind::kNic;
      const bool small = is_part_of_package(topology_.nodes[child].kind) &&
                         topology_.nodes[child].cpus == topology_.nodes[node].cpus;
      if (!chain && !small) break;
      line.push_back(node = child);
    }
    return line;
  }

  static bool is_part_of_package(NodeKind kind) {
    return kind >= NodeKind::kCache && kind <= NodeKind::kCpu;
  }

  /// A host of which only the network was measured.
  [[nodiscard]] bool has_no_processor(std::size_t node) const {
    return topology_.nodes[node].kind == NodeKind::kHost &&
           std::none_of(children_[node].begin(), children_[node].end(), [&](std::size_t child) {
             return is_processor(topology_.nodes[child].kind);
           });
  }

  /// A core's CPUs are named in its line.
  [[nodiscard]] bool is_leaf(std::size_t node) const {
    return std::all_of(children_[node].begin(), children_[node].end(), [&](std::size_t child) {
      return topology_.nodes[child].kind == NodeKind::kCpu && children_[child].empty() &&
             topology_.nodes[node].kind == NodeKind::kCore;
    });
  }

  [[nodiscard]] std::string title(const TopologyNode& node, bool numbered) const {
    switch (node.kind) {
      case NodeKind::kHost:
        if (hosts_ > 1) return node.label.empty() ? node.id : node.label;
        return topology_.host.empty() ? node.id : topology_.host;
      case NodeKind::kPackage:
        return "package " + number(node);
      case NodeKind::kNumaNode:
        return "NUMA node " + number(node);
      case NodeKind::kCache:
        return node.level ? fmt::format("L{}", *node.level) : "cache";
      case NodeKind::kCore:
        return numbered ? "core " + number(node) : "core";
      case NodeKind::kCpu:
        return numbered ? "cpu " + number(node) : "cpu";
      case NodeKind::kGpu:
        return "GPU " + number(node);
      case NodeKind::kNvSwitch:
        return "NVSwitch " + number(node);
      case NodeKind::kNic:
        return "NIC " + number(node);
      case NodeKind::kPciBridge:
      case NodeKind::kPciDevice:
      case NodeKind::kSwitch:
      case NodeKind::kNicPort:
        return std::string(name(node.kind)) + " " + number(node);
    }
    return node.id;
  }

  static std::string number(const TopologyNode& node) {
    const std::size_t colon = node.id.find(':');
    return colon == std::string::npos ? node.id : node.id.substr(colon + 1);
  }

  /// One line without its CPUs: equal for siblings that look alike if `numbered` is false.
  [[nodiscard]] std::string heading(const std::vector<std::size_t>& line, bool numbered) const {
    std::string text;
    for (std::size_t i : line) {
      const TopologyNode& node = topology_.nodes[i];
      // A CPU below a core says nothing that the list of CPUs at the line's end does not.
      if (node.kind == NodeKind::kCpu && line.size() > 1) continue;
      if (!text.empty()) text += " · ";
      const std::string name = title(node, numbered);
      text += name;
      if (!node.label.empty() && node.label != name) text += "  " + node.label;
      if (node.size_bytes) text += " " + size_text(*node.size_bytes);
      if (parent_edge_[i] != nullptr) text += figures_text(*parent_edge_[i]);
    }
    return text;
  }

  /// The siblings from `first` on that can share a line with it.
  [[nodiscard]] std::size_t alike(const std::vector<std::size_t>& siblings,
                                  std::size_t first) const {
    const auto shape = [&](std::size_t node) {
      const auto line = line_of(node);
      if (!is_part_of_package(topology_.nodes[node].kind) || !is_leaf(line.back())) {
        return std::string();
      }
      return fmt::format("{} {}", topology_.nodes[line.back()].cpus.size(), heading(line, false));
    };
    const std::string wanted = shape(siblings[first]);
    std::size_t last = first + 1;
    while (!wanted.empty() && last < siblings.size() && shape(siblings[last]) == wanted) ++last;
    return last - first;
  }

  void tree(std::size_t node, const std::string& indent, const std::string& branch, int depth) {
    const auto line = line_of(node);
    const std::size_t last = line.back();
    const TopologyNode& end = topology_.nodes[last];
    const bool looked_at = is_processor(end.kind) && !(end.cpus.empty() && has_no_processor(last));
    const std::string cpus = looked_at ? "  " + cpus_text(end.cpus) : "";
    text_ += indent + branch + heading(line, true) + cpus + "\n";
    if (is_leaf(last)) return;
    const std::string below = branch.empty() ? indent : indent + (branch == "└─ " ? "   " : "│  ");
    if (depth == kMaxDepth) {
      text_ += below + "└─ ... (deeper levels are left out)\n";
      return;
    }
    const auto& siblings = children_[last];
    for (std::size_t i = 0; i < siblings.size();) {
      const std::size_t count = alike(siblings, i);
      const std::size_t shown = count >= kMinAlike ? count : 1;
      const std::string arm = i + shown == siblings.size() ? "└─ " : "├─ ";
      if (shown > 1) {
        together({siblings.begin() + static_cast<long>(i),
                  siblings.begin() + static_cast<long>(i + shown)},
                 below + arm);
      } else {
        tree(siblings[i], below, arm, depth + 1);
      }
      i += shown;
    }
  }

  void together(const std::vector<std::size_t>& siblings, const std::string& prefix) {
    std::vector<int> cpus;
    for (std::size_t node : siblings) {
      const auto& more = topology_.nodes[node].cpus;
      cpus.insert(cpus.end(), more.begin(), more.end());
    }
    std::sort(cpus.begin(), cpus.end());
    std::string what = heading(line_of(siblings.front()), false);
    if (what.find(' ') != std::string::npos) what = "(" + what + ")";
    const std::size_t each = cpus.size() / siblings.size();  // alike: all have the same number
    text_ += fmt::format("{}{} × {}  {}{}\n", prefix, siblings.size(), what, cpus_text(cpus),
                         each > 1 ? fmt::format(", {} each", each) : "");
  }

  [[nodiscard]] bool is_memory(const std::string& id) const {
    const auto found = index_.find(id);
    return found != index_.end() && topology_.nodes[found->second].kind == NodeKind::kNumaNode;
  }

  void links() {
    for (const TopologyEdge& edge : topology_.edges) {
      if (is_tree_edge(edge)) continue;
      if (edge.kind == "transfer") {
        text_ += fmt::format("{} → {}  {}\n", edge.from, edge.to,
                             fmt::join(transfer_texts(edge, is_memory(edge.from)), ", "));
        continue;
      }
      const std::string count = edge.count ? fmt::format(" ×{}", *edge.count) : "";
      text_ += fmt::format("{} → {}  {}{}{}\n", edge.from, edge.to, edge.kind, count,
                           figures_text(edge));
    }
  }

  const Topology& topology_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::size_t hosts_ = 0;
  std::vector<std::vector<std::size_t>> children_;
  std::vector<const TopologyEdge*> parent_edge_;
  std::string text_;
};

}  // namespace

std::string render_text(const Topology& topology) { return plain_text(Renderer(topology).take()); }

}  // namespace topocoll
