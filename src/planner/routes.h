// Routes: the way that bytes take from each rank to each other one, and what they load on it.
//
//   Routes routes(graph);
//   const RankRoute* hop = routes.find(0, 3);        // null: no way without passing through a rank
//   routes.rate({0, 1, 2, 3})                    // of one ring in this order, in graph units
//
// A route has the fewest links; it passes through switches only. Among equals it is the one with
// the widest narrowest trunk, then the one with the least latency, then the first in node order, so
// that the same graph gives the same routes. Parallel links between two nodes form one trunk, which
// carries traffic in proportion to their capacities.
// Resources are what traffic shares: trunks first, then shared groups. A route loads a resource
// with `load` bytes for each byte sent (1 on its trunks; on a group the sum over its trunks of the
// part that are members). Latency of a route: the sum over its trunks of the least latency among
// the trunk's links; absent if any trunk has none. Size: n^2 routes for n ranks, O(n * links) time.
// Thread rule: immutable after construction. Failure rule: nothing fails.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "planner/graph.h"

namespace topocoll {

struct Load {
  int resource = 0;
  double load = 1;
};

struct RankRoute {
  std::vector<int> nodes;   ///< indices into Graph::nodes, both ends included
  std::vector<Load> loads;  ///< ascending resource
  double rate = 0;          ///< of this route alone, in graph units
  std::optional<double> latency_ns;
};

class Routes {
 public:
  explicit Routes(const Graph& graph);

  [[nodiscard]] int ranks() const { return ranks_; }
  /// Null for a rank to itself and where there is no way.
  [[nodiscard]] const RankRoute* find(int from, int to) const;
  /// The route along these nodes; nothing if two neighbours have no link.
  [[nodiscard]] std::optional<RankRoute> along(std::span<const int> nodes) const;

  [[nodiscard]] int resources() const { return static_cast<int>(capacity_.size()); }
  [[nodiscard]] const std::vector<double>& capacities() const { return capacity_; }
  /// "g0 -> plx0" or the name of a group.
  [[nodiscard]] const std::string& resource_name(int resource) const;

  /// What one byte along every hop of the closed order loads on each resource; empty if a hop has
  /// no route.
  [[nodiscard]] std::vector<double> ring_loads(std::span<const int> order) const;
  /// Rate of a single ring in graph units: the least capacity over load; 0 if a hop has no route.
  [[nodiscard]] double rate(std::span<const int> order) const;

  /// Capacity into or out of the rank that has least of it: no set of rings is faster.
  [[nodiscard]] double degree_capacity() const { return degree_capacity_; }

  /// Whether no two hops of any ring can load the same resource: every resource serves routes of
  /// one sender only, or to one receiver only. Then a ring is as fast as its slowest hop alone.
  [[nodiscard]] bool hops_are_independent() const { return independent_; }
  /// Latency for comparing orders: where it is absent, the largest of any route (unknown is not
  /// assumed to be good); 0 if all are absent.
  [[nodiscard]] double latency_or_worst(int from, int to) const;

 private:
  struct Trunk {
    int from = 0;
    int to = 0;
    std::vector<int> links;
    double capacity = 0;
    std::optional<double> latency_ns;
  };
  void build_trunks(const Graph& graph);
  void build_resources(const Graph& graph);
  void search_from(const Graph& graph, int rank);
  [[nodiscard]] RankRoute make_route(const std::vector<int>& trunks) const;
  [[nodiscard]] bool check_independent() const;
  [[nodiscard]] std::size_t slot(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) +
           static_cast<std::size_t>(to);
  }

  int ranks_ = 0;
  std::vector<Trunk> trunks_;
  std::map<std::pair<int, int>, int> trunk_between_;
  std::vector<std::vector<int>> out_;  ///< trunks that leave each node, by target
  std::vector<double> capacity_;
  std::vector<std::string> names_;
  std::vector<std::vector<Load>> trunk_loads_;  ///< the groups that a trunk loads
  std::vector<std::optional<RankRoute>> routes_;
  double worst_latency_ns_ = 0;
  double degree_capacity_ = 0;
  bool independent_ = false;
};

}  // namespace topocoll
