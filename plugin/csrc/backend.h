// TopocollBackend: torch.distributed's Backend on top of a topocoll Communicator.
//
// One object serves all devices of a process group; this build serves CPU tensors.
// Thread rule: as Communicator: any thread, and all ranks issue collectives in one order. Blocking calls
// let go of the GIL.
// Failure rule: everything raises topocoll.CollectiveError; shutdown() and the destructor do not throw.
//
// Virtuals that not every torch version has are declared without `override`, so that one source fits them
// all; single-buffer collectives carry their older names, to which newer versions forward.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "call.h"
#include "topocoll/communicator.h"
#include "work.h"

namespace topocoll::plugin {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

/// topocoll.Options: what pg_options may carry.
struct TopocollOptions final : c10d::Backend::Options {
  explicit TopocollOptions(std::optional<std::chrono::milliseconds> limit = std::nullopt,
                   std::optional<CommitMode> mode = std::nullopt)
      : c10d::Backend::Options("topocoll", limit.value_or(kBackendDefaultTimeout)),
        explicit_timeout(limit.has_value()),
        commit(mode) {}

  c10::intrusive_ptr<c10d::Backend::Options> clone() const {  // virtual in newer torch
    return c10::make_intrusive<TopocollOptions>(*this);
  }

  bool explicit_timeout;             ///< given by the user, and not torch's default
  std::optional<CommitMode> commit;  ///< absent: TOPOCOLL_COMMIT decides
};

class TopocollBackend final : public c10d::Backend {
 public:
  /// Collective over the group. `store` may be null if `size` is 1. `name` distinguishes groups that
  /// share a store; `build_tag` must be equal on all ranks.
  TopocollBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                  c10::intrusive_ptr<TopocollOptions> options, std::string name, std::string build_tag);
  ~TopocollBackend() override;

  const std::string getBackendName() const override { return "topocoll"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts)
      override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override;
  void eagerConnectSingleDevice(at::Device device) override;

  void setSequenceNumberForGroup() override {}  // numbers start at 0 on every rank
  std::uint64_t getSequenceNumberForGroup() override { return issued_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  void abort() override;
  void shutdown() override;

  /// For this module's Python class; as the Communicator's functions of those names.
  [[nodiscard]] Communicator& communicator() const { return *communicator_; }
  [[nodiscard]] int splits() const { return splits_; }
  void commit();
  /// Communicator::topology() as JSON.
  std::string topology_json();

  /// Leaves all groups of this process before Python ends: in good order within the time that
  /// TOPOCOLL_DRAIN_MS gives, or at once with `reason` told to the other ranks if it is not empty.
  static void leave_all(const std::string& reason);

 private:
  struct Group {
    Call call;
    c10::intrusive_ptr<CollectiveWork> work;
  };

  c10::intrusive_ptr<CollectiveWork> make_work(const Call& call) const;
  WorkPtr issue(Call call, bool async);
  WorkPtr issue_now(Call call, bool async);
  WorkPtr run(Call call);
  WorkPtr start(Call call, c10::intrusive_ptr<CollectiveWork> work);
  std::uint64_t number(const Call& call);
  WorkPtr receive(Tensors& tensors, int source, int tag, CallName name);
  Status run_and_wait(const Call& call);
  void gather_from_others(std::chrono::milliseconds limit, bool wait_all_ranks);
  void report_to_first(std::chrono::milliseconds limit);
  Group* open_group();
  c10::intrusive_ptr<c10d::Backend> make_child(c10::intrusive_ptr<c10d::Store> store, int rank,
                                               int size, const std::string& name,
                                               const c10::intrusive_ptr<c10d::Backend::Options>& opts);
  void require_rank(std::int64_t rank, const char* operation) const;
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }

  const c10::intrusive_ptr<TopocollOptions> options_;
  const std::string name_;
  const std::string build_tag_;
  const pid_t owner_;
  std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  std::atomic<std::uint64_t> issued_{0};  ///< collectives, queued ones included
  int splits_ = 0;
  int merges_ = 0;

  std::atomic<int> open_groups_{0};
  std::mutex groups_mutex_;
  std::map<std::thread::id, Group> groups_;
};

}  // namespace topocoll::plugin
