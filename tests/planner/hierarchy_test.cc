#include "planner/hierarchy.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <tuple>

#include "planner/cluster_bound.h"
#include "planner/clusters.h"
#include "planner/emit.h"
#include "planner/make_graphs.h"

namespace topocoll {
namespace {

using namespace topocoll::testing;

struct Way {
  CollectiveKind kind;
  NodeShape shape;
};
constexpr Way kWays[] = {{CollectiveKind::kAllGather, NodeShape::kRing},
                         {CollectiveKind::kReduceScatter, NodeShape::kRing},
                         {CollectiveKind::kAllReduce, NodeShape::kRing},
                         {CollectiveKind::kAllReduce, NodeShape::kDoubleTree},
                         {CollectiveKind::kBroadcast, NodeShape::kChain},
                         {CollectiveKind::kBroadcast, NodeShape::kBinaryTree},
                         {CollectiveKind::kReduce, NodeShape::kChain},
                         {CollectiveKind::kReduce, NodeShape::kBinaryTree}};

HierarchicalPlan planned(const Cluster& cluster, Way way, int root = 0) {
  auto plan = plan_hierarchy(cluster, {way.kind, way.shape, root, 0, {}});
  EXPECT_TRUE(plan.ok()) << name(way.kind) << " by " << name(way.shape) << ": "
                         << plan.status().to_string();
  return plan.ok() ? std::move(*plan) : HierarchicalPlan();
}

/// Everything that can be said of a plan small enough to be written out.
void expect_valid(const Cluster& cluster, Way way, int root, const std::string& what) {
  const HierarchicalPlan plan = planned(cluster, way, root);
  ASSERT_GT(plan.load.size(), 0U) << what;
  const Status structure = check(plan);
  EXPECT_TRUE(structure.ok()) << what << ": " << structure.to_string();
  const auto flat = expand(plan);
  ASSERT_TRUE(flat.ok()) << what << ": " << flat.status().to_string();
  const Status proof = verify(*flat);
  EXPECT_TRUE(proof.ok()) << what << ", " << name(way.kind) << " by " << name(way.shape) << ": "
                          << proof.to_string();
  const auto graph = flat_graph(cluster);
  ASSERT_TRUE(graph.ok());
  const Status routes = check_routes(*flat, *graph);
  EXPECT_TRUE(routes.ok()) << what << ", " << name(way.kind) << " by " << name(way.shape) << ": "
                           << routes.to_string();
  const auto bound = cluster_bound(cluster, way.kind, root);
  ASSERT_TRUE(bound.ok());
  EXPECT_LE(plan.algbw()->to_double(), bound->algbw.to_double() * (1 + 1e-12)) << what;
}

TEST(Hierarchy, SmallExpansionsVerifyAndFitTheGraph) {
  for (const RecordedCluster& recorded : recorded_clusters()) {
    const Graph node = node_of(recorded.fixture);
    for (const int nodes : {2, 3, 4}) {
      const Cluster cluster = cluster_of(node, recorded.fabric, nodes);
      for (const Way way : kWays) {
        if (recorded.fixture == "dgx2_x2_relay" && way.shape == NodeShape::kDoubleTree) continue;
        expect_valid(cluster, way, nodes * 3, recorded.fixture + " x " + std::to_string(nodes));
      }
    }
  }
}

TEST(Hierarchy, LeavesAndSpinesAreNotOverloaded) {
  const Graph node = node_of("hgxh100_x2_rail8");
  for (const auto& [nodes, below] : {std::pair(5, 2), {7, 3}, {6, 1}}) {
    for (const bool joins : {false, true}) {
      const Cluster cluster =
          cluster_of(node, below_leaves(per_gpu(50, 8), below, 2, joins), nodes);
      for (const Way way : kWays) expect_valid(cluster, way, 11, std::to_string(nodes) + " nodes");
    }
  }
}

TEST(Hierarchy, RandomNodesVerify) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Graph node = random_graph(seed, seed % 2 == 1);
    Random random(seed);
    const Fabric fabric = per_gpu(0.5 * (1 + random.below(20)), 1 + random.below(node.ranks()));
    const Cluster cluster = cluster_of(node, fabric, 2 + random.below(3));
    for (const Way way : kWays) {
      expect_valid(cluster, way, random.below(cluster.ranks()), "seed " + std::to_string(seed));
    }
  }
}

