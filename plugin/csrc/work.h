// CollectiveWork: topocoll's Work as torch expects it.
//
// Thread rule: any thread. What must happen once when an operation has ended (copies, profiler, hooks,
// Futures) happens on the first thread that sees it, before any wait() returns.
// Failure rule: wait() and the Future carry topocoll.CollectiveError.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "call.h"
#include "topocoll/communicator.h"

namespace topocoll::plugin {

/// What the operations of one backend share. It outlives the backend where Works do.
struct Ledger {
  std::atomic<int> queued{0};    ///< collectives that were queued and have not ended
  std::atomic<bool> timing{false};
  std::mutex mutex;
  std::condition_variable changed;
  int unfinished = 0;            ///< queued operations of any kind whose completion is not yet handled
  std::function<void(std::shared_ptr<c10d::WorkInfo>)> hook;
  std::atomic<bool> has_hook{false};
};

class CollectiveWork final : public c10d::Work {
 public:
  /// `inputs` are for the profiler.
  CollectiveWork(int rank, CallName name, const std::vector<at::Tensor>& inputs,
                 std::shared_ptr<Ledger> ledger, const std::shared_ptr<Communicator>& communicator,
                 std::chrono::milliseconds timeout);
  ~CollectiveWork() override;

  /// For an operation that has ended already.
  void finish_now(Call call, const Status& status, int source, std::uint64_t seq);
  /// For an operation that `pending` tracks; this object lives at least as long as that takes.
  void follow(Call call, std::shared_ptr<topocoll::Work> pending, std::uint64_t seq);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override;
  std::chrono::milliseconds getTimeout() const;  // virtual in newer torch

  /// OK while in flight.
  [[nodiscard]] Status status() const;

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  void complete(const Status& status);
  void call_hook();
  Future future_of(Future& slot, const c10::TypePtr& type);
  void resolve(const Future& value, const Future& outcome);
  [[nodiscard]] c10::IValue value() const;
  [[nodiscard]] c10::TypePtr value_type() const;

  const std::shared_ptr<Ledger> ledger_;
  const std::weak_ptr<Communicator> communicator_;  // weak: a Work may die on the communicator's thread
  const std::chrono::milliseconds timeout_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point ended_;

  Call call_;
  std::uint64_t seq_ = 0;
  int source_ = -1;
  std::shared_ptr<topocoll::Work> pending_;  // null until followed, and for what ended at once
  std::atomic<bool> followed_{false};        // pending_ may be read

  std::once_flag once_;
  std::atomic<bool> done_{false};  // everything below and all of the above is final
  Status status_;
  Future future_;         // guarded by mutex_ until done_
  Future future_result_;  // likewise
};

}  // namespace topocoll::plugin
