// CpuCollectives: executes the collectives of one communicator over its shared segment.
//
// Every operation begins with an announcement that all ranks wait for and compare. Small payloads travel
// with it (the one_shot plan in one step: every rank reads what it needs from all slots); larger ones go
// through a pipeline that is compiled from the chosen plan.
//
// Thread rule: one operation at a time. Failure rule: an ExecResult says why an operation stopped;
// outputs are then unspecified, except that nothing is written before all announcements agree.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/options.h"
#include "collectives/cpu/context.h"
#include "collectives/cpu/method.h"
#include "collectives/cpu/pipeline.h"
#include "collectives/cpu/request.h"
#include "topocoll/communicator.h"
#include "topocoll/plan.h"

namespace topocoll {

class CpuCollectives {
 public:
  explicit CpuCollectives(Context& context) : c_(context) {}

  /// Rank 0: keeps learning which method wins, from the operations themselves.
  void learn(const std::vector<CopyKind>& copies);

  /// Plans that replace the executor's own, for the sizes that they name; equal on all ranks. Each verifies
  /// and is of this group's size. A later plan wins.
  void use(std::vector<Plan> plans) { plans_ = std::move(plans); }

  /// Runs a validated collective as number `seq`.
  ExecResult execute(const Operation& op, std::uint64_t seq, shm::Deadline& deadline);
  /// The confirm round: returns once every rank has completed `seq`.
  ExecResult confirm(std::uint64_t seq, shm::Deadline& deadline);
  /// What execute() would run.
  [[nodiscard]] Choice choice(const Operation& op) const;

 private:
  /// Kind, root, and which plan: one_shot, two_shot, or kFirstGiven and up for plans_.
  using ProgramKey = std::tuple<CollectiveKind, int, int>;
  static constexpr int kOneShot = 0;
  static constexpr int kTwoShot = 1;
  static constexpr int kFirstGiven = 2;

  /// `waited`, if asked for: how long the announcements of peers took to come.
  ExecResult run(const Request& request, std::uint64_t seq, shm::Deadline& deadline, Clock::duration* waited);
  ExecResult announce(const Request& request, std::uint64_t seq, bool eager);
  ExecResult await_announcements(std::uint64_t seq, shm::Deadline& deadline);
  ExecResult meet(const Request& request, std::uint64_t seq, shm::Deadline& deadline);
  [[nodiscard]] bool all_eager(std::uint64_t seq) const;
  /// Whether this rank's payload travels in its slot.
  [[nodiscard]] bool is_eager(const Request& request, Method method) const;
  /// The last rank to arrive will reduce for all.
  [[nodiscard]] bool meets(const Request& request) const;

  void consume(const Request& request, std::uint64_t seq);
  void consume_blocks(const Request& request, std::uint64_t seq);
  void reduce_slots(const Request& request, std::uint64_t seq, void* target, const void* own,
                    std::size_t count, std::size_t offset);
  /// As reduce_function(), whose choice takes as long as a small reduction: most operations are of the
  /// kind before.
  [[nodiscard]] ReduceFunction reducer(DataType type, ReduceOp op);
  [[nodiscard]] const std::byte* payload(std::uint64_t seq, int rank, std::size_t bytes,
                                         bool counts) const;

  /// Bytes of a chunk of one window; `exchange`: the one-shot plan of a striped message. kUnsupported if the
  /// ring has no room for the plan.
  [[nodiscard]] Result<std::size_t> cell_bytes(const PipelineCall& call, std::size_t bytes, bool exchange) const;
  ExecResult pipeline(const Request& request, std::uint64_t seq, shm::Deadline& deadline);
  [[nodiscard]] bool two_shot(CollectiveKind kind, Method method) const;
  /// Index into plans_ of the one that serves the operation, or -1. Its descriptor is the same on all ranks;
  /// `lists`: some rank gives counts by peer.
  [[nodiscard]] int given_plan(const shm::Descriptor& op, std::size_t element, bool lists) const;
  Result<const Program*> program(CollectiveKind kind, int which, int root);
  [[nodiscard]] std::size_t largest_block(const Request& request, std::uint64_t seq) const;

  [[nodiscard]] AllReduceAlgorithm all_reduce() const {
    return static_cast<AllReduceAlgorithm>(c_.tuning.all_reduce);
  }

  Context& c_;
  std::optional<MethodChooser> chooser_;  ///< rank 0, where there is something to choose
  Method method_;                         ///< of the operation in progress
  struct {
    DataType type{};
    ReduceOp op{};
    ReduceFunction function = nullptr;
  } last_reducer_;
  std::uint64_t pipeline_base_ = 0;
  std::uint64_t ring_passed_ = 0;  ///< see PipelineCall
  std::vector<Plan> plans_;  ///< that the user gave
  std::map<ProgramKey, std::unique_ptr<const Program>> programs_;
};

}  // namespace topocoll
