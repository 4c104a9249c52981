// Node templates: which lane and which trees each slot of a hierarchical plan uses within a node.
//
// Lanes get slots in proportion to their bandwidth; where the trees within the node limit first,
// slots move between lanes while that helps: what enters at a weakly linked GPU costs the node
// more. Trees are a packing from weighted roots (trees.h), so weakly linked GPUs become leaves by
// themselves; each slot then takes the tree that leaves the fullest link emptiest. Thread rule:
// free functions on values. Failure rule: errors of lanes.h and trees.h.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/hierarchy.h"

namespace topocoll {

/// How often one node uses the parts of a slot, for one pass of a message.
struct TemplateUse {
  std::int64_t own = 0;
  std::int64_t transit = 0;
  std::int64_t out = 0;  ///< of the lane
  std::int64_t in = 0;
};

struct TemplateRequest {
  int slots = 1;
  std::vector<int> root;  ///< GPU at which each slot begins
  TemplateUse use;
  bool first_is_apart =
      false;  ///< own trees are used at one node only, transit trees at all others
  bool own_is_transit = false;         ///< items begin at the lane's entrance
  const NodeTemplate* like = nullptr;  ///< slots take lanes with the ends that its slots have
  std::int64_t across = 0;             ///< times a slot's item crosses the uplink of a leaf
};

Result<NodeTemplate> make_template(const Cluster& cluster, const TemplateRequest& request);

/// Chunks over each link of the cell, uplinks of leaves left out.
std::vector<std::int64_t> template_loads(const Cluster& cluster, const NodeTemplate& made,
                                         const TemplateUse& use);

}  // namespace topocoll
