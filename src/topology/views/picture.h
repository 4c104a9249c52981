// What the pictures of a topology share: which nodes are drawn, in which words and colours.
// Thread rule: values and free functions. Failure rule: none; an empty topology is an empty
// picture.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "topocoll/findings.h"
#include "topology/tree.h"

namespace topocoll {

/// One line between two nodes: both directions of a link together. Transfers are no lines of their
/// own but stand in the words of links and GPUs, except where data came wrong.
struct DrawnLink {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string kind;
  std::string text;  ///< "nvlink ×4, 100 GB/s declared"; may have several lines
  bool bad = false;
};

class Picture {
 public:
  Picture(const Topology& topology, const std::vector<Finding>& findings);

  /// Parts of packages below the NUMA node would fill the page and are not drawn.
  [[nodiscard]] bool is_drawn(std::size_t node) const;
  /// Drawn nodes below a node, past those that are not drawn.
  [[nodiscard]] std::vector<std::size_t> drawn_children(std::size_t node) const;
  /// Its name in one short line.
  [[nodiscard]] std::string title(std::size_t node) const;
  /// Everything known of it, a line each.
  [[nodiscard]] std::string details(std::size_t node) const;
  [[nodiscard]] bool is_bad(std::size_t node) const;
  [[nodiscard]] std::vector<DrawnLink> links() const;
  [[nodiscard]] const TopologyTree& tree() const { return tree_; }
  [[nodiscard]] const Topology& topology() const { return topology_; }

 private:
  [[nodiscard]] std::string transfer_words(const TopologyEdge& transfer, bool brief) const;
  void add_transfers(std::vector<DrawnLink>& links) const;

  const Topology& topology_;
  TopologyTree tree_;
  std::map<std::string, std::vector<std::string>> findings_;  ///< node -> texts
  std::set<std::string> bad_;
  std::map<std::size_t, std::vector<const TopologyEdge*>> transfers_;  ///< by both their ends
  std::map<std::size_t, std::vector<const TopologyEdge*>> reads_;      ///< of a NUMA node's memory
};

/// The fill of a node's box, as "#rrggbb".
const char* fill_of(NodeKind kind);
/// The colour of a kind of link.
const char* colour_of(const std::string& kind);
/// "25 GB/s declared, 21 GB/s measured"; empty if nothing is known.
std::string figure_words(const TopologyEdge& edge);

}  // namespace topocoll
