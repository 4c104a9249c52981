// Ranks inside one process: threads, and a segment that each of them has mapped for itself.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "support/eventually.h"
#include "transport/shm/segment.h"

namespace topocoll::testing {

/// Runs f(rank) on a thread per rank.
inline void run_ranks(int ranks, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(f, r);
  for (std::thread& t : threads) t.join();
}

/// A segment of `ranks` ranks, all joined, with a mapping for each.
class ShmGroup {
 public:
  explicit ShmGroup(int ranks, Os& os = Os::real()) {
    auto first = shm::Segment::create(os, {.ranks = ranks});
    if (!first.ok()) throw std::runtime_error(first.status().to_string());
    segments_.push_back(std::move(*first));
    for (int r = 1; r < ranks; ++r) {
      auto next = shm::Segment::attach(os, Fd(::dup(segments_[0].fd().get())), ranks);
      if (!next.ok()) throw std::runtime_error(next.status().to_string());
      segments_.push_back(std::move(*next));
    }
    for (int r = 0; r < ranks; ++r) segments_[0].block(r).state.store(shm::RankState::kJoined);
  }
  [[nodiscard]] shm::Segment& operator[](int rank) {
    return segments_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int ranks() const { return static_cast<int>(segments_.size()); }

 private:
  std::vector<shm::Segment> segments_;
};

/// A child process that does `work` and then waits to be killed.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    int ready[2];
    if (::pipe(ready) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      work();
      const char done = 'x';
      if (::write(ready[1], &done, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char done = 0;
    ::close(ready[1]);
    const ssize_t n = ::read(ready[0], &done, 1);
    ::close(ready[0]);
    if (n != 1) throw std::runtime_error("the child ended before it was ready");
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }
  /// Returns when the process is gone.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace topocoll::testing
