#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "topocoll/topology_formats.h"
#include "topology/checked_json.h"
#include "topology/hwloc_reader.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

struct Column {
  std::size_t node = 0;
  std::string title;  ///< "GPU0": of this table only
};

struct Word {
  std::string_view word;
  const char* meaning;
};
constexpr std::array<Word, 10> kWords = {{{"NV", "so many NVLinks, also through switches"},
                                          {"XGMI", "Infinity Fabric"},
                                          {"C2C", "chip-to-chip link"},
                                          {"PIX", "one PCIe switch"},
                                          {"PXB", "several PCIe bridges"},
                                          {"PHB", "one PCIe host bridge"},
                                          {"NODE", "host bridges of one NUMA node"},
                                          {"SYS", "between NUMA nodes"},
                                          {"NET", "network between hosts"},
                                          {"LNK", "a link of unknown medium"}}};

class Matrix {
 public:
  explicit Matrix(const Topology& topology) : topology_(topology), tree_(topology) {
    int gpus = 0;
    int nics = 0;
    for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
      if (node(i).kind == NodeKind::kGpu) columns_.push_back({i, fmt::format("GPU{}", gpus++)});
    }
    for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
      if (node(i).kind == NodeKind::kNic) columns_.push_back({i, fmt::format("NIC{}", nics++)});
    }
    for (const TopologyEdge& edge : topology.edges) {
      if (!is_tree_edge(edge)) links_[{edge.from, edge.to}] = &edge;
      const std::size_t to = tree_.index(edge.to);
      if (to == TopologyTree::kNone || !is_switch(node(to).kind) || is_tree_edge(edge)) continue;
      switches_[edge.from].emplace_back(&edge);
    }
  }

  [[nodiscard]] const std::vector<Column>& columns() const { return columns_; }

  [[nodiscard]] std::string path(std::size_t a, std::size_t b) const {
    if (a == b) return "X";
    const auto direct = links_.find({node(a).id, node(b).id});
    if (direct != links_.end()) return link_word(direct->second->kind, direct->second->count);
    if (const std::string through = through_switch(a, b); !through.empty()) return through;
    return tree_path(a, b);
  }

  [[nodiscard]] std::string cpus(std::size_t i) const {
    const std::size_t numa = tree_.numa_of(i);
    return numa == TopologyTree::kNone ? "" : cpu_ranges(node(numa).cpus);
  }
  [[nodiscard]] std::string numa(std::size_t i) const {
    const std::size_t numa = tree_.numa_of(i);
    if (numa == TopologyTree::kNone || !node(numa).os_index) return "?";
    return std::to_string(*node(numa).os_index);
  }

 private:
  [[nodiscard]] const TopologyNode& node(std::size_t i) const { return topology_.nodes[i]; }

  static std::string link_word(const std::string& kind, const std::optional<int>& count) {
    const std::string number = count ? std::to_string(*count) : "";
    if (kind == "nvlink") return "NV" + number;
    if (kind == "xgmi") return "XGMI";
    if (kind == "c2c") return "C2C";
    return kind == "network" ? "NET" : "LNK";
  }

  /// Both have links to one and the same switch: all of the first's links lead to such.
  [[nodiscard]] std::string through_switch(std::size_t a, std::size_t b) const {
    const auto of_a = switches_.find(node(a).id);
    const auto of_b = switches_.find(node(b).id);
    if (of_a == switches_.end() || of_b == switches_.end()) return "";
    int count = 0;
    bool counted = true;
    const TopologyEdge* shared = nullptr;
    for (const TopologyEdge* up : of_a->second) {
      const bool common =
          std::any_of(of_b->second.begin(), of_b->second.end(),
                      [&](const TopologyEdge* other) { return other->to == up->to; });
      if (!common) continue;
      shared = up;
      counted = counted && up->count;
      count += up->count.value_or(0);
    }
    if (shared == nullptr) return "";
    return link_word(shared->kind, counted ? std::optional<int>(count) : std::nullopt);
  }

  [[nodiscard]] std::string tree_path(std::size_t a, std::size_t b) const {
    const auto up_a = tree_.path_up(a);
    const auto up_b = tree_.path_up(b);
    std::size_t depth_a = 0;
    std::size_t depth_b = 0;
    std::size_t meet = TopologyTree::kNone;
    for (depth_a = 0; depth_a < up_a.size() && meet == TopologyTree::kNone; ++depth_a) {
      const auto found = std::find(up_b.begin(), up_b.end(), up_a[depth_a]);
      if (found == up_b.end()) continue;
      meet = up_a[depth_a];
      depth_b = static_cast<std::size_t>(found - up_b.begin());
      break;
    }
    if (meet == TopologyTree::kNone) return between_roots(up_a.back(), up_b.back());
    if (node(meet).kind == NodeKind::kPciBridge) {
      const bool near = is_one_switch(up_a, depth_a) && is_one_switch(up_b, depth_b);
      return near ? "PIX" : "PXB";
    }
    // The host's only NUMA node counts as the place where its devices are.
    const std::size_t numa_a = tree_.numa_of(a);
    const bool one_numa = numa_a != TopologyTree::kNone && numa_a == tree_.numa_of(b);
    if (!one_numa) return "SYS";
    return depth_a > 0 && depth_b > 0 && bus(up_a[depth_a - 1]) == bus(up_b[depth_b - 1]) ? "PHB"
                                                                                          : "NODE";
  }

  [[nodiscard]] std::string between_roots(std::size_t a, std::size_t b) const {
    const bool hosts = node(a).kind == NodeKind::kHost && node(b).kind == NodeKind::kHost;
    return hosts ? "NET" : "-";
  }

  /// Below the bridge where two paths meet there is the device, or one port with nothing but it:
  /// the downstream port of the same switch.
  [[nodiscard]] bool is_one_switch(const std::vector<std::size_t>& up, std::size_t meet) const {
    if (meet <= 1) return true;
    return meet == 2 && tree_.children(up[1]).size() == 1;
  }

  [[nodiscard]] std::string bus(std::size_t i) const {
    return node(i).bdf.substr(0, node(i).bdf.rfind(':'));
  }

  const Topology& topology_;
  TopologyTree tree_;
  std::vector<Column> columns_;
  std::map<std::pair<std::string, std::string>, const TopologyEdge*> links_;
  std::map<std::string, std::vector<const TopologyEdge*>> switches_;
};

