#include "probe/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/thread.h"

namespace topocoll {
namespace {

using shm::Deadline;

constexpr std::uint64_t kPingPongs = 400;
constexpr int kBatches = 3;
/// A turn that takes longer than this was interrupted; the probe then ends with what it has.
constexpr std::chrono::milliseconds kPatience{20};

/// Sizes at which copies are compared, largest first: the largest decides which is used, the others from
/// where on.
constexpr std::array<std::size_t, 6> kCopyBytes{32768, 8192, 4096, 2048, 1024, 512};
constexpr int kCopyRepeats = 9;

/// Cores closer than this share a cache; two-shot then wins for large messages of two ranks, while
/// between distant cores the one-shot exchange does (see docs/performance.md).
constexpr double kNearNanoseconds = 120;

/// The two ends of the measurements. Each writes its own slot and reads the other's, as two ranks do
/// in an operation; turn() is one exchange of flags.
class End {
 public:
  End(Os& os, shm::Segment& segment, std::atomic<bool>& over, int side)
      : os_(os), own_(segment.slot(0, side_slot(segment, side))),
        other_(segment.slot(0, side_slot(segment, 1 - side))),
        mine_(word(segment, side)), theirs_(word(segment, 1 - side)), over_(over) {}

  [[nodiscard]] std::byte* own() const { return own_; }
  [[nodiscard]] const std::byte* other() const { return other_; }

  /// Tells the other end and waits for it; false if the measurement is over.
  bool turn() {
    mine_->store(++turn_, std::memory_order_release);
    const TimePoint start = os_.now();
    for (std::uint32_t i = 1; theirs_->load(std::memory_order_acquire) < turn_; ++i) {
      if (over_.load(std::memory_order_relaxed)) return false;
      shm::relax();
      if (i % 1024 != 0) continue;
      if (os_.now() - start > kPatience) {
        over_.store(true);
        return false;
      }
      os_.yield();  // the other end may be waiting for this very core, before it is pinned to its own
    }
    return true;
  }

 private:
  static int side_slot(const shm::Segment& segment, int side) { return segment.ranks() > side ? side : 0; }
  static std::atomic<std::uint64_t>* word(shm::Segment& segment, int side) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(segment.slot(1, side_slot(segment, side)));
  }

  Os& os_;
  std::byte* own_;
  std::byte* other_;
  std::atomic<std::uint64_t>* mine_;
  std::atomic<std::uint64_t>* theirs_;
  std::atomic<bool>& over_;
  std::uint64_t turn_ = 0;
};

double nanoseconds(Os& os, TimePoint since) { return static_cast<double>((os.now() - since).count()); }

/// What one end measured. Both ends measure the same; the slower one counts.
struct Measured {
  double flag_ns = 0;  ///< 0: not measured
  /// Median time of write, turn, read, by size and candidate; 0: not measured.
  std::array<std::array<double, 8>, kCopyBytes.size()> copy_ns{};
};

void measure_flag(Os& os, End& end, Measured& m) {
  double best = std::numeric_limits<double>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    const TimePoint start = os.now();
    for (std::uint64_t i = 0; i < kPingPongs; ++i) {
      if (!end.turn()) return;
    }
    best = std::min(best, nanoseconds(os, start) / static_cast<double>(kPingPongs));
  }
  m.flag_ns = best;
}

void measure_copies(Os& os, End& end, std::span<const CopyCandidate> copies, Measured& m) {
  std::vector<std::byte> buffer(kCopyBytes.front());
  const std::size_t candidates = std::min(copies.size(), m.copy_ns.front().size());
  for (std::size_t s = 0; s < kCopyBytes.size(); ++s) {
    std::array<std::array<double, kCopyRepeats>, 8> times{};
    for (std::size_t repeat = 0; repeat < kCopyRepeats; ++repeat) {
      for (std::size_t k = 0; k < candidates; ++k) {
        if (!end.turn()) return;
        const TimePoint start = os.now();
        copies[k].copy(end.own() + 64, buffer.data(), kCopyBytes[s]);
        if (!end.turn()) return;
        std::memcpy(buffer.data(), end.other() + 64, kCopyBytes[s]);
        if (!end.turn()) return;
        times[k][repeat] = nanoseconds(os, start);
      }
    }
    for (std::size_t k = 0; k < candidates; ++k) {
      std::nth_element(times[k].begin(), times[k].begin() + kCopyRepeats / 2, times[k].end());
      m.copy_ns[s][k] = times[k][kCopyRepeats / 2];
    }
  }
}

/// Both ends on two threads of their own, so that the caller's thread keeps its CPUs.
Measured measure(Os& os, shm::Segment& segment, const TuningRequest& request) {
  std::atomic<bool> over{false};
  std::array<Measured, 2> measured;
  std::vector<std::thread> threads;
  for (int side = 0; side < 2; ++side) {
    const int cpu = side == 0 ? request.cpus.front() : request.cpus.back();
    auto thread = start_thread("topocoll-probe", [&, side, cpu] {
      End end(os, segment, over, side);
      if (!os.pin_thread(cpu)) over.store(true);
      Measured& mine = measured[static_cast<std::size_t>(side)];
      if (!end.turn()) return;  // both are awake
      measure_flag(os, end, mine);
      if (request.copies.size() > 1) measure_copies(os, end, request.copies, mine);
    });
    if (!thread.ok()) {
      over.store(true);
      break;
    }
    threads.push_back(std::move(*thread));
  }
  for (std::thread& t : threads) t.join();
  for (int r = 0; r < segment.ranks() && r < 2; ++r) {
    std::memset(segment.slot(1, r), 0, sizeof(std::uint64_t));
  }
  return measured[0];
}

