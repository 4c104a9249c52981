#include "callbacks.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <unistd.h>

namespace topocoll::plugin {
namespace {

class Threads {
 public:
  void run(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_) {
        jobs_.push_back(std::move(job));
        if (idle_ < jobs_.size()) {
          threads_.emplace_back([this] { serve(); });
        } else {
          changed_.notify_one();
        }
        return;
      }
    }
    job();
  }

  void stop() {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      threads.swap(threads_);
    }
    changed_.notify_all();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

 private:
  void serve() {
    pthread_setname_np(pthread_self(), "topocoll-calls");
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
      --idle_;
      if (jobs_.empty()) {
        return;
      }
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      job = nullptr;  // what it holds may need the GIL to be released: not under the lock
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;  // threads that wait for a job
  std::vector<std::thread> threads_;
  bool stopped_ = false;
};

// One set per process: a child of fork() has none of its parent's threads. Never destroyed, because
// callbacks may come as late as the process's end.
Threads& threads() {
  static std::mutex mutex;
  static Threads* current = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != getpid()) {
    owner = getpid();
    current = new Threads;
  }
  return *current;
}

}  // namespace

void run_callback(std::function<void()> job) { threads().run(std::move(job)); }

void stop_callbacks() { threads().stop(); }

}  // namespace topocoll::plugin
