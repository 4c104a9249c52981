#include "planner/channels.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/allreduce.h"
#include "planner/emit.h"
#include "planner/graphs.h"
#include "planner/plans.h"

namespace topocoll {
namespace {

using testing::computes_right;
using testing::random_graph;

const Hop kNear{0, 1, {0}};
const Hop kFar{0, 1, {1, 2}};

/// `count` times the same hop.
void repeat(std::vector<const Hop*>& hops, const Hop& hop, int count) {
  hops.insert(hops.end(), static_cast<std::size_t>(count), &hop);
}

TEST(Channels, APathHasOneUnlessDivided) {
  ChannelTable channels;
  EXPECT_EQ(channels.carry(kNear), 0);
  EXPECT_EQ(channels.carry(kFar), 1);
  EXPECT_EQ(channels.carry(kNear), 0);
  EXPECT_EQ(channels.take(kNear), 0);
  EXPECT_EQ(channels.most(), 2);
}

TEST(Channels, AreInProportionToWhatPathsCarry) {
  std::vector<const Hop*> hops;
  repeat(hops, kNear, 6);
  repeat(hops, kFar, 2);
  ChannelTable channels;
  channels.divide(hops, 8);
  EXPECT_EQ(channels.carry(kNear), 0);
  EXPECT_EQ(channels.carry(kNear), 1);
  EXPECT_EQ(channels.carry(kFar), 3);
  EXPECT_EQ(channels.carry(kFar), 3);
  EXPECT_EQ(channels.carry(kNear), 2);
  EXPECT_EQ(channels.carry(kNear), 0);
  for (const int channel : {0, 1, 2, 0}) EXPECT_EQ(channels.take(kNear), channel);
  EXPECT_EQ(channels.most(), 4);
}

TEST(Channels, AreNoMoreThanAskedForAndOneWherePathsCarryTheSame) {
  std::vector<const Hop*> hops;
  repeat(hops, kNear, 100);
  repeat(hops, kFar, 3);
  ChannelTable uneven;
  uneven.divide(hops, 8);
  uneven.carry(kNear);
  EXPECT_EQ(uneven.most(), 8);
  EXPECT_EQ(uneven.carry(kFar), 8);

  repeat(hops, kFar, 97);
  ChannelTable even;
  even.divide(hops, 8);
  even.carry(kNear);
  EXPECT_EQ(even.carry(kFar), 1);
  EXPECT_EQ(even.most(), 2);
}

using Way = std::tuple<int, int, std::vector<std::string>>;

std::map<Way, double> gbps_by_path(const Plan& plan) {
  std::map<Way, double> gbps;
  for (const Route& route : plan.routes) gbps[{route.from, route.to, route.path}] += route.gbps;
  return gbps;
}

TEST(Channels, DividedPlansMoveTheSameOverTheSamePaths) {
  int divided = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_graph(seed, seed % 2 == 0);
    const auto gather = pack_allgather(graph);
    const auto reduce = pack_reduce(graph, 0);
    const auto pairs = pack_allreduce(graph);
    ASSERT_TRUE(gather.ok() && reduce.ok() && pairs.ok());
    const auto make = [&](int kind, int channels) {
      if (kind == 0) {
        return *plan_from_packing(CollectiveKind::kAllGather, graph, *gather, {}, channels);
      }
      if (kind == 1) {
        return *plan_from_packing(CollectiveKind::kReduce, graph, *reduce, {}, channels);
      }
      return *plan_from_pairs(graph, pairs->pairs, kPairRounding, channels);
    };
    for (int kind = 0; kind < 3; ++kind) {
      const TreePlan one = make(kind, 1);
      const TreePlan several = make(kind, kPathChannels);
      EXPECT_TRUE(verify(several.plan).ok()) << verify(several.plan).to_string();
      EXPECT_TRUE(check_routes(several.plan, graph).ok());
      EXPECT_EQ(several.chunks, one.chunks);
      EXPECT_TRUE(seed % 10 != 0 || computes_right(several.plan));
      const auto before = gbps_by_path(one.plan);
      const auto after = gbps_by_path(several.plan);
      ASSERT_EQ(after.size(), before.size());
      for (const auto& [path, gbps] : before) EXPECT_NEAR(after.at(path), gbps, 1e-9 * gbps);
      if (several.plan.channels > one.plan.channels) ++divided;
    }
  }
  EXPECT_GE(divided, 100);
}

}  // namespace
}  // namespace topocoll