void choose_copy(const Measured& m, std::span<const CopyCandidate> copies, shm::Tuning& t) {
  const std::size_t candidates = std::min(copies.size(), m.copy_ns.front().size());
  const auto& large = m.copy_ns.front();
  std::size_t best = 0;
  for (std::size_t k = 1; k < candidates; ++k) {
    if (large[k] > 0 && large[k] < large[best]) best = k;
  }
  t.slot_copy = copies[best].id;
  // Downwards as long as it beats the default, which the smaller ones use.
  t.small_copy_bytes = kCopyBytes.front();
  for (std::size_t s = 0; s < kCopyBytes.size(); ++s) {
    if (m.copy_ns[s][best] == 0 || m.copy_ns[s][best] >= m.copy_ns[s][0]) break;
    t.small_copy_bytes = kCopyBytes[s];
  }
}

/// Iterations of a spinning wait that last about `time`.
std::uint32_t spins_for(Os& os, std::chrono::microseconds time) {
  constexpr int kSample = 2000;
  const TimePoint start = os.now();
  for (int i = 0; i < kSample; ++i) shm::relax();
  const double each = std::max(1.0, nanoseconds(os, start) / kSample);
  return static_cast<std::uint32_t>(static_cast<double>(time.count()) * 1000.0 / each);
}

/// Outputs that will not stay in the last-level cache anyway are written around it.
std::uint64_t stream_threshold() {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return cache > 0 ? static_cast<std::uint64_t>(cache) / 4 : std::uint64_t(8) << 20;
}

shm::Tuning defaults(Os& os, const shm::Segment& segment, const TuningRequest& request) {
  const int ranks = segment.ranks();
  shm::Tuning t;
  t.meet = ranks > 2 && request.oversubscribed ? 1 : 0;
  // Where one rank reduces for all, the others' cores idle meanwhile: only short work is worth that.
  const std::size_t eager_kib = t.meet != 0 ? 16 : (ranks <= 2 ? 32 : 64);
  t.eager_bytes = std::min<std::uint64_t>(request.eager_bytes.value_or(eager_kib << 10),
                                          segment.layout().eager_capacity);
  t.stream_bytes = stream_threshold();
  t.window_bytes = std::uint64_t(ranks <= 2 ? 1024 : 512) << 10;
  t.exchange_bytes = std::uint64_t(64) << 10;
  t.two_shot_bytes = ranks <= 2 ? std::numeric_limits<std::uint64_t>::max() : 0;
  t.small_copy_bytes = 4096;
  t.all_reduce = request.all_reduce;
  t.slot_copy = request.copies.empty() ? 0 : request.copies.front().id;
  // Ranks that outnumber the cores must hand over at once; otherwise a wait is short or long.
  using std::chrono::microseconds;
  t.spin = request.spin ? spins_for(os, *request.spin)
                        : (request.oversubscribed ? 10 : spins_for(os, microseconds(100)));
  t.yields = request.oversubscribed ? 500 : 100;
  return t;
}

}  // namespace

Result<shm::Tuning> tune(Os& os, shm::Segment& segment, int rank, const TuningRequest& request,
                         Deadline& deadline) {
  shm::SegmentHeader& header = segment.header();
  shm::Tuning t = defaults(os, segment, request);
  if (rank == 0) {
    if (request.probe && segment.ranks() > 1 && request.cpus.size() > 1) {
      const Measured m = measure(os, segment, request);
      t.flag_latency_ns = m.flag_ns;
      if (request.copies.size() > 1 && m.copy_ns.front().front() > 0) choose_copy(m, request.copies, t);
      const bool near = m.flag_ns > 0 && m.flag_ns < kNearNanoseconds;
      if (segment.ranks() == 2 && near) t.two_shot_bytes = std::uint64_t(512) << 10;
    }
    header.tuning = t;
    header.tuning_ready.store(1);
    shm::ring(os, segment);
    return t;
  }
  const shm::Waiter waiter(os, segment, rank, {.spin = 100, .yields = 1000});
  const auto ready = [&header] { return header.tuning_ready.load(std::memory_order_acquire) == 1; };
  const shm::WaitResult w = waiter.until(0, deadline, ready);
  switch (w.wake) {
    case shm::Wake::kReady: return header.tuning;
    case shm::Wake::kDead:
      return Status::operation(Cause::kPeerDied, {w.rank}, header.epoch, 0, "",
                               fmt::format("rank {} died", w.rank));
    case shm::Wake::kTimeout:
      return Status::operation(Cause::kTimeout, {0}, header.epoch, 0, "",
                               fmt::format("rank {} got no word from rank 0 after they had met", rank));
    default: return Status(Cause::kAborted, "the group ended before it began");
  }
}

std::string describe(const shm::Tuning& t, std::span<const CopyCandidate> copies) {
  std::string_view copy = "memcpy";
  for (const CopyCandidate& c : copies) {
    if (c.id == t.slot_copy) copy = c.name;
  }
  std::string text = t.flag_latency_ns > 0
                         ? fmt::format("flag {:.0f} ns ({})", t.flag_latency_ns,
                                       t.flag_latency_ns < kNearNanoseconds ? "near" : "far")
                         : std::string("flag not measured");
  text += fmt::format(", slots by {} from {} B, eager to {} B, windows of {} KiB, spin {}", copy,
                      t.small_copy_bytes, t.eager_bytes, t.window_bytes >> 10, t.spin);
  if (t.meet != 0) text += ", last arriver reduces";
  return text;
}

}  // namespace topocoll
