// Harness: how every peer of compare_cpu is timed, so that all are timed alike.
//
// The ranks of one peer share a page file. Rank 0 reads commands from standard input ("run BYTES"),
// all ranks run the cell, and rank 0 prints one line per cell. A cell is: one checked operation,
// warm-up, then repetitions, each after a barrier in shared memory; the time of a repetition is the
// maximum over ranks, and the cell's is the median of those. A flag is bounced between ranks 0 and
// 1 before and after, because what a message costs depends on how far apart the host has put the
// two processors. While a peer waits for a command all its ranks sleep in the kernel, so that many
// peers can take turns on one machine.
//
// Thread rule: one thread per rank. Failure rule: a rank that cannot go on says why and exits with
// 1.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

namespace peers {

inline constexpr int kMaxRanks = 64;
inline constexpr int kMaxRepetitions = 2048;
inline constexpr double kBudgetUs =
    150000;  ///< timed repetitions of a cell should take about this long

struct SharedPage {
  alignas(128) std::atomic<std::uint32_t> arrived;
  alignas(128) std::atomic<std::uint32_t> generation;
  alignas(128) std::atomic<std::uint32_t> ping;
  alignas(128) std::atomic<std::uint32_t> pong;
  alignas(128) std::atomic<std::uint32_t> probes;
  float flag_ns;
  alignas(128) std::atomic<std::uint32_t> commands;
  std::int64_t bytes;                            ///< of the latest command; -1: leave
  std::int64_t value;                            ///< what rank 0 decided
  alignas(128) std::atomic<std::uint32_t> port;  ///< for peers that meet at a port of their own
  std::atomic<std::uint32_t> wrong;
  alignas(128) float times_us[kMaxRanks][kMaxRepetitions];
};

inline double now_us() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

[[noreturn]] inline void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Pins this thread, and those that it starts, to core rank mod cores. Call it first.
inline void pin(int rank) {
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(rank % (cores > 0 ? cores : 1)), &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

class Harness {
 public:
  Harness(const char* path, int rank, int ranks) : rank_(rank), ranks_(ranks) {
    const int fd = ::open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) die(path);
    void* memory = ::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) die("mmap");
    ::close(fd);
    page_ = static_cast<SharedPage*>(memory);
    yields_ = ranks > ::sysconf(_SC_NPROCESSORS_ONLN);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] SharedPage& page() { return *page_; }

