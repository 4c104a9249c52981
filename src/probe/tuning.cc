#include "probe/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "probe/last_level_cache.h"
#include "probe/pair.h"

namespace topocoll {
namespace {

using shm::Deadline;

constexpr int kPingPongs = 400;
constexpr int kBatches = 3;
/// After a longer interruption the probe ends with what it has.
constexpr std::chrono::milliseconds kPatience{20};

/// Sizes at which copies are compared, largest first: the largest decides which is used, the others from
/// where on.
constexpr std::array<std::size_t, 6> kCopyBytes{32768, 8192, 4096, 2048, 1024, 512};
constexpr int kCopyRepeats = 9;

/// Cores closer than this share a cache; two_shot then wins for large messages of two ranks, while
/// between distant cores one_shot does (see docs/transports.md).
constexpr double kNearNanoseconds = 120;
/// Slots are few, so a peer that shares the cache has their lines at hand, and writing them again waits for
/// it: the ring, which goes round, serves two such ranks better from here. Far ranks lose 15 % by it.
constexpr std::uint64_t kNearRingBytes = 8192;

/// The slots in which the two ends measure. Each writes its own and reads the other's, as two ranks
/// do in an operation.
std::byte* slot_of(const shm::Segment& segment, int parity, int side) {
  return segment.slot(parity, segment.ranks() > side ? side : 0);
}

PairEnd::Word* word_of(const shm::Segment& segment, int side) {
  return reinterpret_cast<PairEnd::Word*>(slot_of(segment, 1, side));
}

/// What one end measured. Both ends measure the same; the slower one counts.
struct Measured {
  double flag_ns = 0;  ///< 0: not measured
  /// Median time of write, turn, read, by size and candidate; 0: not measured.
  std::array<std::array<double, 8>, kCopyBytes.size()> copy_ns{};
};

void measure_flag(PairEnd& end, Measured& m) {
  double best = std::numeric_limits<double>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto each = end.time_turns(kPingPongs);
    if (!each) return;
    best = std::min(best, *each);
  }
  m.flag_ns = best;
}

void measure_copies(Os& os, PairEnd& end, std::byte* own, const std::byte* other,
                    std::span<const CopyCandidate> copies, Measured& m) {
  std::vector<std::byte> buffer(kCopyBytes.front());
  const std::size_t candidates = std::min(copies.size(), m.copy_ns.front().size());
  for (std::size_t s = 0; s < kCopyBytes.size(); ++s) {
    std::array<std::array<double, kCopyRepeats>, 8> times{};
    for (std::size_t repeat = 0; repeat < kCopyRepeats; ++repeat) {
      for (std::size_t k = 0; k < candidates; ++k) {
        if (!end.turn()) return;
        const TimePoint start = os.now();
        copies[k].copy(own + 64, buffer.data(), kCopyBytes[s]);
        if (!end.turn()) return;
        std::memcpy(buffer.data(), other + 64, kCopyBytes[s]);
        if (!end.turn()) return;
        times[k][repeat] = nanoseconds_since(os, start);
      }
    }
    for (std::size_t k = 0; k < candidates; ++k) {
      std::nth_element(times[k].begin(), times[k].begin() + kCopyRepeats / 2, times[k].end());
      m.copy_ns[s][k] = times[k][kCopyRepeats / 2];
    }
  }
}

Measured measure(Os& os, shm::Segment& segment, const TuningRequest& request) {
  std::array<Measured, 2> measured;
  const PairRequest pair{{request.cpus.front(), request.cpus.back()},
                         {word_of(segment, 0), word_of(segment, 1)},
                         kPatience};
  // What has been measured before a failure counts.
  static_cast<void>(run_pair(os, pair, [&](PairEnd& end, int side) {
    Measured& mine = measured[static_cast<std::size_t>(side)];
    measure_flag(end, mine);
    if (request.copies.size() < 2) return;
    measure_copies(os, end, slot_of(segment, 0, side), slot_of(segment, 0, 1 - side),
                   request.copies, mine);
  }));
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
  const double each = std::max(1.0, nanoseconds_since(os, start) / kSample);
  return static_cast<std::uint32_t>(static_cast<double>(time.count()) * 1000.0 / each);
}

shm::Tuning defaults(Os& os, const shm::Segment& segment, const TuningRequest& request) {
  const int ranks = segment.ranks();
  shm::Tuning t;
  t.meet = ranks > 2 && request.oversubscribed ? 1 : 0;
  // Where one rank reduces for all, the others' cores idle meanwhile: only short work is worth that.
  const std::size_t eager_kib = t.meet != 0 ? 16 : (ranks <= 2 ? 32 : 64);
  t.eager_bytes = std::min<std::uint64_t>(request.eager_bytes.value_or(eager_kib << 10),
                                          segment.layout().eager_capacity);
  // Two ranks may learn otherwise, unless the user has said what goes into slots.
  const bool free = ranks == 2 && !request.oversubscribed && !request.eager_bytes;
  t.ring_from_bytes = free ? t.eager_bytes + 1 : 0;
  t.stream_bytes =
      uncached_bytes(last_level_cache(request.cpus), static_cast<int>(request.cpus.size()), ranks);
  // Ranks that share a core have each other's lines at hand, and gain by using few of them.
  t.ring_bytes = request.oversubscribed ? 0 : t.stream_bytes;
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
      if (segment.ranks() == 2 && near) {
        t.two_shot_bytes = std::uint64_t(512) << 10;
        if (t.ring_from_bytes != 0) t.ring_from_bytes = kNearRingBytes;
      }
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
  const std::uint64_t eager =
      t.ring_from_bytes != 0 ? std::min(t.eager_bytes, t.ring_from_bytes - 1) : t.eager_bytes;
  text += fmt::format(", slots by {} from {} B, eager to {} B, windows of {} KiB, {} spins", copy,
                      t.small_copy_bytes, eager, t.window_bytes >> 10, t.spin);
  if (t.meet != 0) text += ", last arriver reduces";
  return text;
}

}  // namespace topocoll
