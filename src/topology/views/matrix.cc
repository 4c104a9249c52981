#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>

#include "base/plain_text.h"
#include "topocoll/topology_formats.h"
#include "topology/checked_json.h"
#include "topology/device_paths.h"
#include "topology/hwloc_reader.h"
#include "topology/tree.h"
#include "topology/views/transfer_tables.h"

namespace topocoll {
namespace {

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
  explicit Matrix(const Topology& topology)
      : topology_(topology),
        tree_(topology),
        paths_(topology, tree_),
        measured_{{},
                  measured_ends(topology, NodeKind::kNumaNode, "MEM"),
                  measured_ends(topology, NodeKind::kNicPort, "PORT")} {
    int gpus = 0;
    int nics = 0;
    for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
      if (node(i).kind == NodeKind::kGpu) columns_.push_back({i, fmt::format("GPU{}", gpus++)});
    }
    measured_.gpus = columns_;
    for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
      if (node(i).kind == NodeKind::kNic) columns_.push_back({i, fmt::format("NIC{}", nics++)});
    }
  }

  [[nodiscard]] Status drawable() const {
    const std::size_t ends = columns_.size() + memories().size() + ports().size();
    if (ends <= kMaxMatrixEnds) return {};
    return {Cause::kUnsupported,
            fmt::format("a table of {} GPUs, NICs, memories and ports cannot be read, and more than "
                        "{} are not drawn: look at one host, or at all with topocoll topo show",
                        ends, kMaxMatrixEnds)};
  }

  /// GPUs, then NICs.
  [[nodiscard]] const std::vector<TableEnd>& columns() const { return columns_; }
  [[nodiscard]] const std::vector<TableEnd>& memories() const { return measured_.memories; }
  [[nodiscard]] const std::vector<TableEnd>& ports() const { return measured_.ports; }
  [[nodiscard]] std::vector<TransferTable> transfers() const {
    return transfer_tables(topology_, measured_);
  }

  [[nodiscard]] std::string path(std::size_t a, std::size_t b) const { return paths_.word(a, b); }

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

  const Topology& topology_;
  TopologyTree tree_;
  DevicePaths paths_;
  TableEnds measured_;
  std::vector<TableEnd> columns_;
};

/// The words that the tables have, and no others.
std::string legend(const Matrix& matrix, const std::vector<TransferTable>& tables,
                   std::size_t width) {
  std::set<std::string> used;
  for (const TableEnd& row : matrix.columns()) {
    for (const TableEnd& column : matrix.columns()) used.insert(matrix.path(row.node, column.node));
  }
  std::string text;
  for (const auto& [word, meaning] : kWords) {
    const auto is = [word = word](const std::string& path) {
      return word == "NV" ? path.starts_with(word) : path == word;
    };
    if (std::none_of(used.begin(), used.end(), is)) continue;
    text += fmt::format("{:<{}}{}\n", word == "NV" ? "NV#" : word, width, meaning);
  }
  if (std::any_of(tables.begin(), tables.end(), [](const auto& t) { return t.any_fault(); })) {
    text += fmt::format("{:<{}}data arrived changed: topocoll topo check says more\n", kWrongData,
                        std::max(width, std::string_view(kWrongData).size() + 2));
  }
  return text.empty() ? text : "\n" + text;
}

std::string ends_json(const Topology& topology, const std::vector<TableEnd>& ends) {
  std::string text;
  for (const TableEnd& end : ends) {
    text += fmt::format("{}{{\"title\": \"{}\", \"id\": {}}}", text.empty() ? "" : ", ", end.title,
                        json_quote(topology.nodes[end.node].id));
  }
  return text;
}

std::string faults_json(const Topology& topology) {
  std::string text;
  for (const TopologyEdge& edge : topology.edges) {
    if (edge.fault.empty()) continue;
    text +=
        fmt::format("{}\n  {{\"from\": {}, \"to\": {}, \"fault\": {}}}", text.empty() ? "" : ",",
                    json_quote(edge.from), json_quote(edge.to), json_quote(edge.fault));
  }
  return text;
}

}  // namespace

Result<std::string> render_matrix(const Topology& topology) {
  const Matrix matrix(topology);
  if (Status s = matrix.drawable(); !s.ok()) return s;
  const auto& columns = matrix.columns();
  if (columns.empty() && matrix.ports().empty()) return std::string("no GPU and no NIC\n");
  std::size_t width = 6;
  for (const TableEnd& c : columns) width = std::max(width, c.title.size() + 2);
  for (const TableEnd& p : matrix.ports()) width = std::max(width, p.title.size() + 2);
  auto cell = [&](const std::string& text) { return fmt::format("{:<{}}", text, width); };
  std::string text = cell("");
  for (const TableEnd& c : columns) text += cell(c.title);
  std::size_t cpus_width = 14;
  for (const TableEnd& c : columns)
    cpus_width = std::max(cpus_width, matrix.cpus(c.node).size() + 2);
  text += fmt::format("{:<{}}NUMA affinity\n", "CPU affinity", cpus_width);
  for (const TableEnd& row : columns) {
    text += cell(row.title);
    for (const TableEnd& column : columns) text += cell(matrix.path(row.node, column.node));
    text += fmt::format("{:<{}}{}\n", matrix.cpus(row.node), cpus_width, matrix.numa(row.node));
  }
  text += '\n';
  for (const TableEnd& c : columns) {
    const TopologyNode& node = topology.nodes[c.node];
    text += fmt::format("{:<{}}{}{}\n", c.title, width, node.id,
                        node.label.empty() ? "" : "  " + node.label);
  }
  for (const auto* ends : {&matrix.memories(), &matrix.ports()}) {
    for (const TableEnd& end : *ends) {
      text += fmt::format("{:<{}}{}\n", end.title, width, topology.nodes[end.node].id);
    }
  }
  const std::vector<TransferTable> tables = matrix.transfers();
  return plain_text(text + legend(matrix, tables, width) + render_tables(tables));
}

Result<std::string> matrix_to_json(const Topology& topology) {
  const Matrix matrix(topology);
  if (Status s = matrix.drawable(); !s.ok()) return s;
  std::string devices;
  std::string paths;
  for (const TableEnd& row : matrix.columns()) {
    const TopologyNode& node = topology.nodes[row.node];
    devices +=
        fmt::format("{}\n  {{\"title\": \"{}\", \"id\": {}, \"cpus\": \"{}\", \"numa\": \"{}\"}}",
                    devices.empty() ? "" : ",", row.title, json_quote(node.id),
                    matrix.cpus(row.node), matrix.numa(row.node));
    std::string line;
    for (const TableEnd& column : matrix.columns()) {
      line += fmt::format("{}\"{}\"", line.empty() ? "" : ", ", matrix.path(row.node, column.node));
    }
    paths += fmt::format("{}\n  [{}]", paths.empty() ? "" : ",", line);
  }
  return fmt::format(
      "{{\"devices\": [{}],\n\"paths\": [{}],\n\"memories\": [{}],\n\"ports\": [{}],\n"
      "\"measured\": {},\n"
      "\"faults\": [{}]}}\n",
      devices, paths, ends_json(topology, matrix.memories()), ends_json(topology, matrix.ports()),
      tables_to_json(matrix.transfers()), faults_json(topology));
}

}  // namespace topocoll
