// Hierarchical plans: what every node of a cluster does, once, and how nodes follow each other.
//
//   Result<HierarchicalPlan> plan = plan_hierarchy(cluster, request);
//   plan->algbw()                                  // GB/s that the most loaded link allows
//   Status proof = check(*plan);                   // for any number of nodes
//   std::vector<Step> steps = *rank_steps(*plan, 12345);
//
// A message's chunks travel as items. An item has a tree over nodes (a path around the ring, a
// chain or a binary tree) and a slot, which says how it moves within each node: the first node
// spreads it along the slot's tree `own`, every other one along `transit`, rooted where the item
// enters; the lane's exit, which both trees reach, sends it to the next nodes. A template that
// reduces is the mirror image: made on the cluster with every link turned round, run backwards.
//   all_gather      an item for each chunk of each rank's block, around the ring from its node
//   reduce_scatter  its mirror image; all_reduce by rings: both, one after the other
//   all_reduce by double binary trees: two items a slot, up and down binary trees over nodes
//   broadcast, reduce: an item a slot, along a chain or a binary tree from the root's node
// Proof for any number of nodes. check() holds these conditions against the template: every tree
// spans the node's GPUs from its root, with paths that exist; a lane leads from its exit to its
// entrance; transit trees start at entrances; node numbers are a permutation. Then by induction
// over the tree of nodes each node holds each item on every GPU exactly once (mirrored: each
// contribution once). Steps follow stages (depth over nodes, then depth within the node) that grow
// along every way, both ends of a channel pass items in the same order, and a rank sends before it
// receives within a stage: nobody waits for ever. verify() on small expansions says the same.
// Thread rule: values. Failure rule: kUnsupported says what cannot be planned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/cluster.h"
#include "planner/rational.h"
#include "planner/trees.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

/// Trees over all ranks are packed for so many ranks at first; beyond, hosts are planned as one template.
inline constexpr int kMostFlatRanks = 40;
/// What else is slow to find is only looked for where a plan stays below this part of its bound.
inline constexpr double kCloseEnough = 0.98;

/// From one GPU of a node, over one rail, to one of the next node.
struct Lane {
  int rail = 0;
  int exit = 0;  ///< GPUs of a node
  int entrance = 0;
  std::vector<int> out;  ///< links of the cell from the exit to the leaf
  std::vector<int> in;   ///< and from a leaf to the entrance
  double capacity = 0;   ///< its part of the ports it passes, in the cell's units
};

/// How items move within nodes; data as on the cluster it was made for (turned, if it reduces).
struct NodeTemplate {
  std::vector<Lane> lanes;
  std::vector<int> lane;      ///< of each slot
  std::vector<Tree> own;      ///< of each slot; hops are GPUs and links of the cell, parents first
  std::vector<Tree> transit;  ///< rooted at the lane's entrance
};

enum class NodeShape : std::uint8_t {
  kRing,        ///< all_gather, reduce_scatter, all_reduce
  kDoubleTree,  ///< all_reduce
  kChain,       ///< broadcast, reduce
  kBinaryTree,  ///< broadcast, reduce
};
std::string_view name(NodeShape shape);
/// Those that serve a kind, the one that is taken where others are no better first.
std::vector<NodeShape> shapes_of(CollectiveKind kind);

struct HierarchicalPlan {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  NodeShape shape = NodeShape::kRing;
  int root = 0;  ///< rank
  Cluster cluster;
  std::vector<int> order;               ///< node at each place of the ring, chain or tree
  int chunks = 1;                       ///< of each rank's block (rings), else slots
  std::optional<NodeTemplate> reduces;  ///< of the turned cluster; its data flows against its hops
  std::optional<NodeTemplate> spreads;
  std::vector<std::int64_t>
      load;  ///< chunks over each link of the cell, at the node where it is most
  std::int64_t message_chunks = 1;

  [[nodiscard]] int slots() const {
    return static_cast<int>((spreads ? spreads : reduces)->lane.size());
  }
  [[nodiscard]] int items() const;
  /// The link that limits, and GB/s of the message at its capacity.
  [[nodiscard]] int bottleneck() const;
  [[nodiscard]] std::optional<Rational> algbw() const;
};

struct HierarchyRequest {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  NodeShape shape = NodeShape::kRing;
  int root = 0;
  double enough = 0;         ///< GB/s: no finer chunks are tried once a plan has this
  std::vector<int> order{};  ///< of nodes; empty: by number
};

Result<HierarchicalPlan> plan_hierarchy(const Cluster& cluster, const HierarchyRequest& request);

/// The conditions above. Knows nothing of how templates are made.
Status check(const HierarchicalPlan& plan);

Result<std::vector<Step>> rank_steps(const HierarchicalPlan& plan, int rank);
/// All ranks' steps and routes; kUnsupported beyond the limits of plans.
Result<Plan> expand(const HierarchicalPlan& plan);

}  // namespace topocoll
