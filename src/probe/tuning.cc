#include "probe/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace topocoll {
namespace {

using shm::Deadline;

constexpr int kPingPongs = 400;
constexpr int kBatches = 3;
/// The partner must answer within this, or the probe is not worth its wait.
constexpr std::chrono::milliseconds kPartnerPatience{20};

/// A piece of the size that the pipeline moves at a time, and small enough to lie in a slot.
constexpr std::size_t kCopyBytes = std::size_t(32) << 10;
constexpr int kCopyRepeats = 15;

/// Cores closer than this share a cache; two-shot then wins for large messages of two ranks, while
/// between distant cores the one-shot exchange does (see docs/performance.md).
constexpr double kNearNanoseconds = 120;

/// Runs the two ends of the measurements: rank 0 leads, rank 1 answers. Both count turns in words of
/// their own slots, so that no other rank is touched.
class Partner {
 public:
  Partner(Os& os, shm::Segment& segment, int rank)
      : os_(os), mine_(word(segment, rank)), theirs_(word(segment, 1 - rank)), rank_(rank) {}

  /// One exchange of flags; false if the other end does not answer in time.
  bool turn() {
    ++turn_;
    if (rank_ == 0) mine_->store(turn_, std::memory_order_release);
    if (!await()) return false;
    if (rank_ != 0) mine_->store(turn_, std::memory_order_release);
    return true;
  }
  void clear() { mine_->store(0, std::memory_order_release); }

 private:
  static std::atomic<std::uint64_t>* word(shm::Segment& segment, int rank) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(segment.slot(1, rank));
  }
  bool await() {
    std::optional<TimePoint> limit;
    for (std::uint32_t i = 1;; ++i) {
      // Rank 1 ends in step with rank 0 even if that gave up: it then reads the maximum.
      const std::uint64_t seen = theirs_->load(std::memory_order_acquire);
      if (seen == kGaveUp) return false;
      if (seen >= turn_) return true;
      shm::relax();
      if (i % 4096 != 0) continue;
      if (!limit) limit = os_.now() + kPartnerPatience;
      if (os_.now() >= *limit) {
        mine_->store(kGaveUp, std::memory_order_release);
        return false;
      }
      os_.yield();
    }
  }

  static constexpr std::uint64_t kGaveUp = std::numeric_limits<std::uint64_t>::max();

  Os& os_;
  std::atomic<std::uint64_t>* mine_;
  std::atomic<std::uint64_t>* theirs_;
  int rank_;
  std::uint64_t turn_ = 0;
};

double nanoseconds(Os& os, TimePoint since) {
  return static_cast<double>((os.now() - since).count());
}

/// One-way flag latency; 0 if it could not be measured.
double measure_flag(Os& os, Partner& partner) {
  double best = std::numeric_limits<double>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    const TimePoint start = os.now();
    for (int i = 0; i < kPingPongs; ++i) {
      if (!partner.turn()) return 0;
    }
    best = std::min(best, nanoseconds(os, start) / (2.0 * kPingPongs));
  }
  return best;
}

/// Rank 0 writes into its slot what rank 1 has just read, as every operation does. Returns the index of
/// the fastest candidate, or -1.
int measure_copies(Os& os, shm::Segment& segment, int rank, Partner& partner,
                   std::span<const CopyCandidate> copies) {
  std::byte* slot = segment.slot(0, 0);
  std::vector<std::byte> own(kCopyBytes);
  std::vector<std::vector<double>> times(copies.size());
  for (int repeat = 0; repeat < kCopyRepeats; ++repeat) {
    for (std::size_t k = 0; k < copies.size(); ++k) {
      if (!partner.turn()) return -1;
      if (rank == 0) {
        const TimePoint start = os.now();
        copies[k].copy(slot, own.data(), own.size());
        times[k].push_back(nanoseconds(os, start));
      }
      if (!partner.turn()) return -1;
      if (rank == 1) std::copy_n(slot, own.size(), own.data());
    }
  }
  if (rank != 0) return -1;
  int best = -1;
  double least = std::numeric_limits<double>::max();
  for (std::size_t k = 0; k < copies.size(); ++k) {
    std::nth_element(times[k].begin(), times[k].begin() + kCopyRepeats / 2, times[k].end());
    if (times[k][kCopyRepeats / 2] < least) {
      least = times[k][kCopyRepeats / 2];
      best = static_cast<int>(k);
    }
  }
  return best;
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
  t.eager_bytes = std::min<std::uint64_t>(
      request.eager_bytes.value_or(ranks <= 2 ? std::size_t(32) << 10 : std::size_t(64) << 10),
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

void measure(Os& os, shm::Segment& segment, int rank, const TuningRequest& request, shm::Tuning& t) {
  Partner partner(os, segment, rank);
  t.flag_latency_ns = measure_flag(os, partner);
  if (t.flag_latency_ns > 0 && request.copies.size() > 1) {
    const int best = measure_copies(os, segment, rank, partner, request.copies);
    if (best >= 0) t.slot_copy = request.copies[static_cast<std::size_t>(best)].id;
  }
  if (segment.ranks() == 2 && t.flag_latency_ns > 0 && t.flag_latency_ns < kNearNanoseconds) {
    t.two_shot_bytes = std::uint64_t(512) << 10;
  }
}

}  // namespace

Result<shm::Tuning> tune(Os& os, shm::Segment& segment, int rank, const TuningRequest& request,
                         Deadline& deadline) {
  shm::SegmentHeader& header = segment.header();
  shm::Tuning t = defaults(os, segment, request);
  const bool probing = request.probe && !request.oversubscribed && segment.ranks() > 1;
  if (probing && rank < 2) measure(os, segment, rank, request, t);
  if (rank == 0) {
    header.tuning = t;
    header.tuning_ready.store(1);
    shm::ring(os, segment);
    return t;
  }
  const shm::Waiter waiter(os, segment, rank, {.spin = 100, .yields = 1000});
  const auto ready = [&header] { return header.tuning_ready.load(std::memory_order_acquire) == 1; };
  if (!waiter.until(0, deadline, ready).ready()) {
    return Status(Cause::kTimeout, fmt::format("rank {} got no word from rank 0 after they had met", rank));
  }
  return header.tuning;
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
  text += fmt::format(", slots by {}, eager to {} B, windows of {} KiB, spin {}", copy, t.eager_bytes,
                      t.window_bytes >> 10, t.spin);
  if (t.meet != 0) text += ", last arriver reduces";
  return text;
}

}  // namespace topocoll
