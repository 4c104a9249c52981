#include "probe/cpu_link.h"

#include <atomic>
#include <cstring>
#include <memory>

#include "probe/pair.h"
#include "probe/statistics.h"

namespace topocoll {
namespace {

constexpr int kTurns = 100;  ///< of one sample: much longer than reading the clock takes
/// Until a sleeping core runs at full speed again.
constexpr std::chrono::milliseconds kWakeTime{5};
constexpr std::chrono::milliseconds kPatience{200};

/// What both ends see. Words and parts lie 128 bytes apart: prefetchers fetch lines in pairs.
struct Shared {
  alignas(128) PairEnd::Word first = 0;
  alignas(128) PairEnd::Word second = 0;
  /// Side 0 writes it before a turn, side 1 reads it after. By parity of the decisions: side 0 may
  /// write the next one while side 1 reads this.
  alignas(128) std::array<std::atomic<bool>, 2> more{};
  alignas(128) std::atomic<double> copied_ns{0};
  std::array<std::unique_ptr<std::byte[]>, 2> buffers;         ///< of each writer
  std::array<std::unique_ptr<std::byte[]>, 2> private_copies;  ///< of each side
};

class Measurement {
 public:
  Measurement(Os& os, Shared& shared, StopRule rule, CpuLink& result)
      : os_(os), shared_(shared), rule_(rule), result_(result) {}

  /// The same steps on both sides; side 0 decides and keeps the results.
  void run(PairEnd& end, int side) {
    std::byte* const private_copy = shared_.private_copies[static_cast<std::size_t>(side)].get();
    wake(end, side);
    result_of(side, latency(end, side), result_.latency_ns);
    for (const int writer : {0, 1}) {
      const Figure figure = copies(end, side, writer, private_copy);
      result_of(side, figure, result_.bandwidth_gbps[static_cast<std::size_t>(writer)]);
    }
  }

 private:
  static void result_of(int side, const Figure& figure, Figure& result) {
    if (side == 0) result = figure;
  }

  /// Whether there is another round, by side 0's word.
  bool again(PairEnd& end, int side, bool more) {
    int& decision = decisions_[static_cast<std::size_t>(side)];
    std::atomic<bool>& word = shared_.more[static_cast<std::size_t>(decision++ & 1)];
    if (side == 0) word.store(more, std::memory_order_relaxed);
    return end.turn() && word.load(std::memory_order_relaxed);
  }

  void wake(PairEnd& end, int side) {
    const TimePoint start = os_.now();
    while (again(end, side, os_.now() - start < kWakeTime)) {
      if (!end.time_turns(kTurns)) return;
    }
  }

  Figure latency(PairEnd& end, int side) {
    Sampler sampler(os_, rule_);
    while (again(end, side, !sampler.done())) {
      const auto each = end.time_turns(kTurns);
      if (!each) break;
      sampler.add(*each);
    }
    return sampler.take(Better::kLower);
  }

  Figure copies(PairEnd& end, int side, int writer, std::byte* private_copy) {
    Sampler sampler(os_, rule_);
    std::byte* const buffer = shared_.buffers[static_cast<std::size_t>(writer)].get();
    for (int round = 0; again(end, side, !sampler.done()); ++round) {
      if (side == writer) std::memset(buffer, round & 0xff, kLinkBytes);
      if (!end.turn()) break;
      if (side != writer) {
        const TimePoint start = os_.now();
        std::memcpy(private_copy, buffer, kLinkBytes);
        asm volatile("" : : "r"(private_copy) : "memory");  // nobody reads it, and yet it counts
        shared_.copied_ns.store(nanoseconds_since(os_, start), std::memory_order_relaxed);
      }
      if (!end.turn()) break;
      // The first round fetches pages.
      if (round > 0) sampler.add(static_cast<double>(kLinkBytes) / shared_.copied_ns.load());
    }
    return sampler.take(Better::kHigher);
  }

  Os& os_;
  Shared& shared_;
  const StopRule rule_;
  CpuLink& result_;
  std::array<int, 2> decisions_{};  ///< of each side
};

}  // namespace

Result<CpuLink> measure_cpu_link(Os& os, std::array<int, 2> cpus, std::chrono::milliseconds time) {
  const auto shared = std::make_unique<Shared>();
  // Here, because a thread could not say that there is no memory.
  for (auto* buffers : {&shared->buffers, &shared->private_copies}) {
    for (auto& buffer : *buffers) buffer = std::make_unique_for_overwrite<std::byte[]>(kLinkBytes);
  }
  StopRule rule;
  rule.time = time / 3;
  CpuLink link;
  Measurement measurement(os, *shared, rule, link);
  const PairRequest request{cpus, {&shared->first, &shared->second}, kPatience};
  Status status =
      run_pair(os, request, [&](PairEnd& end, int side) { measurement.run(end, side); });
  if (!status.ok()) return status;
  return link;
}

}  // namespace topocoll
