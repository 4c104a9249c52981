#include "collectives/cpu/pipeline.h"

#include <algorithm>
#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace topocoll {
namespace {

/// Reductions that also fill a value work in blocks that stay in the first-level cache, so that the
/// second write does not read memory again.
constexpr std::size_t kBlockBytes = 8192;

/// More slots than this only spread the ring over more cache.
constexpr std::size_t kMaxSlots = 32;

/// One window of a rank in the ring.
std::size_t slot_bytes(const Program& program, std::size_t cell_bytes) {
  return std::max<std::size_t>(1, static_cast<std::size_t>(program.values) * cell_bytes);
}

class Pipeline {
 public:
  Pipeline(const Context& context, const PipelineCall& call, shm::Deadline& deadline)
      : c_(context), call_(call), program_(*call.program), deadline_(deadline),
        copy_to_slot_(copy_function(call.slot_copy)), phases_(static_cast<std::uint64_t>(program_.phases)),
        grain_(grain_of(call.element)) {
    const std::size_t cell_count = View::stripe(call.window_count, call.chunks, grain_);
    const std::size_t cell = (cell_count * call.element + 63) / 64 * 64;
    ring_ = ring_geometry(program_, cell, c_.segment->ring_share(), c_.tuning.ring_bytes);
    const std::uint64_t slot = slot_bytes(program_, cell);
    if (ring_.goes_on) first_ = (*call.passed + slot - 1) / slot;
    *call.passed = (first_ + call.windows) * slot;
  }

  ExecResult run() {
    const std::uint64_t rounds = call_.windows + phases_ - 1;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      for (std::uint64_t p = 0; p < phases_; ++p) {
        if (p > round || round - p >= call_.windows) continue;
        const Phase& phase = program_.own[p];
        if (phase.actions.empty()) continue;
        if (ExecResult r = perform(phase, p, round); !r.ok()) return r;
        if (p + 1 < phases_) publish(tick(round, p));
      }
      publish(tick(round, phases_ - 1));
    }
#if defined(__x86_64__)
    if (call_.stream_output) _mm_sfence();
#endif
    return {};
  }

 private:
  [[nodiscard]] std::uint64_t tick(std::uint64_t round, std::uint64_t phase) const {
    return call_.base + round * phases_ + phase + 1;
  }

  void publish(std::uint64_t tick) {
    c_.segment->block(c_.rank).tick.store(tick);
    shm::ring(*c_.os, *c_.segment);
  }

  ExecResult await(int rank, std::uint64_t tick) {
    const std::atomic<std::uint64_t>& theirs = c_.segment->block(rank).tick;
    if (theirs.load(std::memory_order_acquire) >= tick) return {};
    shm::WaitResult w = c_.waiter.until(call_.seq, deadline_, [&theirs, tick] {
      return theirs.load(std::memory_order_acquire) >= tick;
    });
    if (w.wake == shm::Wake::kTimeout) w.rank = laggard(rank);
    return ExecResult::from(w);
  }

  /// Whom all others wait for, directly or through `awaited`: of the other ranks, the least advanced.
  [[nodiscard]] int laggard(int awaited) const {
    int last = awaited;
    for (int r = 0; r < c_.ranks; ++r) {
      if (r != c_.rank && ticks_of(r) < ticks_of(last)) last = r;
    }
    return last;
  }
  [[nodiscard]] std::uint64_t ticks_of(int rank) const {
    return c_.segment->block(rank).tick.load(std::memory_order_acquire);
  }

  /// All ranks are done with the window that was in the slot of `window` before.
  ExecResult await_slot(std::uint64_t window) {
    if (window < ring_.slots) return {};
    const std::uint64_t last = window - ring_.slots + phases_ - 1;
    for (int k = 1; k < c_.ranks; ++k) {
      const int peer = (c_.rank + k) % c_.ranks;
      if (ExecResult r = await(peer, tick(last, phases_ - 1)); !r.ok()) return r;
    }
    return {};
  }

  ExecResult perform(const Phase& phase, std::uint64_t p, std::uint64_t round) {
    const std::uint64_t window = round - p;
    for (const Need& need : phase.needs) {
      const auto their_phase = static_cast<std::uint64_t>(need.phase);
      if (ExecResult r = await(need.rank, tick(window + their_phase, their_phase)); !r.ok()) return r;
    }
    bool slot_is_free = false;
    for (const Action& action : phase.actions) {
      if (action.value >= 0 && !slot_is_free) {
        if (ExecResult r = await_slot(window); !r.ok()) return r;
        slot_is_free = true;
      }
      apply(action, window);
    }
    return {};
  }

