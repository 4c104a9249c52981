// Planning bounds: what no plan of a kind can exceed on a graph, the cut that says so, and which wider link
// would raise it.
//
// Thread rule: free functions on values. Failure rule: numbers beyond 64 bits are kUnsupported.
#pragma once

#include <string>
#include <vector>

#include "planner/exchange.h"
#include "planner/graph.h"
#include "planner/rational.h"
#include "topocoll/planning.h"

namespace topocoll {

struct BoundOf {
  Rational algbw;  ///< GB/s of the message
  bool reached = true;
  std::string bottleneck;  ///< in words, e.g. "what passes between g0 and the rest"; empty: not known
  std::vector<int> parts;  ///< of each node: the links between parts limit; empty: not known
};

/// Of all kinds that plans are made for.
Result<BoundOf> bound_of(const Graph& graph, CollectiveKind kind, int root);
/// Of an all_to_all whose ways have been found already.
BoundOf bound_of(const Graph& graph, const Exchange& exchange);

/// Whether wishes() are worth their time: not among more than 128 ranks, 16 of an all_to_all.
bool wishes_are_asked(const Graph& graph, CollectiveKind kind);
/// Bounds with one link of the bottleneck twice as wide, and with both directions where they help
/// more than either alone; the most helpful first. At most 64 links are asked about, 16 where there
/// are more than 32 ranks.
std::vector<PlanningWish> wishes(const Graph& graph, const BoundOf& bound, const PlanningRequest& request);

/// Where two parts hold all ranks: ids of the nodes in the one with fewer.
std::vector<std::string> smaller_part(const Graph& graph, const std::vector<int>& parts);

}  // namespace topocoll
