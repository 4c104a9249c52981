#include "probe/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/thread.h"
#include "probe/statistics.h"
#include "transport/shm/waiter.h"

namespace topocoll {
namespace {

constexpr std::size_t kLeastBytes = std::size_t{16} << 20;
constexpr std::size_t kUsualBytes = std::size_t{64} << 20;
constexpr std::size_t kMostBytes = std::size_t{512} << 20;
constexpr std::uint64_t kCaches = 4;
constexpr std::uint64_t kShareOfAvailable = 8;
constexpr std::chrono::milliseconds kPatience{500};

/// Where the readers wait for each other. They spin: each has a CPU of its own, and who yields a
/// busy one is late for the next meeting.
class Barrier {
 public:
  Barrier(Os& os, int threads, std::atomic<bool>& over)
      : os_(os), threads_(static_cast<std::uint64_t>(threads)), over_(over) {}
  /// False if the measurement is over.
  bool wait() {
    const std::uint64_t all = (arrived_.fetch_add(1) / threads_ + 1) * threads_;
    const TimePoint start = os_.now();
    for (std::uint32_t i = 1; arrived_.load() < all; ++i) {
      if (over_.load()) return false;
      shm::relax();
      if (i % 1024 == 0 && os_.now() - start > kPatience) return fail();
    }
    return true;
  }
  bool fail() {
    if (!over_.exchange(true)) late_.store(true);
    return false;
  }
  [[nodiscard]] bool late() const { return late_.load(); }

 private:
  Os& os_;
  const std::uint64_t threads_;
  std::atomic<bool>& over_;
  std::atomic<std::uint64_t> arrived_{0};
  std::atomic<bool> late_{false};
};

/// Several sums, so that loads do not wait for additions.
std::uint64_t read_all(const std::byte* memory, std::size_t bytes) {
  std::uint64_t sums[8] = {};
  for (std::size_t at = 0; at + 64 <= bytes; at += 64) {
    std::uint64_t line[8];
    std::memcpy(line, memory + at, sizeof line);
    for (int i = 0; i < 8; ++i) sums[i] += line[i];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t s : sums) sum += s;
  return sum;
}

class Readers {
 public:
  Readers(Os& os, const MemoryRequest& request)
      : os_(os),
        request_(request),
        part_(request.bytes / request.cpus.size() / page() * page()),
        barrier_(os, static_cast<int>(request.cpus.size()), over_),
        times_(request.cpus.size()),
        sampler_(os, {.least = 5, .time = request.time}) {}

  Result<Figure> run() {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < request_.cpus.size(); ++i) {
      auto thread = start_thread("topocoll-probe", [this, i] {
        if (has_memory_for([&] { read(i); })) return;
        starved_.store(true);
        over_.store(true);
      });
      if (!thread.ok()) {
        fail(thread.status());
        break;
      }
      threads.push_back(std::move(*thread));
    }
    for (std::thread& t : threads) t.join();
    if (!status_.ok()) return status_;
    if (starved_.load()) {
      return Status(Cause::kResource,
                    fmt::format("memory of NUMA node {}: out of memory", request_.node));
    }
    if (barrier_.late()) {
      return Status(Cause::kTimeout,
                    fmt::format("memory of NUMA node {}: a reading CPU was busy for over {} ms",
                                request_.node, kPatience.count()));
    }
    return sampler_.take(Better::kHigher);
  }

 private:
  struct Time {
    TimePoint start;
    TimePoint end;
  };

  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  void fail(Status status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    over_.store(true);
  }

  void read(std::size_t self) {
    if (!os_.pin_thread(request_.cpus[self])) {
      return fail(Status(Cause::kSystem, fmt::format("CPU {}: no thread may run there any more",
                                                     request_.cpus[self])));
    }
    const auto part = make_node_memory(os_, part_, request_.node, request_.local);
    if (!part.ok()) return fail(part.status());
    for (;;) {
      if (self == 0) more_ = !sampler_.done();
      if (!barrier_.wait() || !more_) return;
      Time& time = times_[self];
      time.start = os_.now();
      const std::uint64_t sum = read_all(part->data(), part_);
      asm volatile("" : : "r"(sum));
      time.end = os_.now();
      if (!barrier_.wait()) return;
      if (self == 0) sampler_.add(gbps());
      // Nobody may write its times again before they have been looked at.
      if (!barrier_.wait()) return;
    }
  }

  [[nodiscard]] double gbps() const {
    TimePoint first = times_.front().start;
    TimePoint last = times_.front().end;
    for (const Time& t : times_) {
      first = std::min(first, t.start);
      last = std::max(last, t.end);
    }
    const double bytes = static_cast<double>(part_) * static_cast<double>(times_.size());
    return bytes / static_cast<double>(std::max<std::int64_t>((last - first).count(), 1));
  }

  Os& os_;
  const MemoryRequest& request_;
  const std::size_t part_;
  std::atomic<bool> over_{false};
  std::atomic<bool> starved_{false};  ///< a reader was out of memory
  Barrier barrier_;
  std::vector<Time> times_;
  Sampler sampler_;   ///< the first reader's
  bool more_ = true;  ///< the first reader writes it before a barrier
  std::mutex mutex_;
  Status status_;
};

}  // namespace

Result<Figure> measure_memory(Os& os, const MemoryRequest& request) {
  return Readers(os, request).run();
}

Result<Mapping> make_node_memory(Os& os, std::size_t bytes, int node, bool local) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return Status(Cause::kResource, fmt::format("{} bytes of NUMA node {}: {}", bytes, node,
                                                std::generic_category().message(errno)));
  }
  Mapping memory(address, bytes);
  static_cast<void>(::madvise(address, bytes, MADV_HUGEPAGE));  // faster to touch
  Status bound = os.bind_memory({memory.data(), bytes}, node, Binding::kStrict);
  if (!bound.ok() && !local) return bound;
  std::memset(memory.data(), 1, bytes);
  return memory;
}

std::size_t memory_read_bytes(std::uint64_t cache_bytes, std::uint64_t available_bytes) {
  const std::uint64_t wanted = std::clamp<std::uint64_t>(
      cache_bytes > kMostBytes / kCaches ? kMostBytes : kCaches * cache_bytes, kUsualBytes,
      kMostBytes);
  const std::uint64_t bytes = std::min(wanted, available_bytes / kShareOfAvailable);
  return bytes < kLeastBytes ? 0 : static_cast<std::size_t>(bytes);
}

}  // namespace topocoll
