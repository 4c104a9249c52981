// Monitor: the thread of a rank that vouches for its life and notices the end of others'.
//
// It holds the rank's robust lock for as long as the process lives, and watches the connections that the
// group was built over. Whoever waits in shared memory reads the locks itself (first notice); the end of
// a connection (second notice) wakes those who sleep.
//
// Thread rule: start() and stop() by the owner; the callback runs on the monitor's thread.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/os.h"
#include "topocoll/status.h"
#include "transport/shm/segment.h"

namespace topocoll {

class Monitor {
 public:
  /// A connection to another rank of the group.
  struct Link {
    int rank = -1;
    Fd socket;
  };
  /// Called once for each link whose other end is gone.
  using OnEnd = std::function<void(int rank)>;

  Monitor() = default;
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  ~Monitor() { stop(); }

  /// Returns once the lock is held.
  Status start(Os& os, shm::RankBlock& own, std::vector<Link> links, OnEnd on_end);
  /// Releases the lock and ends the thread. Idempotent. Does nothing in a forked child, where the thread
  /// does not exist.
  void stop();

 private:
  void watch();

  Os* os_ = nullptr;
  shm::RankBlock* own_ = nullptr;
  std::vector<Link> links_;
  OnEnd on_end_;
  Fd stop_event_;
  std::thread thread_;
  std::uint32_t fork_generation_ = 0;
};

}  // namespace topocoll
