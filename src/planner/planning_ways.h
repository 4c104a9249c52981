// Planning ways: each way to make a plan of a kind, with its rate and the words that explain it. planning.cc
// weighs them against each other.
//
// Thread rule: free functions on values. Failure rule: a way that cannot be had says why (kUnsupported).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/exchange.h"
#include "planner/graph.h"
#include "planner/routes.h"
#include "topocoll/planning.h"

namespace topocoll {

/// Plans that are no faster than this give way to simpler ones.
inline constexpr double kWorthTrees = 1.001;

/// One way to do it, ready to be chosen.
struct Made {
  std::string algorithm;
  double gbps = 0;
  std::string reason;
  Plan plan;
  std::vector<PlannedTree> trees;
  std::vector<PlannedRing> rings;
  std::optional<PlannedRing> listed_ring{};
};

Result<Made> make_trees(const Graph& graph, const PlanningRequest& request);
Result<Made> make_rings(const Graph& graph, const Routes& routes, const PlanningRequest& request);
/// Of an all_to_all: every rank sends to every other along one route.
Result<Made> make_direct_exchange(const Graph& graph, const Routes& routes);
Result<Made> make_exchange(const Graph& graph, const Exchange& exchange);
/// One template for all hosts, where they are built alike; finer chunks are tried until it has `enough` GB/s.
Result<Made> make_hierarchical(const Graph& graph, const PlanningRequest& request, double enough);

}  // namespace topocoll
