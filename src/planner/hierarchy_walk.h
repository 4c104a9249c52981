// Who passes an item to whom, seen from one rank of a hierarchical plan.
//
//   HierarchyWalk walk(plan);
//   HierarchyWalk::Links links = walk.links(walk.spreads(), item, rank);
//   links.parent, links.children                 // with stage and channel, in the direction of
//   spreading
//
// Stages: depth over nodes times (deepest tree within a node + 1), plus depth within the node.
// Channels: each way between two GPUs, within a node or from node to node, has its own, by the
// order in which slots use it. Thread rule: immutable after construction. Failure rule: only for
// plans that check() accepts.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "planner/hierarchy.h"
#include "planner/node_tree.h"

namespace topocoll {

class HierarchyWalk {
 public:
  explicit HierarchyWalk(const HierarchicalPlan& plan);

  struct Link {
    int peer = 0;  ///< rank
    int stage = 0;
    int channel = 0;
  };
  struct Links {
    std::optional<Link> parent;  ///< absent at the rank where the item begins (or ends)
    std::vector<Link> children;
  };
  /// One direction of the plan.
  struct Phase {
    const NodeTemplate* made = nullptr;
    bool mirrored = false;
  };
  [[nodiscard]] Phase reduces() const { return {plan_.reduces ? &*plan_.reduces : nullptr, true}; }
  [[nodiscard]] Phase spreads() const { return {plan_.spreads ? &*plan_.spreads : nullptr, false}; }

  [[nodiscard]] Links links(Phase phase, int item, int rank) const;
  [[nodiscard]] int slot(int item) const { return item % plan_.slots(); }
  [[nodiscard]] int place(int node) const { return place_[static_cast<std::size_t>(node)]; }
  /// The rank where the item begins or ends.
  [[nodiscard]] int root(Phase phase, int item) const;

  /// Links of the cell along a channel in the direction of the data; those of lanes lack the spine.
  [[nodiscard]] const std::vector<int>& way(int from_gpu, int to_gpu, int channel,
                                            bool between_nodes) const;
  [[nodiscard]] int channels() const;

 private:
  /// A tree within a node by GPU.
  struct Index {
    std::vector<int> depth;
    std::vector<int> parent;                 ///< hop, or -1
    std::vector<std::vector<int>> children;  ///< hops
  };
  struct Ways {
    std::map<std::pair<int, int>, std::vector<std::vector<int>>> of;
    int add(int from, int to, std::vector<int> way);
  };
  [[nodiscard]] Index index(const Tree& tree) const;
  void read(Phase phase, std::vector<Index>& own, std::vector<Index>& transit);
  void add_ways(Phase phase);
  [[nodiscard]] int channel(Phase phase, const Hop& hop) const;
  [[nodiscard]] int channel(Phase phase, const Lane& lane) const;
  [[nodiscard]] int rank_at(int place, int gpu) const;

  const HierarchicalPlan& plan_;
  std::vector<int> place_;  ///< of each node
  int stages_per_node_ = 1;
  std::vector<Index> own_[2];  ///< by mirrored, then slot
  std::vector<Index> transit_[2];
  Ways within_;
  Ways between_;
};

}  // namespace topocoll
