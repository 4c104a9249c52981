// The two threads of a communicator that serve what was queued, and how they end.
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "communicator/core.h"

namespace topocoll {

using std::chrono::milliseconds;

Status Core::ensure_thread(std::thread& thread, const char* name, void (Core::*loop)()) {
  // After stop_threads() nobody would join it; what is queued then is ended by end_queued().
  if (thread.joinable() || stopping_) return {};
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
  std::list<std::shared_ptr<QueuedWork>> waiting;
  {
    const std::lock_guard lock(queue_mutex_);
    waiting.swap(message_works_);
  }
  // Without the lock: a completion callback may queue more, or shut down.
  waiting.remove_if([](const auto& work) { return work->settle_requests(); });
  const std::lock_guard lock(queue_mutex_);
  message_works_.splice(message_works_.begin(), waiting);
  return message_works_.empty() || stopping_;
}

void Core::message_loop() {
  for (;;) {
    {
      std::unique_lock lock(queue_mutex_);
      queue_changed_.wait(lock, [this] { return stopping_ || !message_works_.empty(); });
      if (stopping_) break;
    }
    drive(sleepy_waiter_, [this] { return settle_messages(); }, std::nullopt);
  }
  // A callback of this thread's that shut down did not find the works that were being settled.
  settle_messages();
}

void Core::drain(milliseconds time) {
  const TimePoint limit = os_.now() + time;
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
    log().warn("rank {} leaves with {} sends that their receivers did not take within {} ms",
               own_rank_, undelivered, time.count());
  }
}

Status Core::shutdown(std::optional<milliseconds> limit) {
  if (fork_generation_ != fork_generation() || closed_.exchange(true)) return {};
  if (!concluded_) drain(limit.value_or(settings_.drain));
  // An operation that is still running waits for peers that do not come: end it for all.
  if (outstanding_.load() != 0 && !concluded_) {
    set_reason("shut down with operations in flight");
    conclude({Cause::kAborted, own_rank_, sequence()});
  }
  stop_threads();
  // Where the group has failed, works that nobody has come to end as those before them did.
  const Status left =
      concluded_ ? final_status_ : Status(Cause::kAborted, "the communicator was shut down");
  messages_.fail_all(left);
  end_queued(left);
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

void Core::end_queued(const Status& status) {
  std::deque<std::shared_ptr<QueuedWork>> queued;
  std::list<std::shared_ptr<QueuedWork>> waiting;
  {
    const std::lock_guard lock(queue_mutex_);
    queued.swap(queue_);
    waiting.swap(message_works_);
    queues_closed_ = true;
    outstanding_.fetch_sub(static_cast<std::uint32_t>(queued.size()));
    queue_changed_.notify_all();  // commit() may wait for its turn
  }
  for (const auto& work : queued) work->collectives_ended(status);
  for (const auto& work : waiting) work->settle_requests();
}

}  // namespace topocoll
