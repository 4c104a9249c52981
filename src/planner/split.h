// Edge splitting: a graph with switches becomes links between ranks, each with its path through the
// switches, such that the same demands can still be served by trees in which only ranks copy.
//
//   SplitRequest request{capacities in units of the graph, demand of each rank};
//   Result<Split> split = split_off_switches(graph, request);
//   split->links[0].path                                   // indices into Graph::links
//
// Demand: from every rank r, demand[r] units go to every other rank. Served means: from a source
// that feeds demand[r] into each r, the sum D of all demands flows to each rank. An arc into a
// switch and one out of it are joined into one past it, by the most that keeps this true (J.
// Bang-Jensen, A. Frank, B. Jackson, "Preserving and increasing local edge-connectivity in mixed
// graphs", 1995): where a switch takes in what it gives out, joining always succeeds. A switch that
// does not is first trimmed to what it can pass on, which may be impossible at the wanted demand.
// Joining c units lowers a cut by c at most and only if the cut shrinks at all, so the most that
// may be joined is found by one try: what D then lacks at the worst rank is taken back. Switches
// are first tried whole, with arcs joined evenly: that gives the shortest trees. Cost: O(joins *
// ranks) max-flows. Thread rule: free functions on values. Failure rule: a demand that cannot be
// served is kUnsupported; the caller may ask for less.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/graph.h"
#include "topocoll/status.h"

namespace topocoll {

/// A link between ranks, past switches.
struct LogicalLink {
  int from = 0;  ///< ranks
  int to = 0;
  std::int64_t capacity = 0;
  std::vector<int> path;  ///< of Graph::links, in order
};

struct SplitRequest {
  std::vector<std::int64_t> capacity;  ///< of each of the graph's links, instead of its own
  std::vector<std::int64_t> demand;    ///< of each rank
};

/// Links are ordered by from, to and path.
Result<std::vector<LogicalLink>> split_off_switches(const Graph& graph,
                                                    const SplitRequest& request);

}  // namespace topocoll
