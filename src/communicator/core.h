// Core: the state of one communicator in one rank, shared by its threads and its unfinished works.
//
// Collectives are performed one at a time in the order of their calls: inline by a blocking caller when
// nothing is ahead of it (no lock, no allocation, no system call), else by the queue's thread. A second
// thread progresses queued sends and receives. Both threads are made when they are first needed.
// When anything goes wrong, conclude() ends the epoch for all ranks and fixes the one Status that every
// later call returns.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/options.h"
#include "base/os.h"
#include "collectives/cpu/collectives.h"
#include "collectives/p2p.h"
#include "communicator/work.h"
#include "control/bootstrap.h"
#include "control/monitor.h"
#include "control/outcome.h"
#include "topocoll/communicator.h"
#include "transport/shm/channel.h"

namespace topocoll {

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Os& os, const CommunicatorOptions& options, const Options& settings, CommitMode mode,
       Assembly assembly);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  /// Joins the group: starts the monitor, waits for all ranks, tunes. Collective.
  Status start(std::vector<Plan> plans);

  Status run(const Operation& operation, Communicator::Received* received);
  std::shared_ptr<Work> enqueue(std::vector<Operation> group);
  Status commit();
  Status shutdown(std::optional<std::chrono::milliseconds> limit);
  void abort(const std::string& reason);

  [[nodiscard]] int rank() const { return context_.rank; }
  [[nodiscard]] int size() const { return context_.ranks; }
  [[nodiscard]] std::uint64_t committed() const { return context_.gate.completed_by_all(); }
  [[nodiscard]] std::uint64_t sequence() const { return sequence_.load(std::memory_order_acquire); }
  [[nodiscard]] CommunicatorInfo info() const;
  [[nodiscard]] Choice choice(const Operation& operation) const { return collectives_.choice(operation); }
  Status health();
  void set_timeout(std::chrono::milliseconds timeout) {
    timeout_ms_.store(timeout.count(), std::memory_order_relaxed);
  }
  [[nodiscard]] std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(timeout_ms_.load(std::memory_order_relaxed));
  }
  [[nodiscard]] TimePoint now() const { return os_.now(); }

  /// Progresses point-to-point requests until finished() or the deadline.
  void drive_requests(const std::function<bool()>& finished, std::optional<TimePoint> deadline);

 private:
  // core.cc: the way of an operation.
  Status usable() const;
  Status perform(const Operation& operation);
  [[nodiscard]] std::chrono::milliseconds timeout_of(const Operation& operation) const;
  [[nodiscard]] bool take_turn();
  void end_turn();
  [[nodiscard]] std::shared_ptr<P2pRequest> make_request(const Operation& operation) const;
  Status run_message(const Operation& operation, Communicator::Received* received);
  void drive(const shm::Waiter& waiter, const std::function<bool()>& finished,
             std::optional<TimePoint> deadline);

  // core_threads.cc: queued work.
  Status ensure_thread(std::thread& thread, const char* name, void (Core::*loop)());
  void queue_loop();
  void message_loop();
  bool settle_messages();
  void drain(std::chrono::milliseconds time);
  void stop_threads();
  /// Ends what the threads have left; from then on enqueue() itself ends what comes.
  void end_queued(const Status& status);

  // core_outcome.cc: how the epoch ends.
  Status settle(const ExecResult& result, std::uint64_t seq);
  const Status& conclude(const FaultEvent& fault);
  /// conclude() where a fault stands in the segment already.
  const Status& adopt_fault();
  /// Ends the group while it is being made, for all that are in it.
  Status fail_start(const FaultEvent& fault);
  [[nodiscard]] Status make_final_status(const Verdict& verdict) const;
  [[nodiscard]] std::string explain(const Verdict& verdict) const;
  [[nodiscard]] std::string ranks_of_job(const std::vector<int>& ranks) const;
  [[nodiscard]] std::string describe_entered(int rank, std::uint64_t seq) const;
  void set_reason(const std::string& text);
  [[nodiscard]] std::string reason_of(int rank) const;
  void on_link_end(int rank);

  Os& os_;
  Assembly assembly_;
  const Options settings_;
  const bool strict_;
  const std::uint32_t fork_generation_;
  const int own_rank_;
  const std::vector<int> job_ranks_;  ///< of the group's ranks; empty where they are the same
  bool oversubscribed_ = false;  ///< more ranks than cores that any of them may use
  std::atomic<std::int64_t> timeout_ms_;
  Context context_;
  const shm::Waiter sleepy_waiter_;  ///< for the background thread: never spins
  CpuCollectives collectives_;
  shm::ShmTransport transport_;
  P2pEngine messages_;
  Monitor monitor_;

  std::atomic<std::uint64_t> sequence_{0};
  /// Collectives that run inline or are queued. A blocking caller may run inline if it is 0.
  std::atomic<std::uint32_t> outstanding_{0};
  std::atomic<std::uint32_t> turn_waiters_{0};
  std::atomic<bool> closed_{false};

  std::mutex queue_mutex_;
  std::condition_variable queue_changed_;
  std::deque<std::shared_ptr<QueuedWork>> queue_;
  std::list<std::shared_ptr<QueuedWork>> message_works_;
  std::atomic<bool> stopping_{false};
  bool queues_closed_ = false;  ///< end_queued() has been
  std::thread queue_thread_;
  std::thread message_thread_;

  std::mutex outcome_mutex_;
  Outcome outcome_;
  std::atomic<bool> concluded_{false};
  Status final_status_;  ///< constant once concluded_
};

}  // namespace topocoll
