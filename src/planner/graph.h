// Graph: the machine as the planner sees it: ranks, switches and directed links with integer
// capacities.
//
//   Result<Graph> graph = make_graph(description, "dgx1v");   // or graph_from_topology()
//   graph->gbps(graph->links[0].capacity)         // exact: 25
//
// A rank is a GPU or a CPU process: it may copy and reduce. A switch only forwards what it gets.
// Links are directed; parallel links are allowed. A shared group caps the sum over its member links
// (the two directions of a half-duplex port, the functions of one PCIe slot); a link may be in
// several groups. Capacities are integers in units of Graph::unit, so that bounds and packings are
// exact: declared bandwidths are taken as the decimal numbers they print as (where these have no
// common unit, those of more than six decimals as the simplest fraction within 10^-9), measured
// ones are first put on a grid of 1 % (quantised() of planner/rational.h). Thread rule: a Graph is
// a value. Failure rule: make_graph() checks everything once and names the place in the input;
// functions on a Graph may then rely on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/rational.h"
#include "topocoll/status.h"

namespace topocoll {

/// Limits, so that a hostile file costs bounded memory and exact arithmetic cannot overflow.
inline constexpr int kMaxGraphRanks = 4096;
inline constexpr int kMaxGraphNodes = 1 << 14;
inline constexpr int kMaxGraphLinks = 1 << 17;
inline constexpr double kMinGraphGbps = 1e-6;
inline constexpr double kMaxGraphGbps = 1e6;
/// All capacities of a graph together, in its units.
inline constexpr std::int64_t kMaxTotalCapacity = std::int64_t{1} << 44;

struct GraphNode {
  std::string id;
  int rank = -1;  ///< index among the ranks, in the order of the input; -1: a switch
  friend bool operator==(const GraphNode&, const GraphNode&) = default;
};

struct GraphLink {
  int from = 0;  ///< index into Graph::nodes
  int to = 0;
  std::int64_t capacity = 0;  ///< positive, in Graph::unit
  std::optional<double> latency_ns;
  friend bool operator==(const GraphLink&, const GraphLink&) = default;
};

struct SharedGroup {
  std::string name;
  std::vector<int> links;     ///< indices into Graph::links, ascending
  std::int64_t capacity = 0;  ///< of all of them together, in Graph::unit
  friend bool operator==(const SharedGroup&, const SharedGroup&) = default;
};

/// What make_graph() guarantees: two ranks or more, every rank reaches every other, all indices
/// exist, no link from a node to itself, capacities positive and kMaxTotalCapacity at most
/// together.
struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<GraphLink> links;
  std::vector<SharedGroup> groups;
  Rational unit{1};  ///< GB/s (10^9 bytes a second, one direction) of one unit of capacity
  std::vector<int> rank_nodes;  ///< node of each rank

  [[nodiscard]] int ranks() const { return static_cast<int>(rank_nodes.size()); }
  [[nodiscard]] bool is_rank(int node) const {
    return nodes[static_cast<std::size_t>(node)].rank >= 0;
  }
  [[nodiscard]] const std::string& rank_id(int rank) const;
  /// A capacity or rate in units as GB/s.
  [[nodiscard]] double gbps(double units) const { return units * unit.to_double(); }
  friend bool operator==(const Graph&, const Graph&) = default;
};

/// A graph before it is checked, with the place of each part in the input for messages.
struct GraphDescription {
  struct Node {
    std::string id;
    bool is_rank = false;
    std::string where;  ///< e.g. "nodes[3]"
  };
  struct Link {
    std::string from;
    std::string to;
    double gbps = 0;
    bool measured = false;
    std::optional<double> latency_ns;
    std::string where;
  };
  struct Group {
    std::string name;
    std::vector<std::int64_t> links;  ///< indices into `links`
    double gbps = 0;
    bool measured = false;
    std::string where;
  };
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<Group> groups;
};

/// Checks and converts. `what` names the input in messages ("dgx1v.json").
Result<Graph> make_graph(const GraphDescription& description, std::string_view what);

}  // namespace topocoll
