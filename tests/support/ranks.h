// Groups of ranks for tests: as threads of this process, or as forked processes that may be killed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "topocoll/communicator.h"
#include "topocoll/store.h"

namespace topocoll::testing {

using namespace std::chrono_literals;

inline std::unique_ptr<Communicator> join(int rank, int size, std::shared_ptr<Store> store,
                                          const std::string& name = "test",
                                          CommitMode mode = CommitMode::kStrict,
                                          std::chrono::milliseconds timeout = 60s) {
  CommunicatorOptions o;
  o.rank = rank;
  o.size = size;
  o.store = std::move(store);
  o.name = name;
  o.timeout = timeout;
  o.commit = mode;
  auto made = Communicator::create(o);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? std::move(*made) : nullptr;
}

/// Runs `body` as every rank of one group, each on a thread of its own.
inline void run_ranks(int size, const std::function<void(Communicator&)>& body,
                      CommitMode mode = CommitMode::kStrict,
                      std::chrono::milliseconds timeout = 60s) {
  auto store = make_memory_store();
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      auto comm = join(r, size, store, "test", mode, timeout);
      if (comm != nullptr) body(*comm);
    });
  }
  for (std::thread& t : threads) t.join();
}

/// Begins a test that forks ranks. The store's server is a thread of the parent, and the thread sanitizer
/// ends children of a process with threads; it could not see across processes anyway.
#if defined(__SANITIZE_THREAD__)
#define TOPOCOLL_FORKS_RANKS() GTEST_SKIP() << "the thread sanitizer does not follow ranks into processes"
#else
#define TOPOCOLL_FORKS_RANKS() static_cast<void>(0)
#endif

/// What a forked rank tells its parent, in memory that both see.
struct Report {
  std::atomic<bool> ready;
  std::atomic<std::uint64_t> operations;  ///< that succeeded
  std::atomic<int> cause;                 ///< Cause of the first failure; 0: none
  std::atomic<int> culprit;
  std::atomic<std::uint64_t> seq;
  std::atomic<std::int64_t> failed_at_ns;  ///< steady clock
  char text[512];

  void note(const Status& s) {
    failed_at_ns = std::chrono::steady_clock::now().time_since_epoch().count();
    seq = s.seq();
    culprit = s.culprit();
    std::strncpy(text, s.to_string().c_str(), sizeof text - 1);
    cause = static_cast<int>(s.cause());
  }
};

/// Ranks as processes over a TCP store on loopback.
class ForkedRanks {
 public:
  using Body = std::function<void(Communicator&, Report&)>;

  ForkedRanks(int size, const Body& body, CommitMode mode = CommitMode::kStrict,
              std::chrono::milliseconds timeout = 60s)
      : size_(size) {
    void* p = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (p) Shared{};
    reports_ = reinterpret_cast<Report*>(shared_ + 1);
    // The server is a thread, and a child forked beside a thread may inherit a lock that it holds: the
    // children come first and wait for its port.
    for (int r = 0; r < size; ++r) {
      const pid_t pid = fork();
      if (pid == 0) {
        child(r, body, mode, timeout);
        _exit(0);
      }
      pids_.push_back(pid);
    }
    auto server = serve_tcp_store("127.0.0.1", 0, "secret");
    EXPECT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(*server);
    shared_->port = server_->port();
  }
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;
  ~ForkedRanks() {
    for (pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGKILL);
    }
    join_all();
    munmap(shared_, bytes());
  }

  Report& report(int rank) { return reports_[rank]; }
  [[nodiscard]] pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }

  /// Waits until condition() holds; false after `limit`.
  static bool await(const std::function<bool()>& condition, std::chrono::milliseconds limit = 60s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(100us);  // the ranks need the cores
    }
    return true;
  }
  bool await_ready() {
    return await([this] {
      for (int r = 0; r < size_; ++r) {
        if (!reports_[r].ready) return false;
      }
      return true;
    });
  }
  /// Waits for a rank's end and returns its wait status.
  int reap(int rank) {
    int status = -1;
    pid_t& pid = pids_[static_cast<std::size_t>(rank)];
    if (pid > 0) waitpid(pid, &status, 0);
    pid = -1;
    return status;
  }
  void join_all() {
    for (int r = 0; r < size_; ++r) reap(r);
  }

 private:
  void child(int rank, const Body& body, CommitMode mode, std::chrono::milliseconds timeout) {
    if (!await([this] { return shared_->port != 0; })) _exit(2);
    auto store = connect_tcp_store("127.0.0.1", shared_->port, "secret", 30s);
    if (!store.ok()) _exit(3);
    auto comm = join(rank, size_, *store, "forked", mode, timeout);
    if (comm == nullptr) _exit(4);
    body(*comm, reports_[rank]);
  }

  struct alignas(64) Shared {
    std::atomic<std::uint16_t> port;
  };
  [[nodiscard]] std::size_t bytes() const {
    return sizeof(Shared) + sizeof(Report) * static_cast<std::size_t>(size_);
  }

  int size_;
  Shared* shared_ = nullptr;
  std::unique_ptr<StoreServer> server_;
  Report* reports_ = nullptr;
  std::vector<pid_t> pids_;
};

}  // namespace topocoll::testing
