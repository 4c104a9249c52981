// Symbolic execution of a plan: runs the programs of all ranks on expressions instead of numbers.
//
// Each ordered pair of ranks has two unbounded FIFOs per channel, one for chunks and one for
// signals. Every FIFO has one writer and one reader and every program is sequential, so the result
// does not depend on the order in which ranks are run: one run stands for all interleavings. Thread
// rule: one thread at a time. Failure rule: run() returns the first violation, with rank and step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "planner/expression.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

class SymbolicRun {
 public:
  /// `plan` must have passed check_structure() and outlive the run.
  explicit SymbolicRun(const Plan& plan);

  /// Executes every rank to its end; fails on a read before the write, a wait for ever, or a
  /// message that nobody takes.
  Status run();

  /// After run(): what the rank's output chunk holds.
  [[nodiscard]] ExpressionPool::Id output(int rank, int chunk) const;
  /// After run() of a barrier: the lowest rank that `rank` does not know to have entered, or
  /// nothing.
  [[nodiscard]] std::optional<int> unheard_of(int rank) const;
  [[nodiscard]] const ExpressionPool& expressions() const { return expressions_; }

 private:
  using RankSet = std::vector<std::uint64_t>;  ///< one bit per rank
  struct Message {
    ExpressionPool::Id value = ExpressionPool::kNothing;
    std::size_t step = 0;                  ///< of the sender
    std::shared_ptr<const RankSet> heard;  ///< barrier: ranks that the sender knows to have entered
  };
  struct Fifo {
    std::vector<Message> messages;
    std::size_t taken = 0;
  };
  struct Rank {
    std::vector<ExpressionPool::Id> cells;  ///< input, output, scratch
    std::size_t next_step = 0;
    std::uint64_t waits_for = 0;  ///< key of the FIFO it is blocked on
    bool blocked = false;
    std::shared_ptr<RankSet> heard;  ///< copied before a change if a message still shares it
  };

  Status run_rank(int rank);
  Status execute(int rank, const Step& step);
  void put(int rank, const Step& step, ExpressionPool::Id value);
  Status take(int rank, const Step& step);
  void learn(Rank& rank, const std::shared_ptr<const RankSet>& heard);
  Result<ExpressionPool::Id> read(int rank, ChunkRef ref);
  ExpressionPool::Id& cell(int rank, ChunkRef ref);
  [[nodiscard]] std::uint64_t fifo_key(int from, int to, const Step& step) const;
  [[nodiscard]] Status violation(int rank, const std::string& text) const;
  [[nodiscard]] Status deadlock() const;
  [[nodiscard]] Status unreceived() const;

  const Plan& plan_;
  ExpressionPool expressions_;
  std::vector<Rank> ranks_;
  std::unordered_map<std::uint64_t, Fifo> fifos_;
  std::deque<int> runnable_;
};

/// Everything that can be seen without running: sizes, bounds, fields that a step must or must not
/// have.
Status check_structure(const Plan& plan);

}  // namespace topocoll
