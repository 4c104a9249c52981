// The verifier on plans of the planner: what breaks a plan by construction is refused with rank and
// step, what changes only its looks is accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/make_topology.h"
#include "planner/plans.h"
#include "planner/steps.h"
#include "topocoll/planning.h"

namespace topocoll::testing {
namespace {

using Kind = CollectiveKind;

constexpr int kWanted = 200;

/// Rings and trees of every kind on random machines.
std::vector<Plan> planned() {
  constexpr Kind kKinds[] = {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter,
                             Kind::kBroadcast, Kind::kReduce};
  std::vector<Plan> plans;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Topology topology = topology_of(random_graph(seed, seed % 2 == 0));
    auto report = plan_collective(topology, {kKinds[seed % 5], 1, 2});
    EXPECT_TRUE(report.ok()) << "seed " << seed << ": " << report.status().to_string();
    if (report.ok()) plans.push_back(std::move(report->plan));
  }
  return plans;
}

std::size_t pick(Random& random, std::size_t count) {
  return static_cast<std::size_t>(random.below(static_cast<int>(count)));
}

/// A step that `wanted` accepts, as {rank, index}.
template <class Wanted>
std::optional<std::pair<std::size_t, std::size_t>> any_step(const Plan& plan, Random& random,
                                                            Wanted wanted) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t r = 0; r < plan.steps.size(); ++r) {
    for (std::size_t s = 0; s < plan.steps[r].size(); ++s) {
      if (wanted(r, plan.steps[r][s])) found.emplace_back(r, s);
    }
  }
  if (found.empty()) return std::nullopt;
  return found[pick(random, found.size())];
}

bool is(const Step& step, StepKind kind) { return step.kind == kind; }

constexpr const char* kBreaks[] = {
    "a message is not sent",       "a message is sent twice", "a message is not taken",
    "a message that nobody sends", "sent to oneself",         "on a channel that is not there",
    "another contribution sent",   "a contribution twice",    "a contribution left out",
    "a result is not written",     "out of bounds",           "received into another result",
};

/// Whether way `how` of breaking applies to a step.
bool breaks(const Plan& plan, std::size_t how, int rank, const Step& step) {
  const int inputs = input_chunks(plan, rank);
  const int outputs = output_chunks(plan, rank);
  switch (how) {
    case 0:
    case 1:
    case 4:
    case 5:
      return is(step, StepKind::kSend);
    case 2:
    case 3:
      return is(step, StepKind::kRecv);
    case 6:
      return is(step, StepKind::kSend) && step.source[0].buffer == BufferId::kInput && inputs > 1;
    case 7:
    case 8:
      return is(step, StepKind::kReduce);
    case 9:
      return has_target(step.kind) && step.target.buffer == BufferId::kOutput;
    case 10:
      return has_target(step.kind);
    default:
      return is(step, StepKind::kRecv) && step.target.buffer == BufferId::kOutput && outputs > 1;
  }
}

/// Breaks the plan in way `how`; false where the plan has no step of that sort.
bool break_plan(Plan& plan, std::size_t how, Random& random) {
  const auto at = any_step(plan, random, [&](std::size_t rank, const Step& step) {
    return breaks(plan, how, static_cast<int>(rank), step);
  });
  if (!at) return false;
  auto& steps = plan.steps[at->first];
  const auto where = steps.begin() + static_cast<long>(at->second);
  Step& step = *where;
  switch (how) {
    case 0:
    case 2:
    case 9:
      steps.erase(where);
      return true;
    case 1:
    case 3:
      steps.insert(where, Step(step));
      return true;
    case 4:
      step.peer = static_cast<int>(at->first);
      return true;
    case 5:
      step.channel = plan.channels;
      return true;
    case 6:
      step.source[0].chunk =
          (step.source[0].chunk + 1) % input_chunks(plan, static_cast<int>(at->first));
      return true;
    case 7:
      step.source.push_back(step.source[0]);
      return true;
    case 8:
      step.source.pop_back();
      return true;
    case 10:
      step.target = {BufferId::kScratch, plan.scratch_chunks};
      return true;
    default:
      step.target.chunk =
          (step.target.chunk + 1) % output_chunks(plan, static_cast<int>(at->first));
      return true;
  }
}

