// Texts and comparisons that the tests of formats share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "topocoll/findings.h"
#include "topocoll/topology.h"
#include "topocoll/topology_formats.h"

namespace topocoll {

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline Topology imported(const std::string& text, const std::string& file = "machine") {
  const auto topology = import_topology(text, file);
  EXPECT_TRUE(topology.ok()) << topology.status().to_string();
  return topology.ok() ? *topology : Topology();
}

inline std::string import_error(const std::string& text) {
  const auto topology = import_topology(text, "f.xml");
  EXPECT_FALSE(topology.ok());
  return topology.status().text();
}

/// Two topologies are one but for their notes.
inline void expect_same(Topology a, Topology b) {
  a.notes.clear();
  b.notes.clear();
  EXPECT_EQ(render_text(diff_topologies(a, b)), "");
}

inline std::size_t count_edges(const Topology& t, const std::string& kind) {
  return static_cast<std::size_t>(std::count_if(
      t.edges.begin(), t.edges.end(), [&](const TopologyEdge& edge) { return edge.kind == kind; }));
}

inline const TopologyEdge* edge_between(const Topology& t, const std::string& from,
                                        const std::string& to) {
  for (const TopologyEdge& edge : t.edges) {
    if (edge.from == from && edge.to == to) return &edge;
  }
  return nullptr;
}

/// A machine of tests/topologies.
inline Topology hand_written(const std::string& file) {
  return imported(file_text(std::string(TOPOCOLL_TEST_DATA) + "/topologies/" + file), file);
}

inline std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace topocoll
