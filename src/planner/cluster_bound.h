// Bounds of clusters, from quotients.
//
//   Result<ClusterBound> bound = cluster_bound(cluster, CollectiveKind::kAllGather, 0);
//
// Why a quotient is enough. The bound of all_gather is the largest x at which, for every rank v, no
// set S of nodes without v has B+(S) < x times the blocks in S; the sets that minimise B+(S) - x
// blocks(S) among those without v are closed under intersection (the function is submodular), so
// there is a least one. A symmetry of the cluster that leaves v alone maps minimisers to
// minimisers, so it maps the least one to itself: it holds either all or none of the nodes that
// such symmetries exchange. Merging them therefore loses no minimum cut, and a merged set's
// capacity is the flat one's to the digit. Ranks v of one node below a full leaf, and of one below
// the last leaf if that has fewer nodes, stand for all. The same holds for max-flows between two
// ranks, with the nodes of both left single. all_reduce: (a) of bound.h the same way; (b) for the
// parts: single ranks, what hangs together in a node by links above a threshold, nodes, leaves.
// Flat bounds try the same parts. Thread rule: free functions on values. Failure rule: numbers that
// do not fit 64 bits are an error.
#pragma once

#include <string>

#include "planner/cluster.h"
#include "planner/rational.h"
#include "topocoll/status.h"
#include "topocoll/types.h"

namespace topocoll {

struct ClusterBound {
  Rational algbw;  ///< GB/s
  bool exact = true;
  std::string bottleneck;
};

/// `root`: a rank of the cluster, where the kind has one.
Result<ClusterBound> cluster_bound(const Cluster& cluster, CollectiveKind kind, int root);

}  // namespace topocoll
