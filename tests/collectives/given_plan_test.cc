// CpuCollectives under plans that the user gave: partial results, means and factors, sizes, room.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/cpu/collectives.h"
#include "planner/emit.h"
#include "planner/ring_plans.h"
#include "support/evaluate.h"
#include "support/group.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::run_ranks;
using testing::ShmGroup;

constexpr int kRanks = 4;

Plan ring(CollectiveKind kind = CollectiveKind::kAllReduce) {
  // Not in the order of ranks, so that the order of evaluation shows.
  return *make_ring_plan(kind, {{0, 2, 1, 3}, {3, 1, 0, 2}}, 1);
}

/// Runs one operation on all ranks under `plans`; returns each rank's result and the algorithm.
template <class T>
std::string run(const std::vector<Plan>& plans, const Operation& prototype, std::vector<std::vector<T>>& in,
                std::vector<std::vector<T>>& out, Status* error = nullptr) {
  ShmGroup group(kRanks);
  std::string algorithm;
  run_ranks(kRanks, [&](int r) {
    Context context(Os::real(), group[r], r);
    context.tuning.eager_bytes = 1 << 14;
    context.tuning.window_bytes = 4096;
    context.waiter.set_policy({.spin = 200, .yields = 2});
    CpuCollectives collectives(context);
    collectives.use(plans);
    Operation op = prototype;
    op.in = in[static_cast<std::size_t>(r)].data();
    op.out = out[static_cast<std::size_t>(r)].data();
    if (op.reduction.op == ReduceOp::kPremulSum) op.reduction.factor = r + 1;
    shm::Deadline deadline(30s);
    const ExecResult result = collectives.execute(op, 1, deadline);
    if (error == nullptr) {
      ASSERT_TRUE(result.ok()) << static_cast<int>(result.stop) << result.status.text();
    }
    if (r == 0) {
      algorithm = collectives.choice(op).algorithm;
      if (error != nullptr) *error = result.status;
    }
  });
  return algorithm;
}

template <class T>
std::vector<std::vector<T>> buffers(std::size_t count) {
  return std::vector<std::vector<T>>(kRanks, std::vector<T>(count));
}

Operation all_reduce(DataType type, std::size_t count, ReduceOp op) {
  Operation o;
  o.kind = CollectiveKind::kAllReduce;
  o.type = type;
  o.count = count;
  o.reduction = op;
  return o;
}

TEST(GivenPlan, SumsHaveTheBitsOfThePlansOwnTree) {
  const Plan plan = ring();
  const std::vector<std::string> orders = evaluation_orders(plan, 0).value();
  for (const std::size_t count : {1u, 7u, 1000u, 20'011u}) {
    auto in = buffers<float>(count);
    auto out = buffers<float>(count);
    for (int r = 0; r < kRanks; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        in[static_cast<std::size_t>(r)][i] = 1.0f / static_cast<float>(i * 7 + static_cast<std::size_t>(r) * 3 + 1);
      }
    }
    EXPECT_EQ(run(std::vector{plan}, all_reduce(DataType::kF32, count, ReduceOp::kSum), in, out), plan.algorithm);
    EXPECT_EQ(out[0], out[3]);
    // Any element's tree is that of one of the chunks; where chunks end is the executor's business.
    for (std::size_t i = 0; i < count; ++i) {
      bool found = false;
      for (const std::string& order : orders) {
        std::size_t at = 0;
        found = found || out[0][i] == testing::evaluate<float>(order, at, [&](int r) {
                  return in[static_cast<std::size_t>(r)][i];
                });
      }
      ASSERT_TRUE(found) << "element " << i << " of " << count;
    }
  }
}

TEST(GivenPlan, AMeanIsDividedOnceAtTheEnd) {
  const std::size_t count = 3000;
  auto in = buffers<std::int32_t>(count);
  auto out = buffers<std::int32_t>(count);
  for (int r = 0; r < kRanks; ++r) {
    for (std::size_t i = 0; i < count; ++i) in[static_cast<std::size_t>(r)][i] = static_cast<int>(i % 7) - 3 * r;
  }
  run(std::vector{ring()}, all_reduce(DataType::kI32, count, ReduceOp::kAvg), in, out);
  for (std::size_t i = 0; i < count; ++i) {
    int sum = 0;
    for (const auto& rank : in) sum += rank[i];
    ASSERT_EQ(out[1][i], sum / kRanks) << i;  // toward zero
  }
}