TEST(Hierarchy, ComesCloseToTheBound) {
  struct Case {
    std::string fixture;
    Fabric fabric;
    int nodes;
  };
  for (const Case& c : {Case{"hgxh100_x2_rail8", per_gpu(50, 8), 64},
                        {"hgxh100_x2_flat", per_gpu(50), 8},
                        {"dgxa100_x2", per_gpu(25, 2), 4},
                        {"mi250_2x16", per_gpu(16), 16},
                        {"p4d_x2", p4d_fabric(), 2},
                        {"p4d_x2", p4d_fabric(), 32}}) {
    const Cluster cluster = cluster_of(node_of(c.fixture), c.fabric, c.nodes);
    for (const CollectiveKind kind :
         {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
      const double bound = cluster_bound(cluster, kind, 0)->algbw.to_double();
      EXPECT_GE(planned(cluster, {kind, NodeShape::kRing}).algbw()->to_double(), 0.98 * bound)
          << c.fixture << " x " << c.nodes << ", " << name(kind);
    }
  }
}

TEST(Hierarchy, WeaklyLinkedGpusAreLeaves) {
  GraphMaker maker(5);
  for (int a = 0; a < 5; ++a) {
    for (int b = a + 1; b < 5; ++b) maker.both(rank_name(a), rank_name(b), b == 4 ? 5 : 40);
  }
  const HierarchicalPlan plan = planned(cluster_of(maker.make(), per_gpu(2), 16), kWays[0]);
  ASSERT_TRUE(plan.spreads.has_value());
  int passed_on = 0;
  int trees = 0;
  for (const Tree& tree : plan.spreads->transit) {
    if (tree.root == 4) continue;
    ++trees;
    for (const Hop& hop : tree.hops) passed_on += hop.from == 4 ? 1 : 0;
  }
  EXPECT_GT(trees, 0);
  EXPECT_EQ(passed_on, 0);
}

TEST(Hierarchy, StepsOfOneRankAreThoseOfTheWholePlan) {
  const Cluster cluster = cluster_of(node_of("mi250_2x8"), per_gpu(16), 3);
  for (const Way way : kWays) {
    const HierarchicalPlan plan = planned(cluster, way, 5);
    const auto flat = expand(plan);
    ASSERT_TRUE(flat.ok());
    for (const int rank : {0, 5, 23})
      EXPECT_EQ(*rank_steps(plan, rank), flat->steps[at(rank)]) << name(way.shape);
  }
  EXPECT_EQ(rank_steps(planned(cluster, kWays[0]), 24).status().cause(), Cause::kInvalidArgument);
}

/// What `from` sends to `to` on each channel, in order, or what `to` takes.
std::map<int, int> messages(const std::vector<Step>& steps, StepKind kind, int peer) {
  std::map<int, int> count;
  for (const Step& step : steps) {
    if (step.kind == kind && step.peer == peer) ++count[step.channel];
  }
  return count;
}

TEST(Hierarchy, BothEndsOfAChannelAgreeInAClusterTooLargeToWriteOut) {
  const Cluster cluster =
      cluster_of(node_of("hgxh100_x2_rail8"), below_leaves(per_gpu(50, 8), 32, 2), 2048);
  for (const Way way : {kWays[0], kWays[3]}) {
    const HierarchicalPlan plan = planned(cluster, way);
    EXPECT_TRUE(check(plan).ok());
    EXPECT_EQ(expand(plan).ok(), way.shape == NodeShape::kDoubleTree);
    const int rank = 8 * 1000 + 3;
    const auto steps = rank_steps(plan, rank);
    ASSERT_TRUE(steps.ok());
    std::map<int, bool> peers;
    std::size_t received = 0;
    for (const Step& step : *steps) {
      if (step.peer >= 0) peers[step.peer] = true;
      if (step.kind == StepKind::kRecv) ++received;
    }
    // Every block of every other rank arrives once; in trees each half of a slot comes down once.
    if (way.shape == NodeShape::kRing) {
      EXPECT_EQ(received, (8U * 2048U - 1U) * static_cast<unsigned>(plan.chunks));
    }
    for (const auto& [peer, used] : peers) {
      const auto other = rank_steps(plan, peer);
      ASSERT_TRUE(other.ok());
      EXPECT_EQ(messages(*steps, StepKind::kSend, peer), messages(*other, StepKind::kRecv, rank))
          << peer;
      EXPECT_EQ(messages(*steps, StepKind::kRecv, peer), messages(*other, StepKind::kSend, rank))
          << peer;
    }
  }
}

TEST(Hierarchy, BrokenTemplatesAreRefused) {
  const Cluster cluster = cluster_of(node_of("hgxh100_x2_rail8"), per_gpu(50, 8), 3);
  const HierarchicalPlan good = planned(cluster, kWays[2]);
  ASSERT_TRUE(check(good).ok());
  const auto refused = [&](auto change) {
    HierarchicalPlan plan = good;
    change(plan);
    return !check(plan).ok();
  };
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.order[0] = 1; }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.order.pop_back(); }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.reduces.reset(); }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.spreads->own[1].hops.pop_back(); }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.spreads->transit[2].hops[3].to = 0; }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.spreads->transit[2].hops[0].path.pop_back(); }));
  EXPECT_TRUE(refused(
      [](HierarchicalPlan& p) { std::swap(p.spreads->transit[0], p.spreads->transit[1]); }));
  EXPECT_TRUE(
      refused([](HierarchicalPlan& p) { std::swap(p.reduces->own[0], p.reduces->own[1]); }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.spreads->lane[0] = 99; }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.spreads->lanes[0].out.pop_back(); }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.spreads->lanes[0].exit = 1; }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.spreads->lanes[0].rail = 8; }));
  EXPECT_TRUE(refused([](HierarchicalPlan& p) { p.spreads->lane.pop_back(); }));
}

TEST(Hierarchy, SaysWhatItCannotDo) {
  const Cluster cluster = cluster_of(node_of("dgx2_x2_relay"), relay_fabric(), 2);
  const auto trees =
      plan_hierarchy(cluster, {CollectiveKind::kAllReduce, NodeShape::kDoubleTree, 0, 0, {}});
  ASSERT_FALSE(trees.ok());
  EXPECT_NE(trees.status().text().find("sends and"), std::string::npos) << trees.status().text();
  EXPECT_EQ(plan_hierarchy(cluster, {CollectiveKind::kBroadcast, NodeShape::kRing, 0, 0, {}})
                .status()
                .cause(),
            Cause::kUnsupported);
  EXPECT_EQ(plan_hierarchy(cluster, {CollectiveKind::kBroadcast, NodeShape::kChain, 32, 0, {}})
                .status()
                .cause(),
            Cause::kInvalidArgument);
  EXPECT_EQ(plan_hierarchy(cluster, {CollectiveKind::kAllGather, NodeShape::kRing, 0, 0, {0}})
                .status()
                .cause(),
            Cause::kInvalidArgument);
}

}  // namespace
}  // namespace topocoll
