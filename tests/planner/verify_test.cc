#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "planner/plans.h"
#include "topocoll/plan.h"

namespace topocoll::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kNamesRankAndStep[] = "rank [0-9]+, step [0-9]+ \\(.*";

Plan direct(CollectiveKind kind, const char* algorithm, int ranks, int root = 0) {
  return make_direct_plan(kind, algorithm, ranks, root).value();
}

/// Plans of every kind, in which every message is needed.
std::vector<Plan> valid_plans(int ranks) {
  std::vector<Plan> plans;
  for (int k = 0; k < kNumCollectiveKinds; ++k) {
    for (const char* algorithm : {"one_shot", "two_shot"}) {
      auto plan = make_direct_plan(static_cast<CollectiveKind>(k), algorithm, ranks, ranks - 1);
      if (plan.ok()) plans.push_back(*plan);
    }
  }
  plans.push_back(ring_all_reduce(ranks));
  plans.push_back(tree_all_reduce(ranks));
  plans.push_back(dissemination_barrier(ranks));
  return plans;
}

TEST(Verify, HandMadeRingTreeAndBarrierVerify) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (const Plan& plan :
         {ring_all_reduce(ranks), tree_all_reduce(ranks), dissemination_barrier(ranks)}) {
      EXPECT_TRUE(verify(plan).ok()) << ranks << ": " << verify(plan).to_string();
      EXPECT_TRUE(computes_right(plan)) << ranks;
    }
  }
  EXPECT_TRUE(verify(ring_all_reduce(64)).ok());
  EXPECT_TRUE(verify(tree_all_reduce(64)).ok());
  EXPECT_TRUE(verify(dissemination_barrier(64)).ok());
}