TEST(GivenPlan, FactorsMultiplyEachContributionOnce) {
  const std::size_t count = 3000;
  auto in = buffers<float>(count);
  auto out = buffers<float>(count);
  for (int r = 0; r < kRanks; ++r) {
    for (std::size_t i = 0; i < count; ++i) in[static_cast<std::size_t>(r)][i] = static_cast<float>(i % 97 + static_cast<std::size_t>(r));
  }
  run(std::vector{ring()}, all_reduce(DataType::kF32, count, ReduceOp::kPremulSum), in, out);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < kRanks; ++r) sum += static_cast<float>(r + 1) * in[static_cast<std::size_t>(r)][i];
    ASSERT_EQ(out[2][i], sum) << i;  // small integers: exact
  }
}

TEST(GivenPlan, BlocksAreCutIntoThePlansPieces) {
  const std::size_t count = 1003;
  auto in = buffers<std::uint8_t>(count);
  auto out = buffers<std::uint8_t>(count * kRanks);
  for (int r = 0; r < kRanks; ++r) {
    auto& mine = in[static_cast<std::size_t>(r)];
    std::iota(mine.begin(), mine.end(), static_cast<std::uint8_t>(r * 50));
  }
  Operation op;
  op.kind = CollectiveKind::kAllGather;
  op.type = DataType::kU8;
  op.count = count;
  const Plan plan = ring(CollectiveKind::kAllGather);
  ASSERT_EQ(plan.chunks, 2);
  EXPECT_EQ(run(std::vector{plan}, op, in, out), plan.algorithm);
  std::vector<std::uint8_t> all;
  for (const auto& part : in) all.insert(all.end(), part.begin(), part.end());
  for (const auto& result : out) EXPECT_EQ(result, all);
}

/// Blocks that pass ranks in between: 0 - 1 - 2 - 3 is a line.
Plan line_exchange() {
  GraphDescription line;
  for (int r = 0; r < kRanks; ++r) line.nodes.push_back({std::to_string(r), true, "node"});
  for (int r = 0; r + 1 < kRanks; ++r) {
    line.links.push_back({std::to_string(r), std::to_string(r + 1), 10, false, {}, "link"});
    line.links.push_back({std::to_string(r + 1), std::to_string(r), 10, false, {}, "link"});
  }
  const Graph graph = *make_graph(line, "line");
  return plan_from_exchange(graph, *pack_exchange(graph))->plan;
}

TEST(GivenPlan, BlocksOfAnAllToAllPassOtherRanks) {
  const std::size_t count = 4099;
  auto in = buffers<std::uint32_t>(count * kRanks);
  auto out = buffers<std::uint32_t>(count * kRanks);
  for (std::uint32_t r = 0; r < kRanks; ++r) std::iota(in[r].begin(), in[r].end(), r << 20);
  Operation op;
  op.kind = CollectiveKind::kAllToAll;
  op.type = DataType::kU32;
  op.count = count;
  const Plan plan = line_exchange();
  ASSERT_GT(plan.scratch_chunks, 0);
  EXPECT_EQ(run(std::vector{plan}, op, in, out), "exchange");
  for (std::size_t r = 0; r < kRanks; ++r) {
    for (std::size_t from = 0; from < kRanks; ++from) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(out[r][from * count + i], in[from][r * count + i]) << r << " from " << from;
      }
    }
  }
}

