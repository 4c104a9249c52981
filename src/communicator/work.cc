#include "communicator/work.h"

#include <utility>

#include "communicator/core.h"

namespace topocoll {

QueuedWork::QueuedWork(std::shared_ptr<Core> core, std::vector<Operation> collectives,
                       std::vector<std::shared_ptr<P2pRequest>> requests)
    : core_(std::move(core)), collectives_(std::move(collectives)), requests_(std::move(requests)),
      single_receive_(requests_.size() == 1 && !requests_.front()->is_send),
      parts_left_(requests_.size() + (collectives_.empty() ? 0 : 1)) {
  if (parts_left_ == 0) done_.store(true, std::memory_order_release);
}

void QueuedWork::part_ended(std::unique_lock<std::mutex>& lock, const Status& status) {
  if (status_.ok() && !status.ok()) status_ = status;
  if (--parts_left_ != 0) return;
  done_.store(true, std::memory_order_release);
  const auto callbacks = std::exchange(callbacks_, {});
  const Status final_status = status_;
  // Waiters must find this object alive: notify while the lock keeps them inside.
  changed_.notify_all();
  lock.unlock();
  for (const auto& f : callbacks) f(final_status);
  lock.lock();
}

void QueuedWork::collectives_ended(const Status& status) {
  std::unique_lock lock(mutex_);
  part_ended(lock, status);
}

bool QueuedWork::settle_requests() {
  std::unique_lock lock(mutex_);
  while (requests_settled_ < requests_.size()) {
    const P2pRequest& request = *requests_[requests_settled_];
    if (!request.done.load(std::memory_order_acquire)) return false;
    ++requests_settled_;
    if (single_receive_) {
      source_ = request.source;
      count_ = request.received_bytes / size_of(request.type);
    }
    part_ended(lock, request.status);
  }
  return true;
}

Status QueuedWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  const std::optional<TimePoint> deadline =
      timeout ? std::optional(core_->now() + *timeout) : std::nullopt;
  if (!done() && !requests_.empty()) {
    core_->drive_requests([this] { return settle_requests(); }, deadline);
  }
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return parts_left_ == 0; };
  if (!deadline) {
    changed_.wait(lock, ended);
  } else if (!changed_.wait_until(lock, *deadline, ended)) {
    return Status(Cause::kTimeout, "the operation is still running; wait again for it, or abort");
  }
  return status_;
}

Status QueuedWork::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

int QueuedWork::source() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

std::size_t QueuedWork::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void QueuedWork::on_done(std::function<void(const Status&)> f) {
  std::unique_lock lock(mutex_);
  if (parts_left_ != 0) {
    callbacks_.push_back(std::move(f));
    return;
  }
  const Status final_status = status_;
  lock.unlock();
  f(final_status);
}

}  // namespace topocoll
