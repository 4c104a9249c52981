// What was measured between GPUs, between GPUs and memory, and of RDMA ports and memory, as tables.
// Thread rule: values that refer to their topology. Failure rule: what was not measured is absent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "topocoll/topology.h"

namespace topocoll {

/// In a table, a way on which data arrived changed.
inline constexpr const char* kWrongData = "WRONG";

/// A row or a column.
struct TableEnd {
  std::size_t node = 0;  ///< by index
  std::string title;     ///< "GPU0": of one output only
};

/// One figure of all ways from a row to a column.
struct TransferTable {
  std::string title;   ///< "stores between GPUs"
  std::string figure;  ///< its name in the native JSON; ends in "_gbps" or "_ns"
  std::vector<TableEnd> rows;
  std::vector<TableEnd> columns;
  std::vector<std::vector<std::optional<double>>> values;
  std::vector<std::vector<bool>> faults;  ///< wrong data arrived
  [[nodiscard]] bool any_fault() const {
    return std::any_of(faults.begin(), faults.end(), [](const std::vector<bool>& row) {
      return std::find(row.begin(), row.end(), true) != row.end();
    });
  }
  [[nodiscard]] bool is_time() const { return figure.ends_with("_ns"); }
};

/// Nodes of a kind that a transfer begins or ends at, as "MEM0", ... for the word "MEM".
std::vector<TableEnd> measured_ends(const Topology& topology, NodeKind kind, const char* word);

/// Whose transfers are shown.
struct TableEnds {
  std::vector<TableEnd> gpus;
  std::vector<TableEnd> memories;
  std::vector<TableEnd> ports;
};
/// All tables that have a value or a fault: between GPUs, from memory to them and back, and from
/// memory to ports.
std::vector<TransferTable> transfer_tables(const Topology& topology, const TableEnds& ends);

/// Below each other, aligned, with units in their titles; empty if there are none.
std::string render_tables(const std::vector<TransferTable>& tables);
/// An array.
std::string tables_to_json(const std::vector<TransferTable>& tables);

}  // namespace topocoll
