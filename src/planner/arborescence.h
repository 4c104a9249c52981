// Packing of spanning trees: links between ranks carry trees from every root, each root as much as
// it asks for, and no link more than its capacity.
//
//   Result<std::vector<Arborescence>> trees = pack_arborescences(ranks, links, {3, 3, 3});
//
// Trees grow one after the other, vertex by vertex. A tree of weight m may take the link x -> y
// with weight
//   min(m, capacity left, flow(x, y) - weight of all other unfinished trees),
// where the flow may also enter each other unfinished tree i at any of its vertices, with its
// weight m_i: what is left then still serves all trees (J. Edmonds, "Edge-disjoint branchings",
// 1973; A. Schrijver, Combinatorial Optimization, 2003, section 53). Where no link has room for the
// whole tree it is split in two. Links from vertices near the root are tried first, so trees are
// shallow where that costs nothing. Cost: about (ranks * trees) max-flows. Thread rule: free
// functions on values. Failure rule: a demand that the links cannot serve is kUnsupported.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/split.h"
#include "topocoll/status.h"

namespace topocoll {

/// A tree that spans all ranks and has its root at one.
struct Arborescence {
  int root = 0;
  std::int64_t weight = 0;
  std::vector<int> links;  ///< indices into the given links, parents before children
};

/// `demand[r]` is the weight of the trees with root r together. Trees are ordered by root; those of
/// a root by falling weight.
Result<std::vector<Arborescence>> pack_arborescences(int ranks,
                                                     const std::vector<LogicalLink>& links,
                                                     const std::vector<std::int64_t>& demand);

}  // namespace topocoll
