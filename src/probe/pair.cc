#include "probe/pair.h"

#include <fmt/format.h>

#include <thread>
#include <vector>

#include "base/thread.h"
#include "transport/shm/waiter.h"

namespace topocoll {

bool PairEnd::turn() {
  // Who has given up touches nothing more that the other end may still read.
  if (over_.load(std::memory_order_relaxed)) return false;
  mine_.store(++turn_, std::memory_order_release);
  TimePoint start;
  for (std::uint32_t i = 1; theirs_.load(std::memory_order_acquire) < turn_; ++i) {
    if (over_.load(std::memory_order_relaxed)) return false;
    shm::relax();
    if (i % 1024 != 0) continue;
    // Short turns read no clock.
    if (i == 1024) start = os_.now();
    if (os_.now() - start > patience_) {
      over_.store(true);
      return false;
    }
    // The other end may be waiting for this very CPU, before it is pinned to its own. Later, who
    // yields a busy CPU gets it back when the other end has lost its own.
    if (one_cpu_ || turn_ == 1) os_.yield();
  }
  return true;
}

std::optional<double> PairEnd::time_turns(int turns) {
  const TimePoint start = os_.now();
  for (int i = 0; i < turns; ++i) {
    if (!turn()) return std::nullopt;
  }
  return nanoseconds_since(os_, start) / turns;
}

double nanoseconds_since(Os& os, TimePoint start) {
  return static_cast<double>((os.now() - start).count());
}

Status run_pair(Os& os, const PairRequest& request,
                const std::function<void(PairEnd& end, int side)>& body) {
  std::atomic<bool> over{false};
  std::atomic<int> refused{-1};
  std::atomic<bool> starved{false};
  std::vector<std::thread> threads;
  Status status;
  for (int side = 0; side < 2 && status.ok(); ++side) {
    const auto s = static_cast<std::size_t>(side);
    auto thread = start_thread("topocoll-probe", [&, side, s] {
      PairEnd end(os, *request.words[s], *request.words[1 - s], over, request.patience,
                  request.cpus[0] == request.cpus[1]);
      if (!os.pin_thread(request.cpus[s])) {
        refused.store(request.cpus[s]);
        over.store(true);
        return;
      }
      const bool fed = has_memory_for([&] {
        if (end.turn()) body(end, side);  // both are awake
      });
      if (fed) return;
      starved.store(true);
      over.store(true);
    });
    if (thread.ok()) {
      threads.push_back(std::move(*thread));
    } else {
      over.store(true);
      status = thread.status();
    }
  }
  for (std::thread& t : threads) t.join();
  if (!status.ok()) return status;
  if (refused.load() >= 0) {
    return Status(Cause::kSystem,
                  fmt::format("CPU {}: no thread may run there any more", refused.load()));
  }
  if (starved.load()) {
    return Status(Cause::kResource,
                  fmt::format("CPUs {} and {}: out of memory", request.cpus[0], request.cpus[1]));
  }
  if (over.load()) {
    return Status(Cause::kTimeout,
                  fmt::format("CPUs {} and {}: one of them was busy for over {} ms",
                              request.cpus[0], request.cpus[1], request.patience.count()));
  }
  return {};
}

}  // namespace topocoll