  /// Sleeps until the next command: its size in bytes, or -1 to leave.
  std::int64_t next() {
    if (rank_ == 0) {
      char line[128];
      long long bytes = -1;
      if (std::fgets(line, sizeof line, stdin) == nullptr ||
          std::sscanf(line, "run %lld", &bytes) != 1) {
        bytes = -1;
      }
      page_->bytes = bytes;
      page_->commands.fetch_add(1);
      ::syscall(SYS_futex, &page_->commands, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
    } else {
      while (page_->commands.load() == commands_) {
        ::syscall(SYS_futex, &page_->commands, FUTEX_WAIT, commands_, nullptr, nullptr, 0);
      }
    }
    commands_ = page_->commands.load();
    const std::int64_t bytes = page_->bytes;
    barrier();
    return bytes;
  }

  void barrier() {
    const std::uint32_t mine = ++generation_;
    if (page_->arrived.fetch_add(1, std::memory_order_acq_rel) ==
        static_cast<std::uint32_t>(ranks_ - 1)) {
      page_->arrived.store(0, std::memory_order_relaxed);
      page_->generation.store(mine, std::memory_order_release);
      return;
    }
    for (int spins = 0; page_->generation.load(std::memory_order_acquire) != mine; ++spins) {
      relax();
      if (yields_ && spins > 20) ::sched_yield();
    }
  }

  /// Rank 0's value on every rank.
  std::int64_t agree(std::int64_t value) {
    if (rank_ == 0) page_->value = value;
    barrier();
    const std::int64_t agreed = page_->value;
    barrier();
    return agreed;
  }

  /// Nanoseconds that a flag takes from rank 0 to rank 1 or back.
  double flag_latency_ns() {
    barrier();
    ++probes_;
    if (rank_ < 2 && ranks_ > 1) {
      const double ns = bounce();
      if (rank_ == 0) {
        page_->flag_ns = static_cast<float>(ns);
        page_->probes.store(probes_, std::memory_order_release);
      }
    } else if (rank_ == 0) {
      page_->probes.store(probes_, std::memory_order_release);
    }
    // The others must not compete for the two processors meanwhile.
    while (page_->probes.load(std::memory_order_acquire) != probes_) ::usleep(200);
    barrier();
    return static_cast<double>(page_->flag_ns);
  }

  void record(int repetition, double us) {
    page_->times_us[rank_][repetition] = static_cast<float>(us);
  }
  void report_wrong() { page_->wrong.fetch_add(1); }

  /// How many repetitions fit the budget, by what `warm` operations took on rank 0.
  int repetitions(double warm_us, int warm) {
    const double each = std::max(warm_us / warm, 0.02);
    const double fit =
        std::min(std::max(kBudgetUs / each, 3.0), static_cast<double>(kMaxRepetitions));
    return static_cast<int>(agree(static_cast<std::int64_t>(fit)));
  }

  /// Rank 0: prints "cell BYTES MEDIAN P10 P90 REPETITIONS FLAG_BEFORE FLAG_AFTER WRONG".
  void report(std::int64_t bytes, int repetitions, double before_ns, double after_ns) {
    barrier();
    if (rank_ == 0) {
      std::vector<float> most(static_cast<std::size_t>(repetitions));
      for (int i = 0; i < repetitions; ++i) {
        float& m = most[static_cast<std::size_t>(i)];
        for (int r = 0; r < ranks_; ++r) m = std::max(m, page_->times_us[r][i]);
      }
      std::sort(most.begin(), most.end());
      const auto at = [&](std::size_t tenths) {
        return static_cast<double>(most[std::min(most.size() * tenths / 10, most.size() - 1)]);
      };
      std::printf("cell %lld %.4f %.4f %.4f %d %.1f %.1f %u\n", static_cast<long long>(bytes),
                  at(5), at(1), at(9), repetitions, before_ns, after_ns, page_->wrong.load());
      std::fflush(stdout);
      page_->wrong.store(0);
    }
    barrier();
  }

 private:
  double bounce() {
    constexpr std::uint32_t kRounds = 2000;
    double best = 1e9;
    for (int batch = 0; batch < 3; ++batch) {
      const double begin = now_us();
      for (std::uint32_t i = 0; i < kRounds; ++i) {
        ++bounces_;
        if (rank_ == 0) page_->ping.store(bounces_, std::memory_order_release);
        await(rank_ == 0 ? page_->pong : page_->ping, bounces_);
        if (rank_ == 1) page_->pong.store(bounces_, std::memory_order_release);
      }
      best = std::min(best, (now_us() - begin) * 1e3 / kRounds / 2);
    }
    return best;
  }

  static void await(const std::atomic<std::uint32_t>& flag, std::uint32_t value) {
    for (int spins = 1; flag.load(std::memory_order_acquire) != value; ++spins) {
      if (spins % 20000 == 0) ::sched_yield();  // another peer's rank may hold the processor
    }
  }

  SharedPage* page_ = nullptr;
  int rank_;
  int ranks_;
  bool yields_ = false;
  std::uint32_t generation_ = 0;
  std::uint32_t probes_ = 0;
  std::uint32_t bounces_ = 0;
  std::uint32_t commands_ = 0;
};

/// Zeroed floats, every page touched.
class Floats {
 public:
  explicit Floats(std::size_t count) : bytes_(std::max<std::size_t>(count * sizeof(float), 1)) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) die("mmap of a buffer");
    data_ = static_cast<float*>(memory);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { ::munmap(data_, bytes_); }
  [[nodiscard]] float* data() const { return data_; }

 private:
  std::size_t bytes_;
  float* data_ = nullptr;
};

/// Element i of a rank's input: small whole numbers, so that sums are exact in any order.
inline float element(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 131 + (i >> 9) * 3) % 2001) -
         1000.0F;
}

/// Runs cells until told to leave. `all_reduce(in, out, count)` sums floats out of place.
template <class AllReduce>
void serve(Harness& h, AllReduce all_reduce) {
  for (std::int64_t bytes = h.next(); bytes >= 0; bytes = h.next()) {
    const std::size_t count = static_cast<std::size_t>(bytes) / sizeof(float);
    const Floats in(count);
    const Floats out(count);
    for (std::size_t i = 0; i < count; ++i) in.data()[i] = element(h.rank(), i);
    h.barrier();
    all_reduce(in.data(), out.data(), count);
    bool right = true;
    for (std::size_t i = 0; i<count; i += count> 100000 ? 61 : 1) {
      float sum = 0;
      for (int r = 0; r < h.ranks(); ++r) sum += element(r, i);
      right = right && out.data()[i] == sum;
    }
    if (!right) h.report_wrong();
    const double before = h.flag_latency_ns();
    for (int i = 0; i < 2; ++i) all_reduce(in.data(), out.data(), count);
    h.barrier();
    constexpr int kWarm = 3;
    const double begin = now_us();
    for (int i = 0; i < kWarm; ++i) all_reduce(in.data(), out.data(), count);
    const int repetitions = h.repetitions(now_us() - begin, kWarm);
    for (int i = 0; i < std::min(repetitions / 4, 200); ++i)
      all_reduce(in.data(), out.data(), count);
    for (int i = 0; i < repetitions; ++i) {
      h.barrier();
      const double t = now_us();
      all_reduce(in.data(), out.data(), count);
      h.record(i, now_us() - t);
    }
    const double after = h.flag_latency_ns();
    h.report(bytes, repetitions, before, after);
  }
}

}  // namespace peers