TEST(GivenPlan, AnAllToAllOfListedCountsKeepsItsOwnPlan) {
  // Counts differ from pair to pair: what r sends to q is 1000 + r + 2 q elements.
  const auto elements = [](int from, int to) { return static_cast<std::size_t>(1000 + from + 2 * to); };
  ShmGroup group(kRanks);
  run_ranks(kRanks, [&](int r) {
    Context context(Os::real(), group[r], r);
    context.tuning.eager_bytes = 1 << 10;
    context.waiter.set_policy({.spin = 200, .yields = 2});
    CpuCollectives collectives(context);
    collectives.use({line_exchange()});
    std::vector<std::vector<std::uint32_t>> in(kRanks);
    std::vector<std::vector<std::uint32_t>> out(kRanks);
    Operation op;
    op.kind = CollectiveKind::kAllToAll;
    op.type = DataType::kU32;
    for (int q = 0; q < kRanks; ++q) {
      auto& sent = in[static_cast<std::size_t>(q)];
      auto& taken = out[static_cast<std::size_t>(q)];
      sent.resize(elements(r, q));
      taken.resize(elements(q, r));
      std::iota(sent.begin(), sent.end(), static_cast<std::uint32_t>(r << 20 | q << 16));
      op.in_blocks.push_back({sent.data(), sent.size()});
      op.out_blocks.push_back({taken.data(), taken.size()});
    }
    shm::Deadline deadline(30s);
    ASSERT_TRUE(collectives.execute(op, 1, deadline).ok());
    for (int q = 0; q < kRanks; ++q) {
      EXPECT_EQ(out[static_cast<std::size_t>(q)].front(), static_cast<std::uint32_t>(q << 20 | r << 16));
    }
    EXPECT_EQ(collectives.choice(op).algorithm, "one_shot");
  });
}

TEST(GivenPlan, ServesItsSizesOnlyAndTheLaterOneWins) {
  Plan small = ring();
  small.algorithm = "small";
  small.max_bytes = 4095;
  Plan all = ring();
  all.algorithm = "all";
  Plan broadcast = ring(CollectiveKind::kBroadcast);
  broadcast.algorithm = "from rank 1";
  const std::vector<Plan> plans{all, small, broadcast};
  auto in = buffers<float>(2048);
  auto out = buffers<float>(2048);
  EXPECT_EQ(run(plans, all_reduce(DataType::kF32, 1023, ReduceOp::kSum), in, out), "small");
  EXPECT_EQ(run(plans, all_reduce(DataType::kF32, 1024, ReduceOp::kSum), in, out), "all");
  Operation op = all_reduce(DataType::kF32, 2048, ReduceOp::kSum);
  op.kind = CollectiveKind::kBroadcast;
  op.root = 1;
  EXPECT_EQ(run(plans, op, in, out), "from rank 1");
  op.root = 2;
  EXPECT_EQ(run(plans, op, in, out), "one_shot");
}

TEST(GivenPlan, OneThatTheRingCannotHoldIsAnErrorThatSaysSo) {
  // Thousands of chunks, each of which needs a cell in every phase.
  std::vector<std::vector<int>> orders(64, {0, 1, 2, 3});
  const Plan plan = *make_ring_plan(CollectiveKind::kAllReduce, orders, 0);
  Plan large = plan;
  large.algorithm = "large";
  // The same steps again and again on chunks of their own.
  const int copies = 40;
  large.chunks = plan.chunks * copies;
  large.scratch_chunks = plan.scratch_chunks * copies;
  for (int r = 0; r < kRanks; ++r) {
    auto& steps = large.steps[static_cast<std::size_t>(r)];
    const auto once = steps;
    steps.clear();
    for (int k = 0; k < copies; ++k) {
      for (Step step : once) {
        const auto shift = [&](ChunkRef& ref) {
          ref.chunk += k * (ref.buffer == BufferId::kScratch ? plan.scratch_chunks : plan.chunks);
        };
        for (ChunkRef& ref : step.source) shift(ref);
        if (step.kind == StepKind::kRecv || step.kind == StepKind::kReduce || step.kind == StepKind::kCopy) {
          shift(step.target);
        }
        steps.push_back(step);
      }
    }
  }
  auto in = buffers<float>(100'000);
  auto out = buffers<float>(100'000);
  Status error;
  run(std::vector{large}, all_reduce(DataType::kF32, 100'000, ReduceOp::kSum), in, out, &error);
  EXPECT_EQ(error.cause(), Cause::kUnsupported);
  EXPECT_NE(error.text().find("large"), std::string::npos) << error.text();
}

}  // namespace
}  // namespace topocoll
