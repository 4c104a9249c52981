// The two threads of a communicator that serve what was queued, and how they end.
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "communicator/core.h"

namespace topocoll {

Status Core::ensure_thread(std::thread& thread, const char* name, void (Core::*loop)()) {
  if (thread.joinable()) return {};
  // The thread keeps this object alive, in case a completion callback drops the communicator.
  auto started = start_thread(name, [self = shared_from_this(), loop] { ((*self).*loop)(); });
  if (!started.ok()) return started.status();
  thread = std::move(*started);
  return {};
}

void Core::queue_loop() {
  std::unique_lock lock(queue_mutex_);
  for (;;) {
    // Everything outstanding is in the queue: nobody runs inline.
    queue_changed_.wait(lock, [this] {
      return stopping_ || (!queue_.empty() && outstanding_.load() == queue_.size());
    });
    if (stopping_) return;
    const std::shared_ptr<QueuedWork> work = queue_.front();
    queue_.pop_front();
    lock.unlock();
    Status status;
    for (const Operation& op : work->collectives()) {
      Status s = perform(op);
      if (status.ok()) status = std::move(s);
    }
    // The turn ends first: who is told of the end may at once run inline.
    end_turn();
    work->collectives_ended(status);
    lock.lock();
  }
}

bool Core::settle_messages() {
  const std::lock_guard lock(queue_mutex_);
  std::erase_if(message_works_, [](const auto& work) { return work->settle_requests(); });
  return message_works_.empty() || stopping_;
}

void Core::message_loop() {
  for (;;) {
    {
      std::unique_lock lock(queue_mutex_);
      queue_changed_.wait(lock, [this] { return stopping_ || !message_works_.empty(); });
      if (stopping_) return;
    }
    drive(sleepy_waiter_, [this] { return settle_messages(); }, std::nullopt);
  }
}

void Core::drain() {
  const TimePoint limit = os_.now() + settings_.drain;
  {
    std::unique_lock lock(queue_mutex_);
    turn_waiters_.fetch_add(1);
    queue_changed_.wait_until(lock, limit, [this] { return outstanding_.load() == 0 || concluded_; });
    turn_waiters_.fetch_sub(1);
  }
  if (messages_.pending_sends() != 0) {
    drive(context_.waiter, [this] { return messages_.pending_sends() == 0; }, limit);
  }
  const std::size_t undelivered = messages_.pending_sends();
  if (undelivered != 0 && !concluded_) {
    log().warn("rank {} leaves with {} sends that their receivers did not take within {} ms", own_rank_,
               undelivered, settings_.drain.count());
  }
}

Status Core::shutdown() {
  if (fork_generation_ != fork_generation() || closed_.exchange(true)) return {};
  if (!concluded_) drain();
  // An operation that is still running waits for peers that do not come: end it for all.
  if (outstanding_.load() != 0 && !concluded_) {
    set_reason("shut down with operations in flight");
    conclude({Cause::kAborted, own_rank_, sequence()});
  }
  stop_threads();
  const Status left(Cause::kAborted, "the communicator was shut down");
  messages_.fail_all(left);
  fail_queued(left);
  assembly_.segment.block(own_rank_).state.store(shm::RankState::kLeft);
  shm::ring(os_, assembly_.segment);
  monitor_.stop();
  return {};
}

void Core::stop_threads() {
  {
    const std::lock_guard lock(queue_mutex_);
    stopping_ = true;
    queue_changed_.notify_all();
  }
  // The message thread may be asleep on this rank's doorbell.
  shm::RankBlock& mine = assembly_.segment.block(own_rank_);
  mine.doorbell.fetch_add(1);
  os_.futex_wake_all(&mine.doorbell);
  for (std::thread* t : {&queue_thread_, &message_thread_}) {
    if (!t->joinable()) continue;
    if (t->get_id() == std::this_thread::get_id()) {
      t->detach();  // shut down from a completion callback: the thread returns from its loop by itself
    } else {
      t->join();
    }
  }
}

void Core::fail_queued(const Status& status) {
  std::deque<std::shared_ptr<QueuedWork>> queued;
  std::list<std::shared_ptr<QueuedWork>> waiting;
  {
    const std::lock_guard lock(queue_mutex_);
    queued.swap(queue_);
    waiting.swap(message_works_);
  }
  for (const auto& work : queued) work->collectives_ended(status);
  for (const auto& work : waiting) work->settle_requests();
}

}  // namespace topocoll
