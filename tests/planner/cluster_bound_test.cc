#include "planner/cluster_bound.h"

#include <gtest/gtest.h>

#include "planner/clusters.h"

namespace topocoll {
namespace {

using namespace topocoll::testing;

/// The bound of the flat graph, from functions that know nothing of clusters.
Rational flat_bound(const Graph& graph, CollectiveKind kind, int root) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return allgather_bound(graph)->algbw;
    case CollectiveKind::kReduceScatter:
      return reduce_scatter_bound(graph)->algbw;
    case CollectiveKind::kAllReduce:
      return allreduce_bound(graph)->upper;
    case CollectiveKind::kBroadcast:
      return *graph.unit.times(Rational(broadcast_rate(graph, root)));
    default:
      return *graph.unit.times(Rational(broadcast_rate(reversed(graph), root)));
  }
}

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kAllReduce, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce};

void expect_flat_bounds(const Cluster& cluster, int root, const std::string& what) {
  const auto flat = flat_graph(cluster);
  ASSERT_TRUE(flat.ok()) << flat.status().to_string();
  for (const CollectiveKind kind : kKinds) {
    const auto bound = cluster_bound(cluster, kind, root);
    ASSERT_TRUE(bound.ok()) << what << ": " << bound.status().to_string();
    EXPECT_EQ(bound->algbw.to_string(), flat_bound(*flat, kind, root).to_string())
        << what << ", " << name(kind) << ", limited by " << bound->bottleneck;
  }
}

TEST(ClusterBound, EqualsTheKnownOptimumOfRecordedMachines) {
  for (const RecordedCluster& recorded : recorded_clusters()) {
    const Fixture fixture = load_fixture(recorded.fixture);
    const Cluster cluster = cluster_of(node_of(recorded.fixture), recorded.fabric, recorded.nodes);
    const auto bound = cluster_bound(cluster, CollectiveKind::kAllGather, 0);
    ASSERT_TRUE(bound.ok());
    EXPECT_EQ(bound->algbw, Rational::parse(fixture.expect["allgather_algbw"].get<std::string>()))
        << recorded.fixture;
    EXPECT_TRUE(bound->exact);
    const auto all_reduce = cluster_bound(cluster, CollectiveKind::kAllReduce, 0);
    ASSERT_TRUE(all_reduce.ok());
    EXPECT_EQ(all_reduce->algbw, allreduce_bound(fixture.graph)->upper) << recorded.fixture;
    for (int root = 0; root < cluster.ranks(); root += 5) {
      const auto broadcast = cluster_bound(cluster, CollectiveKind::kBroadcast, root);
      ASSERT_TRUE(broadcast.ok());
      EXPECT_EQ(broadcast->algbw.to_double(),
                fixture.graph.gbps(static_cast<double>(broadcast_rate(fixture.graph, root))))
          << recorded.fixture << ", root " << root;
    }
  }
}

TEST(ClusterBound, EqualsTheFlatBoundBelowLeavesAndSpines) {
  const Graph node = node_of("hgxh100_x2_rail8");
  const Graph mesh = node_of("mi250_2x8");
  for (const int nodes : {2, 3, 5, 7}) {
    for (const double oversubscription : {1.0, 2.0, 3.0}) {
      for (const bool joins : {false, true}) {
        const std::string what =
            std::to_string(nodes) + " nodes, " + std::to_string(oversubscription);
        expect_flat_bounds(
            cluster_of(node, below_leaves(per_gpu(50, 8), 2, oversubscription, joins), nodes), 9,
            what);
        expect_flat_bounds(
            cluster_of(mesh, below_leaves(per_gpu(16), 3, oversubscription, joins), nodes), 0,
            what);
      }
    }
  }
}

TEST(ClusterBound, EqualsTheFlatBoundOfRandomNodes) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Graph node = random_graph(seed, seed % 2 == 1);
    Random random(seed);
    Fabric fabric;
    fabric.rails = 1 + random.below(2);
    // Each rail needs a sender and a receiver; more ports come at random.
    for (int i = 0; i < 2 * fabric.rails + random.below(3); ++i) {
      const double gbps = 0.5 * (1 + random.below(20));
      const std::string& id = node.nodes[at(random.below(static_cast<int>(node.nodes.size())))].id;
      fabric.ports.push_back({id, i % fabric.rails, i < fabric.rails || i % 2 == 0 ? gbps : 0,
                              i < fabric.rails ? 0 : gbps});
    }
    if (random.below(2) == 1)
      fabric = below_leaves(fabric, 1 + random.below(3), 1 + random.below(3), seed % 3 == 0);
    const Cluster cluster = cluster_of(node, fabric, 2 + random.below(4));
    if (cluster.ranks() == 0) continue;
    // Parts of nodes that hang together only through the network are tried flat, too: the bound may
    // be the better one.
    for (const CollectiveKind kind : kKinds) {
      const auto flat = flat_graph(cluster);
      ASSERT_TRUE(flat.ok());
      const int root = random.below(cluster.ranks());
      const auto bound = cluster_bound(cluster, kind, root);
      ASSERT_TRUE(bound.ok()) << "seed " << seed << ": " << bound.status().to_string();
      const Rational expected = flat_bound(*flat, kind, root);
      if (kind == CollectiveKind::kAllReduce) {
        EXPECT_GE(bound->algbw.to_double(), 0.5 * expected.to_double()) << "seed " << seed;
      } else {
        EXPECT_EQ(bound->algbw, expected)
            << "seed " << seed << ", " << name(kind) << ", root " << root;
      }
    }
  }
}

TEST(ClusterBound, SharedGroupsLowerIt) {
  GraphDescription d;
  for (const char* id : {"g0", "g1"}) d.nodes.push_back({id, true, "node"});
  d.links = {{"g0", "g1", 10, false, {}, "link"}, {"g1", "g0", 10, false, {}, "link"}};
  d.groups = {{"port", {0, 1}, 10, false, "group"}};
  const Cluster cluster = cluster_of(*make_graph(d, "half duplex"), per_gpu(100), 3);
  const auto bound = cluster_bound(cluster, CollectiveKind::kAllGather, 0);
  ASSERT_TRUE(bound.ok());
  EXPECT_FALSE(bound->exact);
  EXPECT_EQ(bound->algbw, allgather_bound(*flat_graph(cluster))->algbw);
}

TEST(ClusterBound, ThousandsOfNodesAreLimitedByOne) {
  const Cluster cluster = cluster_of(node_of("hgxh100_x2_rail8"), per_gpu(50, 8), 2048);
  const auto bound = cluster_bound(cluster, CollectiveKind::kAllGather, 0);
  ASSERT_TRUE(bound.ok());
  // What enters one node, 400 GB/s, over the blocks of all others.
  EXPECT_EQ(bound->algbw, *Rational::make(400 * 2048, 2047));
  EXPECT_EQ(bound->bottleneck, "one node");
}

}  // namespace
}  // namespace topocoll
