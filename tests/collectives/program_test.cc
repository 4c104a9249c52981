// Compiled programs are run on words instead of numbers, in several orders of the ranks and in
// place, and must leave what the plan's evaluation order says.
#include "collectives/cpu/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/plans.h"
#include "planner/steps.h"

namespace topocoll {
namespace {

using testing::copy;
using testing::empty_plan;
using testing::in;
using testing::out;
using testing::recv;
using testing::reduce;
using testing::send;
using testing::signal;
using testing::tmp;
using testing::wait;

/// What a piece of memory holds: the ranks in order of evaluation, and whether all were of one
/// chunk.
struct Word {
  std::string order;
  int chunk = -1;
};

class Machine {
 public:
  Machine(const Plan& plan, bool in_place) : plan_(plan), in_place_(in_place) {
    for (int r = 0; r < plan.ranks; ++r) {
      auto program = compile(plan, r);
      EXPECT_TRUE(program.ok()) << program.status().to_string();
      programs_.push_back(std::move(*program));
      for (int c = 0; c < input_chunks(plan, r); ++c) {
        memory_[where(r, in(c))] = {std::to_string(r), c};
      }
    }
    done_.assign(programs_.size(), 0);
  }

  /// Runs the ranks, always as far as the first in `priority` can go.
  void run(const std::vector<int>& priority) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t i = 0; i < priority.size() && !moved; ++i) moved = advance(priority[i]);
    }
    for (int r = 0; r < plan_.ranks; ++r) {
      ASSERT_EQ(done_[static_cast<std::size_t>(r)], programs_[static_cast<std::size_t>(r)].phases)
          << "rank " << r << " waits for ever";
    }
  }
  void check() {
    for (int r = 0; r < plan_.ranks; ++r) {
      for (int c = 0; c < output_chunks(plan_, r); ++c) {
        const Word& w = memory_[where(r, out(c))];
        EXPECT_EQ(w.order, evaluation_order(plan_, r, c).value())
            << "rank " << r << ", chunk " << c;
        EXPECT_EQ(w.chunk, expected_chunk(r, c)) << "rank " << r << ", chunk " << c;
      }
    }
  }

 private:
  using Cell = std::tuple<int, BufferId, int>;

  [[nodiscard]] Cell where(int rank, ChunkRef ref) const {
    if (in_place_ && ref.buffer == BufferId::kInput) {
      const int twin = in_place_twin(plan_, rank, ref.chunk);
      if (twin >= 0) return {rank, BufferId::kOutput, twin};
    }
    return {rank, ref.buffer, ref.chunk};
  }
  [[nodiscard]] int expected_chunk(int r, int c) const {
    switch (plan_.kind) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
        return 0;
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kAllToAll:
      case CollectiveKind::kScatter:
        return r;
      default:
        return c;
    }
  }
  bool advance(int rank) {
    const auto i = static_cast<std::size_t>(rank);
    const Program& program = programs_[i];
    if (done_[i] == program.phases) return false;
    const Phase& phase = program.own[static_cast<std::size_t>(done_[i])];
    for (const Need& need : phase.needs) {
      if (done_[static_cast<std::size_t>(need.rank)] <= need.phase) return false;
    }
    for (const Action& action : phase.actions) apply(rank, action, phase.needs);
    ++done_[i];
    return true;
  }
  Word read(int rank, const Operand& s, const std::vector<Need>& needs) {
    if (!s.is_value) {
      EXPECT_NE(s.chunk.buffer, BufferId::kScratch) << "scratch has no memory of its own";
      EXPECT_TRUE(memory_.contains(where(rank, s.chunk))) << "read before it was written";
      return memory_[where(rank, s.chunk)];
    }
    const auto value = values_.find({s.rank, s.value});
    if (value == values_.end()) {
      ADD_FAILURE() << "rank " << rank << " reads value " << s.value << " of rank " << s.rank
                    << " too early";
      return {};
    }
    const auto [word, phase] = value->second;
    const bool covered =
        s.rank == rank || std::any_of(needs.begin(), needs.end(), [&](const Need& n) {
          return n.rank == s.rank && n.phase >= phase;
        });
    EXPECT_TRUE(covered) << "it is there by luck: nothing was waited for";
    return word;
  }
  void apply(int rank, const Action& a, const std::vector<Need>& needs) {
    Word word = read(rank, a.sources.at(0), needs);
    for (std::size_t k = 1; k < a.sources.size(); ++k) {
      const Word next = read(rank, a.sources[k], needs);
      word.order = "(" + word.order + "+" + next.order + ")";
      if (word.chunk != next.chunk) word.chunk = -1;
    }
    EXPECT_EQ(a.kind == Action::Kind::kReduce, a.sources.size() > 1);
    if (a.has_target) {
      EXPECT_EQ(a.target.buffer, BufferId::kOutput);
      memory_[where(rank, a.target)] = word;
    }
    if (a.value >= 0) {
      EXPECT_LT(a.value, programs_[static_cast<std::size_t>(rank)].values);
      const bool fresh =
          values_.try_emplace({rank, a.value}, word, done_[static_cast<std::size_t>(rank)]).second;
      EXPECT_TRUE(fresh) << "a value is written once per window";
    }
  }

  const Plan& plan_;
  bool in_place_;
  std::vector<Program> programs_;
  std::vector<int> done_;
  std::map<Cell, Word> memory_;
  std::map<std::pair<int, int>, std::pair<Word, int>> values_;
};