/// The words that the table has, and no others.
std::string legend(const Matrix& matrix, std::size_t width) {
  std::set<std::string> used;
  for (const Column& row : matrix.columns()) {
    for (const Column& column : matrix.columns()) used.insert(matrix.path(row.node, column.node));
  }
  std::string text;
  for (const auto& [word, meaning] : kWords) {
    const auto is = [word = word](const std::string& path) {
      return word == "NV" ? path.starts_with(word) : path == word;
    };
    if (std::none_of(used.begin(), used.end(), is)) continue;
    text += fmt::format("{:<{}}{}\n", word == "NV" ? "NV#" : word, width, meaning);
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string render_matrix(const Topology& topology) {
  const Matrix matrix(topology);
  const auto& columns = matrix.columns();
  if (columns.empty()) return "no GPU and no NIC\n";
  std::size_t width = 6;
  for (const Column& c : columns) width = std::max(width, c.title.size() + 2);
  auto cell = [&](const std::string& text) { return fmt::format("{:<{}}", text, width); };
  std::string text = cell("");
  for (const Column& c : columns) text += cell(c.title);
  std::size_t cpus_width = 14;
  for (const Column& c : columns) cpus_width = std::max(cpus_width, matrix.cpus(c.node).size() + 2);
  text += fmt::format("{:<{}}NUMA affinity\n", "CPU affinity", cpus_width);
  for (const Column& row : columns) {
    text += cell(row.title);
    for (const Column& column : columns) text += cell(matrix.path(row.node, column.node));
    text += fmt::format("{:<{}}{}\n", matrix.cpus(row.node), cpus_width, matrix.numa(row.node));
  }
  text += '\n';
  for (const Column& c : columns) {
    const TopologyNode& node = topology.nodes[c.node];
    text += fmt::format("{:<{}}{}{}\n", c.title, width, node.id,
                        node.label.empty() ? "" : "  " + node.label);
  }
  return text + legend(matrix, width);
}

std::string matrix_to_json(const Topology& topology) {
  const Matrix matrix(topology);
  std::string devices;
  std::string paths;
  for (const Column& row : matrix.columns()) {
    const TopologyNode& node = topology.nodes[row.node];
    devices +=
        fmt::format("{}\n  {{\"title\": \"{}\", \"id\": {}, \"cpus\": \"{}\", \"numa\": \"{}\"}}",
                    devices.empty() ? "" : ",", row.title, json_quote(node.id),
                    matrix.cpus(row.node), matrix.numa(row.node));
    std::string line;
    for (const Column& column : matrix.columns()) {
      line += fmt::format("{}\"{}\"", line.empty() ? "" : ", ", matrix.path(row.node, column.node));
    }
    paths += fmt::format("{}\n  [{}]", paths.empty() ? "" : ",", line);
  }
  return fmt::format("{{\"devices\": [{}],\n\"paths\": [{}]}}\n", devices, paths);
}

}  // namespace topocoll