TEST(Verify, EvaluationOrdersAreThoseOfThePlan) {
  EXPECT_EQ(evaluation_order(ring_all_reduce(4), 2, 1).value(), "(((1+2)+3)+0)");
  EXPECT_EQ(evaluation_order(ring_all_reduce(4), 0, 5).value(), "(((1+0)+3)+2)");
  EXPECT_EQ(evaluation_order(tree_all_reduce(4), 3, 0).value(), "((0+1)+(2+3))");
  EXPECT_EQ(evaluation_order(tree_all_reduce(6), 5, 0).value(), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(evaluation_order(direct(CollectiveKind::kAllReduce, "one_shot", 3), 1, 0).value(),
            "((0+1)+2)");
  EXPECT_EQ(evaluation_order(direct(CollectiveKind::kBroadcast, "two_shot", 3, 2), 0, 1).value(),
            "2");
  EXPECT_EQ(evaluation_order(direct(CollectiveKind::kAllGather, "one_shot", 3), 0, 1).value(), "1");
}

TEST(Verify, EvaluationOrderRefusesWhatDoesNotExist) {
  const Plan plan = direct(CollectiveKind::kReduce, "one_shot", 3, 1);
  EXPECT_TRUE(evaluation_order(plan, 1, 0).ok());
  for (const auto& [rank, chunk] :
       std::vector<std::pair<int, int>>{{0, 0}, {1, 1}, {1, -1}, {3, 0}, {-1, 0}}) {
    EXPECT_EQ(evaluation_order(plan, rank, chunk).status().cause(), Cause::kInvalidArgument);
  }
  Plan broken = plan;
  broken.steps[0].clear();
  EXPECT_FALSE(evaluation_order(broken, 1, 0).ok());
}

struct Broken {
  std::string what;
  Plan plan;
  std::string message;  ///< with which the error begins
};

Plan changed(Plan plan, const std::function<void(Plan&)>& change) {
  change(plan);
  return plan;
}

// Program of each rank of the 3-rank one-shot all_reduce:
//   0 send, 1 send, 2 recv, 3 recv, 4 reduce {tmp 0, tmp 1, tmp 2 with in 0 for the own}
// and of the two-shot one: 0-1 send, 2-3 recv, 4 reduce, 5-6 send, 7-8 recv.
std::vector<Broken> structural_faults() {
  const Plan one = direct(CollectiveKind::kAllReduce, "one_shot", 3);
  const Plan gather = direct(CollectiveKind::kGather, "one_shot", 3, 1);
  const auto edit = [&](std::function<void(Step&)> f, std::size_t step) {
    return changed(one, [&](Plan& p) { f(p.steps[1][step]); });
  };
  return {
      {"peer is self", edit([](Step& s) { s.peer = 1; }, 0),
       "rank 1, step 0 (send to 1 on channel 0): the peer is the rank itself"},
      {"peer too large", edit([](Step& s) { s.peer = 3; }, 0),
       "rank 1, step 0 (send to 3 on channel 0): peer 3"},
      {"peer negative", edit([](Step& s) { s.peer = -1; }, 2), "rank 1, step 2 (recv from -1"},
      {"channel too large", edit([](Step& s) { s.channel = 1; }, 0),
       "rank 1, step 0 (send to 2 on channel 1): channel 1"},
      {"channel negative", edit([](Step& s) { s.channel = -1; }, 3),
       "rank 1, step 3 (recv from 0 on channel -1): channel"},
      {"send out of bounds", edit([](Step& s) { s.source[0] = in(1); }, 0),
       "rank 1, step 0 (send to 2 on channel 0): source input:1 is out of bounds"},
      {"send of a negative chunk", edit([](Step& s) { s.source[0] = in(-1); }, 0),
       "rank 1, step 0 (send to 2 on channel 0): source input:-1 is out"},
      {"recv out of bounds", edit([](Step& s) { s.target = tmp(3); }, 2),
       "rank 1, step 2 (recv from 2 on channel 0): target scratch:3 is out"},
      {"reduce out of bounds", edit([](Step& s) { s.source[2] = tmp(7); }, 4),
       "rank 1, step 4 (reduce into output:0): source scratch:7"},
      {"writes its input", edit([](Step& s) { s.target = in(0); }, 2),
       "rank 1, step 2 (recv from 2 on channel 0): target input:0: a plan never writes the input"},
      {"send without source", edit([](Step& s) { s.source.clear(); }, 0),
       "rank 1, step 0 (send to 2 on channel 0): a send has 1 sources, 0 are given"},
      {"send of two chunks", edit([](Step& s) { s.source.push_back(in(0)); }, 0),
       "rank 1, step 0 (send to 2 on channel 0): a send has 1"},
      {"reduce of one chunk", edit([](Step& s) { s.source.resize(1); }, 4),
       "rank 1, step 4 (reduce into output:0): a reduce has 2 or more"},
      {"recv with source", edit([](Step& s) { s.source.push_back(in(0)); }, 2),
       "rank 1, step 2 (recv from 2 on channel 0): a recv has 0"},
      {"send with target", edit([](Step& s) { s.target = out(0); }, 0),
       "rank 1, step 0 (send to 2 on channel 0): a send has no target"},
      {"reduce with peer", edit([](Step& s) { s.peer = 0; }, 4),
       "rank 1, step 4 (reduce into output:0): a reduce has no peer"},
      {"reduce with channel", edit([](Step& s) { s.channel = 2; }, 4),
       "rank 1, step 4 (reduce into output:0): a reduce has no peer"},
      {"unknown step", edit([](Step& s) { s.kind = static_cast<StepKind>(6); }, 4),
       "rank 1, step 4 (unknown kind 6): no such"},
      {"unknown buffer", edit([](Step& s) { s.target.buffer = static_cast<BufferId>(9); }, 4),
       "rank 1, step 4 (reduce into ?:0): target ?:0 is out"},
      {"reduction in a gather",
       changed(gather,
               [](Plan& p) {
                 p.steps[1][0] = reduce({in(0), in(0)}, out(1));
               }),
       "rank 1, step 0 (reduce into output:1): gather has no reduction"},
      {"output of a rank that has none",
       changed(gather, [](Plan& p) { p.steps[0][0] = copy(in(0), out(0)); }),
       "rank 0, step 0 (copy into output:0): target output:0 is out of bounds, the rank has 0 "
       "output"},
  };
}

std::vector<Broken> dynamic_faults() {
  const Plan one = direct(CollectiveKind::kAllReduce, "one_shot", 3);
  const Plan two = direct(CollectiveKind::kAllReduce, "two_shot", 3);
  const Plan all = direct(CollectiveKind::kAllToAll, "one_shot", 3);
  const Plan bar = direct(CollectiveKind::kBarrier, "one_shot", 3);
  const auto drop = [](std::size_t rank, std::size_t step) {
    return [=](Plan& p) { p.steps[rank].erase(p.steps[rank].begin() + static_cast<long>(step)); };
  };
  const auto twice = [](std::size_t rank, std::size_t step) {
    return [=](Plan& p) {
      p.steps[rank].insert(p.steps[rank].begin() + static_cast<long>(step), p.steps[rank][step]);
    };
  };
  const auto swap = [](std::size_t rank, std::size_t a, std::size_t b) {
    return [=](Plan& p) { std::swap(p.steps[rank][a], p.steps[rank][b]); };
  };
  return {
      {"dropped send", changed(one, drop(0, 0)),
       "rank 1, step 3 (recv from 0 on channel 0): waits for ever, as rank 0 ends without a "
       "matching send"},
      {"dropped recv", changed(one, drop(0, 2)),
       "rank 0, step 3 (reduce into output:0): reads scratch:1 before it is written"},
      {"dropped reduce", changed(one, drop(2, 4)),
       "rank 2, step 4 (end): output:0 is never written"},
      {"dropped copy", changed(all, drop(1, 2)), "rank 1, step 4 (end): output:1 is never written"},
      {"dropped signal", changed(bar, drop(2, 1)),
       "rank 1, step 2 (wait for 2 on channel 0): waits for ever, as rank 2 ends without a "
       "matching signal"},
      {"dropped wait", changed(bar, drop(2, 2)),
       "rank 0, step 1 (signal to 2 on channel 0): rank 2 never takes it"},
      {"second send", changed(one, twice(1, 0)),
       "rank 1, step 1 (send to 2 on channel 0): rank 2 never takes it"},
      {"second recv", changed(one, twice(1, 2)),
       "rank 1, step 3 (recv from 2 on channel 0): waits for ever, as rank 2 ends"},
      {"second signal", changed(bar, twice(0, 0)),
       "rank 0, step 1 (signal to 1 on channel 0): rank 1 never takes it"},
      {"reduce before recv", changed(one, swap(0, 3, 4)),
       "rank 0, step 3 (reduce into output:0): reads scratch:2 before it is written"},
      {"send of a result not yet there", changed(two, swap(0, 4, 5)),
       "rank 0, step 4 (send to 1 on channel 0): reads output:0 before it is written"},
      {"result taken for a contribution", changed(two, swap(0, 0, 6)),
       "rank 0, step 0 (send to 2 on channel 0): reads output:0 before"},
      {"all receive first",
       changed(one,
               [](Plan& p) {
                 for (auto& steps : p.steps)
                   std::rotate(steps.begin(), steps.begin() + 2, steps.begin() + 4);
               }),
       "rank 0, step 0 (recv from 1 on channel 0): waits for ever, as the peer is itself blocked "
       "at rank 1, step 0 (recv from 2"},
      {"cyclic waits",
       changed(bar,
               [](Plan& p) {
                 for (auto& steps : p.steps)
                   std::rotate(steps.begin(), steps.begin() + 2, steps.end());
               }),
       "rank 0, step 0 (wait for 1 on channel 0): waits for ever, as the peer is itself blocked at "
       "rank 1, step 0"},
      {"own contribution twice", changed(one, [](Plan& p) { p.steps[1][4].source[0] = in(0); }),
       "rank 1, step 4 (reduce into output:0): output:0 holds the contribution of rank 1 2 times"},
      {"contribution missing", changed(one, [](Plan& p) { p.steps[0][4].source.pop_back(); }),
       "rank 0, step 4 (reduce into output:0): output:0 lacks the contribution of rank 2"},
      {"contribution four times",
       changed(one,
               [](Plan& p) { p.steps[0][4].source.insert(p.steps[0][4].source.end(), 3, tmp(2)); }),
       "rank 0, step 4 (reduce into output:0): output:0 holds the contribution of rank 2 4 times"},
      {"another order on one rank",
       changed(one, [](Plan& p) { std::swap(p.steps[2][4].source[0], p.steps[2][4].source[1]); }),
       "rank 2, step 4 (reduce into output:0): output:0 is evaluated as ((1+0)+2), but on rank 0 "
       "as ((0+1)+2)"},
      {"wrong chunk sent", changed(two, [](Plan& p) { p.steps[2][0].source[0] = in(1); }),
       "rank 0, step 4 (reduce into output:0): output:0 holds input:1 of rank 2, which does not "
       "belong there"},
      {"wrong chunk received",
       changed(all, [](Plan& p) { std::swap(p.steps[0][3].target, p.steps[0][4].target); }),
       "rank 0, step 4 (recv from 2 on channel 0): output:1 holds input:0 of rank 2"},
      {"wrong chunk copied", changed(all, [](Plan& p) { p.steps[0][2].source[0] = in(2); }),
       "rank 0, step 2 (copy into output:0): output:0 holds input:2 of rank 0"},
      {"overwritten result",
       changed(two, [](Plan& p) { p.steps[0].push_back(copy(out(1), out(2))); }),
       "rank 0, step 9 (copy into output:2): output:2 holds input:1 of rank 0, which"},
      {"other channel",
       changed(one,
               [](Plan& p) {
                 p.channels = 2;
                 p.steps[0][0].channel = 1;
               }),
       "rank 1, step 3 (recv from 0 on channel 0): waits for ever"},
      {"signal for a chunk", changed(one, [](Plan& p) { p.steps[0][0] = signal(1); }),
       "rank 1, step 3 (recv from 0 on channel 0): waits for ever"},
      {"result of nobody",
       changed(direct(CollectiveKind::kBroadcast, "one_shot", 3, 1),
               [](Plan& p) {
                 p.steps[1][2].target = out(0);
                 p.steps[0].clear();
               }),
       "rank 1, step 1 (send to 0 on channel 0): rank 0 never takes it"},
      {"input sent after its place was received into",
       changed(all,
               [](Plan& p) {
                 std::rotate(p.steps[0].begin() + 1, p.steps[0].begin() + 2, p.steps[0].end());
               }),
       "rank 0, step 4 (send to 2 on channel 0): reads input:2 after writing output:2"},
      {"in place", changed(two, [](Plan& p) { p.steps[0].push_back(copy(in(2), tmp(0))); }),
       "rank 0, step 9 (copy into scratch:0): reads input:2 after writing output:2, which is the "
       "same memory when the call is in place"},
      {"barrier that one may pass early",
       [] {
         Plan p = empty_plan(CollectiveKind::kBarrier, 3, 1, 0);
         p.steps = {{signal(1), wait(2)}, {signal(2), wait(0)}, {signal(0), wait(1)}};
         return p;
       }(),
       "rank 0, step 2 (end): passes the barrier though rank 1 may not have entered it"},
  };
}

TEST(Verify, RejectsStructuralFaults) {
  for (const Broken& broken : structural_faults()) {
    const Status status = verify(broken.plan);
    EXPECT_EQ(status.cause(), Cause::kInvalidArgument) << broken.what;
    EXPECT_EQ(status.text().substr(0, broken.message.size()), broken.message) << broken.what;
  }
}

TEST(Verify, RejectsDynamicFaults) {
  for (const Broken& broken : dynamic_faults()) {
    const Status status = verify(broken.plan);
    EXPECT_EQ(status.cause(), Cause::kInvalidArgument) << broken.what;
    EXPECT_EQ(status.text().substr(0, broken.message.size()), broken.message) << broken.what;
  }
}

TEST(Verify, RejectsHeaders) {
  const Plan plan = direct(CollectiveKind::kAllReduce, "one_shot", 3);
  const auto text = [&](const std::function<void(Plan&)>& change) {
    return verify(changed(plan, change)).text();
  };
  EXPECT_THAT(text([](Plan& p) { p.ranks = 0; }), HasSubstr("ranks is 0"));
  EXPECT_THAT(text([](Plan& p) { p.ranks = 4; }), HasSubstr("steps for 3 ranks"));
  EXPECT_THAT(text([](Plan& p) { p.ranks = 1 << 30; }), HasSubstr("ranks is"));
  EXPECT_THAT(text([](Plan& p) { p.root = 1; }), HasSubstr("root is 1"));
  EXPECT_THAT(text([](Plan& p) { p.chunks = 0; }), HasSubstr("chunks is 0"));
  EXPECT_THAT(text([](Plan& p) { p.chunks = 1 << 30; }), HasSubstr("chunks is"));
  EXPECT_THAT(text([](Plan& p) { p.scratch_chunks = -1; }), HasSubstr("scratch_chunks is -1"));
  EXPECT_THAT(text([](Plan& p) { p.channels = 0; }), HasSubstr("channels is 0"));
  EXPECT_THAT(text([](Plan& p) { p.min_bytes = 2, p.max_bytes = 1; }), HasSubstr("min_bytes"));
  EXPECT_THAT(text([](Plan& p) { p.kind = CollectiveKind::kSend; }), HasSubstr("not a collective"));
  EXPECT_THAT(text([](Plan& p) { p.kind = static_cast<CollectiveKind>(99); }),
              HasSubstr("kind 99"));
  EXPECT_THAT(text([](Plan& p) { p.kind = CollectiveKind::kBarrier, p.chunks = 2; }),
              HasSubstr("chunks is 2"));
}

// Two ranks exchange blocks of three pieces, the last piece first.
Plan pieces_all_to_all() {
  Plan plan = empty_plan(CollectiveKind::kAllToAll, 2, 3, 0);
  for (int r = 0; r < 2; ++r) {
    auto& steps = plan.steps[static_cast<std::size_t>(r)];
    for (int c = 2; c >= 0; --c) steps.push_back(send(1 - r, in((1 - r) * 3 + c)));
    for (int c = 0; c < 3; ++c) steps.push_back(copy(in(r * 3 + c), out(r * 3 + c)));
    for (int c = 2; c >= 0; --c) steps.push_back(recv(1 - r, out((1 - r) * 3 + c)));
  }
  return plan;
}

TEST(Verify, BlocksAreCutIntoPieces) {
  const Plan plan = pieces_all_to_all();
  EXPECT_TRUE(verify(plan).ok()) << verify(plan).to_string();
  EXPECT_TRUE(testing::computes_right(plan));
  Plan swapped = plan;
  std::swap(swapped.steps[0][0], swapped.steps[0][1]);
  EXPECT_THAT(verify(swapped).text(), HasSubstr("holds input:4 of rank 0"));
  EXPECT_FALSE(testing::computes_right(swapped));
}

TEST(Verify, RoutesCoverEverySend) {
  Plan plan = pieces_all_to_all();
  plan.routes = {{0, 1, 0, {"g0", "sw", "g1"}, 25}, {1, 0, 0, {"g1", "sw", "g0"}, 25}};
  EXPECT_TRUE(verify(plan).ok()) << verify(plan).to_string();
  const auto text = [&](auto change) {
    Plan bad = plan;
    change(bad.routes);
    return verify(bad).text();
  };
  using Routes = std::vector<Route>;
  EXPECT_THAT(text([](Routes& r) { r.pop_back(); }), HasSubstr("rank 1, step 0"));
  EXPECT_THAT(text([](Routes& r) { std::swap(r[0], r[1]); }),
              HasSubstr("routes[1]: routes must be"));
  EXPECT_THAT(text([](Routes& r) { r[1].from = 2; }), HasSubstr("routes[1]: from 2 to 0"));
  EXPECT_THAT(text([](Routes& r) { r[1].to = 1; }), HasSubstr("both ends are the same rank"));
  EXPECT_THAT(text([](Routes& r) { r[1].channel = 1; }), HasSubstr("channel 1 is not one of"));
  EXPECT_THAT(text([](Routes& r) { r[0].gbps = -1; }), HasSubstr("routes[0]: gbps"));
  EXPECT_THAT(text([](Routes& r) { r[0].path = {"g0"}; }), HasSubstr("needs both its ends"));
}

TEST(Verify, HugeBuffersCostNoMemory) {
  Plan plan = empty_plan(CollectiveKind::kAllReduce, 1 << 16, 1 << 20, 1 << 20);
  EXPECT_THAT(verify(plan).text(), HasSubstr("chunks on all ranks together"));
}

TEST(Verify, RepeatedDoublingIsCountedQuickly) {
  Plan plan = empty_plan(CollectiveKind::kAllReduce, 1, 1, 1);
  plan.steps[0].push_back(reduce({in(0), in(0)}, tmp(0)));
  for (int i = 0; i < 200; ++i) plan.steps[0].push_back(reduce({tmp(0), tmp(0)}, tmp(0)));
  plan.steps[0].push_back(copy(tmp(0), out(0)));
  EXPECT_THAT(verify(plan).text(), HasSubstr("holds the contribution of rank 0 4294967296 times"));
}

TEST(Verify, EveryDroppedOrDoubledMessageIsNamed) {
  int rejected = 0;
  for (int ranks : {2, 3, 4}) {
    for (const Plan& plan : valid_plans(ranks)) {
      for (std::size_t r = 0; r < plan.steps.size(); ++r) {
        for (std::size_t s = 0; s < plan.steps[r].size(); ++s) {
          Plan dropped = plan;
          dropped.steps[r].erase(dropped.steps[r].begin() + static_cast<long>(s));
          const Status without = verify(dropped);
          EXPECT_THAT(without.text(), MatchesRegex(kNamesRankAndStep)) << render_text(dropped);
          if (!has_peer(plan.steps[r][s].kind)) continue;
          Plan doubled = plan;
          doubled.steps[r].insert(doubled.steps[r].begin() + static_cast<long>(s),
                                  plan.steps[r][s]);
          const Status with = verify(doubled);
          EXPECT_THAT(with.text(), MatchesRegex(kNamesRankAndStep)) << render_text(doubled);
          rejected += 2;
        }
      }
    }
  }
  EXPECT_GT(rejected, 200);
}

TEST(Verify, ValidRewritesAreAccepted) {
  std::mt19937 random(7);
  int rewritten = 0;
  for (int ranks : {3, 5}) {
    for (Plan plan : valid_plans(ranks)) {
      for (int i = 0; i < 50; ++i) {
        auto& steps = plan.steps[random() % plan.steps.size()];
        if (steps.size() < 2) continue;
        const std::size_t s = random() % (steps.size() - 1);
        Step& a = steps[s];
        Step& b = steps[s + 1];
        // Neighbours of one kind that concern different peers commute.
        if (a.kind != b.kind || !has_peer(a.kind) || a.peer == b.peer) continue;
        std::swap(a, b);
        ++rewritten;
        ASSERT_TRUE(verify(plan).ok()) << verify(plan).to_string() << "\n" << render_text(plan);
      }
      plan.scratch_chunks += 3;
      plan.channels += 1;
      ASSERT_TRUE(verify(plan).ok());
    }
  }
  EXPECT_GT(rewritten, 50);
}

/// One random change that keeps every field within bounds.
void mutate(Plan& plan, std::mt19937& random) {
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  const std::size_t r = pick(plan.steps.size());
  auto& steps = plan.steps[r];
  if (steps.size() < 2) return;
  const std::size_t s = pick(steps.size());
  Step& step = steps[s];
  const auto any_chunk = [&](bool writable) {
    const std::vector<int> counts = {writable ? 0 : input_chunks(plan, static_cast<int>(r)),
                                     output_chunks(plan, static_cast<int>(r)), plan.scratch_chunks};
    std::vector<ChunkRef> all;
    for (int b = 0; b < 3; ++b) {
      for (int c = 0; c < counts[static_cast<std::size_t>(b)]; ++c) {
        all.push_back({static_cast<BufferId>(b), c});
      }
    }
    return all.empty() ? ChunkRef() : all[pick(all.size())];
  };
  switch (pick(6)) {
    case 0:
      std::swap(step, steps[pick(steps.size())]);
      break;
    case 1:
      steps.erase(steps.begin() + static_cast<long>(s));
      break;
    case 2: {
      const Step repeated = step;
      steps.insert(steps.begin() + static_cast<long>(pick(steps.size())), repeated);
      break;
    }
    case 3:
      if (!step.source.empty()) step.source[pick(step.source.size())] = any_chunk(false);
      break;
    case 4:
      if (has_target(step.kind)) step.target = any_chunk(true);
      break;
    default:
      if (step.source.size() > 1) std::swap(step.source[0], step.source[pick(step.source.size())]);
  }
}

TEST(Verify, AgreesWithAnInterpreterOnRandomMutations) {
  std::mt19937 random(20240611);
  int accepted = 0;
  int rejected = 0;
  for (int ranks : {2, 3, 4}) {
    for (const Plan& plan : valid_plans(ranks)) {
      if (plan.kind == CollectiveKind::kBarrier) continue;  // the interpreter knows values only
      for (int i = 0; i < 400; ++i) {
        Plan mutant = plan;
        for (std::size_t m = 0; m <= random() % 3; ++m) mutate(mutant, random);
        const Status status = verify(mutant);
        (status.ok() ? accepted : rejected)++;
        ASSERT_EQ(status.ok(), computes_right(mutant)) << status.to_string() << "\n"
                                                       << render_text(mutant);
        if (!status.ok()) {
          ASSERT_THAT(status.text(), MatchesRegex(kNamesRankAndStep));
        }
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(rejected, 5000);
}

}  // namespace
}  // namespace topocoll::testing