void expect_compiled_right(const Plan& plan) {
  ASSERT_TRUE(verify(plan).ok()) << plan.algorithm << ": " << verify(plan).to_string();
  std::vector<int> forward(static_cast<std::size_t>(plan.ranks));
  for (int r = 0; r < plan.ranks; ++r) forward[static_cast<std::size_t>(r)] = r;
  std::vector<int> backward(forward.rbegin(), forward.rend());
  for (const auto& order : {forward, backward}) {
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << name(plan.kind) << " " << plan.algorithm << " of " << plan.ranks
                   << (in_place ? " in place" : "") << ", rank " << order[0] << " first");
      Machine machine(plan, in_place);
      machine.run(order);
      machine.check();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Program, DirectPlansOfEveryKind) {
  for (int k = 0; k <= static_cast<int>(CollectiveKind::kScatter); ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    for (const char* algorithm : {"one_shot", "two_shot"}) {
      for (int n = 1; n <= 8; ++n) {
        for (int root = 0; root < (has_root(kind) ? n : 1); ++root) {
          auto plan = make_direct_plan(kind, algorithm, n, root);
          if (plan.ok()) expect_compiled_right(*plan);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Program, Rings) {
  for (int n = 2; n <= 6; ++n) expect_compiled_right(testing::ring_all_reduce(n));
}

TEST(Program, Trees) {
  for (int n = 2; n <= 9; ++n) expect_compiled_right(testing::tree_all_reduce(n));
}

/// Whether the rank writes a value that others read.
bool puts(const Program& program) {
  return std::any_of(program.own.begin(), program.own.end(), [](const Phase& phase) {
    return std::any_of(phase.actions.begin(), phase.actions.end(),
                       [](const Action& action) { return action.value >= 0; });
  });
}

TEST(Program, BarriersMoveNothing) {
  for (int n = 1; n <= 8; ++n) {
    const Plan plan = testing::dissemination_barrier(n);
    auto program = compile(plan, n - 1);
    ASSERT_TRUE(program.ok());
    EXPECT_FALSE(puts(*program));
  }
}

TEST(Program, TwoShotHasTheThreePhasesOfItsPicture) {
  const auto plan = make_direct_plan(CollectiveKind::kAllReduce, "two_shot", 4, 0);
  const auto program = compile(*plan, 1);
  ASSERT_TRUE(program.ok());
  ASSERT_EQ(program->phases, 3);
  EXPECT_EQ(program->values, 4) << "three contributions and one result";
  const auto& own = program->own;
  EXPECT_EQ(own[0].actions.size(), 3u);
  EXPECT_TRUE(own[0].needs.empty());
  ASSERT_EQ(own[1].actions.size(), 1u);
  EXPECT_EQ(own[1].actions[0].kind, Action::Kind::kReduce);
  EXPECT_GE(own[1].actions[0].value, 0)
      << "the result is written to the output and the ring at once";
  EXPECT_TRUE(own[1].actions[0].has_target);
  EXPECT_EQ(own[1].needs.size(), 3u);
  EXPECT_EQ(own[1].needs[0].rank, 2) << "ranks begin with different peers";
  EXPECT_EQ(own[2].actions.size(), 3u);
}

TEST(Program, AChunkSentToManyIsPutOnce) {
  const auto plan = make_direct_plan(CollectiveKind::kBroadcast, "one_shot", 6, 2);
  const auto root = compile(*plan, 2);
  EXPECT_EQ(root->values, 1);
  const auto other = compile(*plan, 3);
  EXPECT_FALSE(puts(*other));
}

// A plan may use a chunk again once it is done with it.

Plan exchange_twice(const std::vector<Step>& steps) {
  Plan plan = empty_plan(CollectiveKind::kAllReduce, 2, 1, 4);
  for (int r = 0; r < 2; ++r) {
    for (Step s : steps) {
      if (has_peer(s.kind)) s.peer = 1 - r;
      if (s.kind == StepKind::kReduce && r == 1 && s.source.size() == 2)
        std::swap(s.source[0], s.source[1]);
      plan.steps[static_cast<std::size_t>(r)].push_back(s);
    }
  }
  return plan;
}

TEST(Program, ALateCopyDoesNotOvertakeAnEarlierWrite) {
  // Rank 0 receives something else into out:0 first, and then fills it with what was there all the
  // time.
  Plan plan = empty_plan(CollectiveKind::kAllGather, 2, 1, 2);
  plan.steps[0] = {copy(in(0), tmp(1)), send(1, in(0)), recv(1, out(0)), copy(tmp(1), out(0)),
                   recv(1, out(1))};
  plan.steps[1] = {send(0, in(0)), recv(0, out(0)), copy(in(0), out(1)), send(0, in(0))};
  expect_compiled_right(plan);
}

TEST(Program, ALateCopyDoesNotOvertakeAnEarlierRead) {
  // out:0 is read in phase 1, and then overwritten with another chunk that is there from the start.
  Plan plan =
      exchange_twice({copy(in(0), out(0)), copy(in(1), tmp(3)), send(-1, in(0)), send(-1, in(1)),
                      recv(-1, tmp(0)), recv(-1, tmp(2)), reduce({out(0), tmp(0)}, tmp(1)),
                      copy(tmp(3), out(0)), copy(tmp(1), out(0)), reduce({in(1), tmp(2)}, out(1))});
  plan.chunks = 2;
  expect_compiled_right(plan);
}

TEST(Program, ACopyInScratchOutlivesItsSource) {
  // tmp:1 keeps the contribution while out:0, which in place is the same memory, is overwritten.
  expect_compiled_right(exchange_twice({copy(in(0), tmp(1)), send(-1, in(0)), recv(-1, tmp(0)),
                                        reduce({in(0), tmp(0)}, out(0)), send(-1, tmp(1)),
                                        recv(-1, tmp(2)), reduce({tmp(1), tmp(2)}, out(0))}));
  expect_compiled_right(
      exchange_twice({copy(in(0), out(0)), copy(out(0), tmp(1)), send(-1, out(0)), recv(-1, out(0)),
                      copy(out(0), tmp(0)), reduce({tmp(1), tmp(0)}, out(0))}));
}

TEST(Program, SignalsAndChunksOfOneChannelDoNotMix) {
  expect_compiled_right(exchange_twice(
      {send(-1, in(0)), signal(-1), wait(-1), recv(-1, tmp(0)), reduce({in(0), tmp(0)}, out(0))}));
}

TEST(Program, APlanThatWaitsForEverIsRefused) {
  Plan plan = empty_plan(CollectiveKind::kBroadcast, 2, 1, 1);
  plan.steps[0] = {recv(1, tmp(0)), send(1, in(0)), copy(in(0), out(0))};
  plan.steps[1] = {recv(0, out(0)), send(0, out(0))};
  const Status s = compile(plan, 0).status();
  EXPECT_EQ(s.cause(), Cause::kInvalidArgument);
  EXPECT_NE(s.text().find("waits for ever in step 0"), std::string::npos) << s.text();
}

}  // namespace
}  // namespace topocoll
