#include "topology/views/transfer_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "topology/checked_json.h"
#include "topology/figure_text.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

constexpr const char* kBandwidth = "bandwidth_gbps";
constexpr std::array<const char*, 7> kFigures = {kBandwidth,      kLoadsGbps, kCopyEngineGbps,
                                                 kDuplexGbps,     kClassGbps, "latency_ns",
                                                 kLoadedLatencyNs};

const Figure* figure_of(const TopologyEdge& edge, const std::string& name) {
  if (name == kBandwidth) return &edge.bandwidth_gbps;
  if (name == "latency_ns") return &edge.latency_ns;
  const auto found = edge.figures.find(name);
  return found == edge.figures.end() ? nullptr : &found->second;
}

using Ways = std::map<std::pair<std::string, std::string>, const TopologyEdge*>;

/// Whether it has anything to say.
bool fill(const Topology& topology, const Ways& ways, TransferTable& table) {
  bool any = false;
  for (const TableEnd& row : table.rows) {
    auto& values = table.values.emplace_back();
    auto& faults = table.faults.emplace_back();
    for (const TableEnd& column : table.columns) {
      const auto found = ways.find({topology.nodes[row.node].id, topology.nodes[column.node].id});
      const TopologyEdge* edge = found == ways.end() ? nullptr : found->second;
      const Figure* figure = edge == nullptr ? nullptr : figure_of(*edge, table.figure);
      values.push_back(figure == nullptr ? std::nullopt : figure->measured);
      // A way with a fault has no figures: it is shown where every way has one.
      faults.push_back(edge != nullptr && !edge->fault.empty());
      any = any || values.back() || (faults.back() && table.figure == kBandwidth);
    }
  }
  return any;
}

std::string cell_text(const TransferTable& table, std::size_t row, std::size_t column) {
  if (table.faults[row][column]) return kWrongData;
  const auto& value = table.values[row][column];
  if (table.rows[row].node == table.columns[column].node) return "X";
  if (!value) return "-";
  return table.is_time() ? fmt::format("{:.2f}", *value / 1000) : fmt::format("{:.1f}", *value);
}

std::string titles_json(const std::vector<TableEnd>& ends) {
  std::string text;
  for (const TableEnd& end : ends) {
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", end.title);
  }
  return text;
}

}  // namespace

std::vector<TableEnd> measured_ends(const Topology& topology, NodeKind kind, const char* word) {
  const TopologyTree tree(topology);
  std::set<std::size_t> nodes;
  for (const TopologyEdge& edge : topology.edges) {
    if (edge.kind != "transfer") continue;
    for (const std::string& end : {edge.from, edge.to}) {
      const std::size_t i = tree.index(end);
      if (i != TopologyTree::kNone && topology.nodes[i].kind == kind) nodes.insert(i);
    }
  }
  std::vector<TableEnd> ends;
  for (const std::size_t i : nodes) ends.push_back({i, fmt::format("{}{}", word, ends.size())});
  return ends;
}

std::vector<TransferTable> transfer_tables(const Topology& topology, const TableEnds& ends) {
  Ways ways;
  for (const TopologyEdge& edge : topology.edges) {
    if (edge.kind == "transfer") ways[{edge.from, edge.to}] = &edge;
  }
  std::vector<TransferTable> tables;
  const auto add = [&](const std::string& where, const std::vector<TableEnd>& rows,
                       const std::vector<TableEnd>& columns) {
    for (const char* figure : kFigures) {
      const bool pulled = where == "from memory" && figure == std::string_view(kBandwidth);
      TransferTable table{fmt::format("{} {}", figure_word(pulled ? kLoadsGbps : figure), where),
                          figure,
                          rows,
                          columns,
                          {},
                          {}};
      if (fill(topology, ways, table)) tables.push_back(std::move(table));
    }
  };
  add("between GPUs", ends.gpus, ends.gpus);
  add("from memory", ends.memories, ends.gpus);
  add("to memory", ends.gpus, ends.memories);
  add("from memory to RDMA ports", ends.memories, ends.ports);
  return tables;
}

std::string render_tables(const std::vector<TransferTable>& tables) {
  std::string text;
  for (const TransferTable& table : tables) {
    std::size_t width = 7;
    for (const TableEnd& end : table.columns) width = std::max(width, end.title.size() + 2);
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      for (std::size_t c = 0; c < table.columns.size(); ++c) {
        width = std::max(width, cell_text(table, r, c).size() + 2);
      }
    }
    fmt::format_to(std::back_inserter(text), "\n{}, {}, from row to column\n{:{}}", table.title,
                   table.is_time() ? "us" : "GB/s", "", width);
    for (const TableEnd& end : table.columns) text += fmt::format("{:<{}}", end.title, width);
    text.erase(text.find_last_not_of(' ') + 1);
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      text += fmt::format("\n{:<{}}", table.rows[r].title, width);
      for (std::size_t c = 0; c < table.columns.size(); ++c) {
        text += fmt::format("{:<{}}", cell_text(table, r, c), width);
      }
      text.erase(text.find_last_not_of(' ') + 1);
    }
    text += '\n';
  }
  return text;
}

std::string tables_to_json(const std::vector<TransferTable>& tables) {
  std::string text;
  for (const TransferTable& table : tables) {
    std::string values;
    for (const auto& row : table.values) {
      std::string line;
      for (const auto& value : row) {
        line += fmt::format("{}{}", line.empty() ? "" : ", ",
                            value ? fmt::format("{}", *value) : "null");
      }
      values += fmt::format("{}[{}]", values.empty() ? "" : ", ", line);
    }
    text += fmt::format(
        "{}\n  {{\"title\": \"{}\", \"figure\": {}, \"rows\": [{}], \"columns\": [{}], "
        "\"values\": [{}]}}",
        text.empty() ? "" : ",", table.title, json_quote(table.figure), titles_json(table.rows),
        titles_json(table.columns), values);
  }
  return "[" + text + "]";
}

}  // namespace topocoll
