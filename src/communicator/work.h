// QueuedWork: the Work behind Communicator::enqueue().
//
// It has one part for all its collectives (ended by the queue's thread) and one for each of its
// point-to-point requests (ended by whoever progresses them). It is done when all parts are; the first
// error is its status. Thread rule: any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/p2p.h"
#include "topocoll/communicator.h"

namespace topocoll {

class Core;

class QueuedWork final : public Work {
 public:
  /// `core` progresses point-to-point requests while somebody waits.
  QueuedWork(std::shared_ptr<Core> core, std::vector<Operation> collectives,
             std::vector<std::shared_ptr<P2pRequest>> requests);

  [[nodiscard]] bool done() const override { return done_.load(std::memory_order_acquire); }
  Status wait(std::optional<std::chrono::milliseconds> timeout) override;
  [[nodiscard]] Status status() const override;
  [[nodiscard]] int source() const override;
  [[nodiscard]] std::size_t count() const override;
  void on_done(std::function<void(const Status&)> f) override;

  [[nodiscard]] const std::vector<Operation>& collectives() const { return collectives_; }
  /// Ends the collectives' part.
  void collectives_ended(const Status& status);
  /// Takes note of requests that ended; true once all have.
  bool settle_requests();

 private:
  void part_ended(std::unique_lock<std::mutex>& lock, const Status& status);

  std::shared_ptr<Core> core_;
  std::vector<Operation> collectives_;
  std::vector<std::shared_ptr<P2pRequest>> requests_;
  const bool single_receive_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t parts_left_;
  std::size_t requests_settled_ = 0;
  Status status_;
  int source_ = -1;
  std::size_t count_ = 0;
  std::vector<std::function<void(const Status&)>> callbacks_;
  std::atomic<bool> done_{false};
};

}  // namespace topocoll