  [[nodiscard]] std::byte* cell(int rank, int value, std::uint64_t window) const {
    const std::size_t place = static_cast<std::size_t>((first_ + window) % ring_.places);
    return c_.segment->ring(rank) +
           (place * static_cast<std::size_t>(program_.values) + static_cast<std::size_t>(value)) *
               ring_.cell_bytes;
  }

  [[nodiscard]] Piece chunk(const ChunkRef& ref, std::uint64_t window) const {
    const View& view = ref.buffer == BufferId::kInput ? call_.input : call_.output;
    return view.piece(ref.chunk, call_.chunks, static_cast<std::size_t>(window), call_.window_count,
                      grain_, call_.element);
  }

  [[nodiscard]] const std::byte* source(const Operand& s, std::uint64_t window) const {
    return s.is_value ? cell(s.rank, s.value, window) : chunk(s.chunk, window).data;
  }

  /// Elements that an action moves: its target's, or those of the caller's chunk that it reads.
  [[nodiscard]] std::size_t count_of(const Action& a, std::uint64_t window) const {
    if (a.has_target) return chunk(a.target, window).count;
    for (const Operand& s : a.sources) {
      if (!s.is_value) return chunk(s.chunk, window).count;
    }
    // A value made of values alone (forwarding, partial sums) belongs to a whole cell.
    return ring_.cell_bytes / call_.element;
  }

  void apply(const Action& a, std::uint64_t window) {
    const std::size_t count = count_of(a, window);
    if (count == 0) return;
    switch (a.kind) {
      case Action::Kind::kPut:
        return copy_to_slot_(cell(c_.rank, a.value, window), source(a.sources[0], window),
                               count * call_.element);
      case Action::Kind::kCopy: {
        std::byte* target = chunk(a.target, window).data;
        const std::byte* from = source(a.sources[0], window);
        if (target == from) return;
        const CopyKind kind = call_.stream_output ? CopyKind::kStream : CopyKind::kMemcpy;
        return copy_function(kind)(target, from, count * call_.element);
      }
      case Action::Kind::kReduce: return reduce(a, window, count);
    }
  }

  void reduce(const Action& a, std::uint64_t window, std::size_t count) {
    std::array<const std::byte*, shm::kMaxRanks> from;
    std::array<const void*, shm::kMaxRanks> sources;
    std::array<double, shm::kMaxRanks> factors;
    const std::size_t n = a.sources.size();
    for (std::size_t k = 0; k < n; ++k) {
      from[k] = source(a.sources[k], window);
      // Partial results have been multiplied already.
      const int contributor = a.sources[k].contributor;
      factors[k] = contributor < 0 ? 1.0 : call_.factors[contributor];
    }
    std::byte* value = a.value >= 0 ? cell(c_.rank, a.value, window) : nullptr;
    std::byte* target = a.has_target ? chunk(a.target, window).data : value;
    alignas(64) std::array<std::byte, kBlockBytes> block;
    const bool both = a.has_target && value != nullptr;
    const std::size_t step = both ? kBlockBytes / call_.element : count;
    for (std::size_t at = 0; at < count; at += step) {
      const std::size_t now = std::min(step, count - at);
      const std::size_t offset = at * call_.element;
      for (std::size_t k = 0; k < n; ++k) sources[k] = from[k] + offset;
      ReduceCall r;
      r.target = target + offset;
      r.sources = sources.data();
      r.num_sources = static_cast<int>(n);
      r.count = now;
      r.factors = factors.data();
      r.divisor = call_.divisor;
      r.stream_target = call_.stream_output && a.has_target;
      if (both && r.stream_target) r.mirror = block.data();
      (a.completes ? call_.reduce : call_.reduce_part)(r);
      if (both) {
        copy_to_slot_(value + offset, r.mirror != nullptr ? r.mirror : r.target, now * call_.element);
      }
    }
  }

  const Context& c_;
  const PipelineCall& call_;
  const Program& program_;
  shm::Deadline& deadline_;
  CopyFunction copy_to_slot_;
  std::uint64_t phases_;
  std::size_t grain_;
  RingGeometry ring_;
  std::uint64_t first_ = 0;  ///< the first window's place, before going round
};

}  // namespace

RingGeometry ring_geometry(const Program& program, std::size_t cell_bytes, std::size_t share,
                           std::size_t round) {
  const std::size_t slot = slot_bytes(program, cell_bytes);
  const auto phases = static_cast<std::size_t>(program.phases);
  const std::size_t slots = std::min(share / slot, std::max(kMaxSlots, phases));
  if (slots < phases) return {cell_bytes};
  const std::size_t places = std::min(share, round) / slot;
  return {cell_bytes, slots, std::max(slots, places), places >= slots};
}

ExecResult run_pipeline(const Context& context, const PipelineCall& call, shm::Deadline& deadline) {
  return Pipeline(context, call, deadline).run();
}

}  // namespace topocoll
