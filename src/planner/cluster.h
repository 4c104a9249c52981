// Cluster: many equal nodes on a network of rails, as one cell and how often it occurs.
//
//   Result<Cluster> cluster = make_cluster(node, fabric, 2048);
//   Result<Graph> flat = flat_graph(*cluster);               // of small clusters: every rank
//   Quotient q = *quotient(*cluster, {0});                   // of any: node 0, all others merged
//
// The cell is a Graph of one node, a leaf switch and, where there are several leaves, a spine for
// each rail, and the links between them. All capacities are in one unit, so quotients and the flat
// graph are exact. Node i stands below leaf i / nodes_per_leaf. Permuting nodes below a leaf, and
// leaves with equally many nodes, changes nothing: these are the symmetries that quotients use.
// Thread rule: values. Failure rule: kInvalidArgument names the port or number that makes no sense.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/bound.h"
#include "planner/graph.h"
#include "topocoll/cluster.h"
#include "topocoll/status.h"

namespace topocoll {

/// A port of the node: one or both links between it and its rail's leaf.
struct CellPort {
  int node = 0;  ///< of the cell
  int rail = 0;
  int out = -1;  ///< link into the network, or -1
  int in = -1;
  friend bool operator==(const CellPort&, const CellPort&) = default;
};

struct Cluster {
  /// The node's own nodes and links come first, then leaves (and spines) by rail.
  Graph cell;
  int host_nodes = 0;  ///< nodes of the cell that belong to the node
  int host_links = 0;  ///< links likewise; then two of each port, then those of spines
  int rails = 1;
  int spines = 0;  ///< 0 if there is one leaf a rail; 1 if rails meet; else one a rail
  std::vector<CellPort> ports;
  int nodes = 2;
  int nodes_per_leaf = 2;

  [[nodiscard]] int gpus() const { return cell.ranks(); }  ///< of a node
  [[nodiscard]] int ranks() const { return nodes * gpus(); }
  [[nodiscard]] int leaves() const { return (nodes + nodes_per_leaf - 1) / nodes_per_leaf; }
  [[nodiscard]] int leaf_of(int node) const { return node / nodes_per_leaf; }
  /// Nodes below a leaf.
  [[nodiscard]] int below(int leaf) const {
    return leaf + 1 < leaves() ? nodes_per_leaf : nodes - leaf * nodes_per_leaf;
  }
  [[nodiscard]] int leaf_node(int rail) const { return host_nodes + rail; }
};

/// `node` is a graph of one machine, its ranks the GPUs.
Result<Cluster> make_cluster(const Graph& node, const Fabric& fabric, int nodes);

/// Every link turned round.
Cluster reversed(const Cluster& cluster);

/// The node alone, without the network.
Graph host_graph(const Cluster& cluster);

/// All nodes as one graph, within the limits of graphs. Ids are "3/g0" for g0 of node 3.
Result<Graph> flat_graph(const Cluster& cluster);

/// A graph in which some nodes stand for themselves and the others are merged: below the leaf of a
/// single node into one, leaves without single nodes (of equally many nodes each) into one with one
/// node.
struct Quotient {
  Graph graph;
  RankBlocks ranks;  ///< how many ranks each one stands for; receivers: those of single nodes
  std::vector<int> copies;  ///< of each node of the graph: how many it stands for
  /// Ranks of the single nodes: rank_of[i][gpu] for the i-th of `single`.
  std::vector<std::vector<int>> rank_of;
};
/// `single`: different nodes.
Result<Quotient> quotient(const Cluster& cluster, const std::vector<int>& single);

}  // namespace topocoll