TEST(Rewrites, BrokenPlansAreRefusedWithRankAndStep) {
  const std::vector<Plan> plans = planned();
  int broken = 0;
  for (std::uint64_t seed = 1; broken < kWanted; ++seed) {
    ASSERT_LT(seed, 4000u);
    Random random(seed);
    Plan plan = plans[pick(random, plans.size())];
    const std::size_t how = seed % std::size(kBreaks);
    if (!break_plan(plan, how, random)) continue;
    ++broken;
    const Status status = verify(plan);
    ASSERT_THAT(status.text(), ::testing::MatchesRegex("rank [0-9]+, step [0-9]+ \\(.*"))
        << "seed " << seed << ": " << kBreaks[how] << "\n"
        << render_text(plan);
  }
}

/// Chunks in the order read..., written; an input chunk counts as the output chunk that has its
/// memory when the call is in place.
std::vector<ChunkRef> touched(const Plan& plan, int rank, const Step& step) {
  std::vector<ChunkRef> result = step.source;
  if (has_target(step.kind)) result.push_back(step.target);
  for (ChunkRef& ref : result) {
    if (ref.buffer != BufferId::kInput) continue;
    const int twin = in_place_twin(plan, rank, ref.chunk);
    if (twin >= 0) ref = {BufferId::kOutput, twin};
  }
  return result;
}

/// Whether `second` may as well come first. A send may move up and never down: others wait for it.
bool may_swap(const Plan& plan, int rank, const Step& first, const Step& second) {
  const bool waits = is(first, StepKind::kWait) || is(second, StepKind::kWait) ||
                     is(first, StepKind::kSignal) || is(second, StepKind::kSignal);
  if (waits || (is(first, StepKind::kSend) && !is(second, StepKind::kSend))) return false;
  if (first.kind == second.kind && has_peer(first.kind) && first.peer == second.peer &&
      first.channel == second.channel) {
    return false;
  }
  const auto writes = [&](const Step& a, const Step& b) {
    if (!has_target(a.kind)) return false;
    const std::vector<ChunkRef> others = touched(plan, rank, b);
    return std::find(others.begin(), others.end(), a.target) != others.end();
  };
  return !writes(first, second) && !writes(second, first);
}

int reorder(Plan& plan, Random& random) {
  int swapped = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    auto& steps = plan.steps[static_cast<std::size_t>(rank)];
    for (std::size_t i = 1; i < steps.size(); ++i) {
      if (random.below(2) == 0 || !may_swap(plan, rank, steps[i - 1], steps[i])) continue;
      std::swap(steps[i - 1], steps[i]);
      ++swapped;
    }
  }
  return swapped;
}

void rename_channels(Plan& plan, Random& random) {
  plan.channels += 2;
  const std::vector<int> name = random_order(random, plan.channels);
  for (auto& steps : plan.steps) {
    for (Step& step : steps) {
      if (has_peer(step.kind)) step.channel = name[static_cast<std::size_t>(step.channel)];
    }
  }
  for (Route& route : plan.routes) {
    route.channel = name[static_cast<std::size_t>(route.channel)];
  }
  std::sort(plan.routes.begin(), plan.routes.end(), [](const Route& a, const Route& b) {
    return std::tie(a.from, a.to, a.channel) < std::tie(b.from, b.to, b.channel);
  });
}

/// Each rank for itself.
void rename_scratch(Plan& plan, Random& random) {
  plan.scratch_chunks += 3;
  for (auto& steps : plan.steps) {
    const std::vector<int> name = random_order(random, plan.scratch_chunks);
    const auto rename = [&](ChunkRef& ref) {
      if (ref.buffer == BufferId::kScratch) ref.chunk = name[static_cast<std::size_t>(ref.chunk)];
    };
    for (Step& step : steps) {
      for (ChunkRef& ref : step.source) rename(ref);
      if (has_target(step.kind)) rename(step.target);
    }
  }
}

TEST(Rewrites, PlansThatOnlyLookDifferentAreAccepted) {
  const std::vector<Plan> plans = planned();
  int swapped = 0;
  for (int i = 0; i < kWanted; ++i) {
    SCOPED_TRACE("seed " + std::to_string(i));
    Random random(static_cast<std::uint64_t>(i));
    const Plan& original = plans[static_cast<std::size_t>(i) % plans.size()];
    Plan plan = original;
    swapped += reorder(plan, random);
    rename_channels(plan, random);
    rename_scratch(plan, random);
    ASSERT_NE(plan, original);
    const Status status = verify(plan);
    ASSERT_TRUE(status.ok()) << status.to_string();
    if (i % 10 == 0) {
      EXPECT_TRUE(computes_right(plan));
    }
  }
  EXPECT_GT(swapped, 10 * kWanted);
}

}  // namespace
}  // namespace topocoll::testing
