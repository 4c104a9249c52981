#include "transport/shm/gate.h"

#include <algorithm>

namespace topocoll::shm {
namespace {

// The fault word: cause in the low 8 bits (never 0), culprit + 1 in 16, sequence number in 40.
constexpr std::uint64_t kSeqLimit = (std::uint64_t(1) << 40) - 1;

std::uint64_t pack(const Fault& f) {
  return static_cast<std::uint64_t>(f.cause) |
         static_cast<std::uint64_t>(static_cast<std::uint16_t>(f.culprit + 1)) << 8 |
         std::min(f.seq, kSeqLimit) << 24;
}

/// The word may come from a rank gone mad: whatever it says becomes a fault that can be named.
Fault unpack(std::uint64_t word, int ranks) {
  auto cause = static_cast<Cause>(word & 0xff);
  if (cause == Cause::kOk || cause > Cause::kInternal) cause = Cause::kInternal;
  const int culprit = static_cast<int>(word >> 8 & 0xffff) - 1;
  return {cause, culprit < ranks ? culprit : -1, word >> 24};
}

}  // namespace

std::optional<Fault> Gate::fault() const {
  const std::uint64_t word = segment_->header().fault.load(std::memory_order_acquire);
  if (word == 0) return std::nullopt;
  return unpack(word, segment_->ranks());
}

Fault Gate::raise(const Fault& fault) {
  std::uint64_t expected = 0;
  const std::uint64_t mine = pack(fault);
  if (segment_->header().fault.compare_exchange_strong(expected, mine))
    return unpack(mine, segment_->ranks());
  return unpack(expected, segment_->ranks());
}

void Gate::freeze(Os& os) {
  for (int r = 0; r < segment_->ranks(); ++r) {
    segment_->entry(0, r).flag.fetch_or(kFrozen);
    segment_->entry(1, r).flag.fetch_or(kFrozen);
    segment_->block(r).done.fetch_or(kFrozen);
  }
  wake_sleepers(os, *segment_);
}

Progress Gate::progress(int rank) const {
  const std::uint64_t even = segment_->entry(0, rank).flag.load() & kSeqMask;
  const std::uint64_t odd = segment_->entry(1, rank).flag.load() & kSeqMask;
  const std::uint64_t done = segment_->block(rank).done.load() & kSeqMask;
  Progress p;
  p.entered = std::max(even, odd);
  // A rank enters an operation only after it has completed the one before.
  p.completed = std::max(done, p.entered == 0 ? 0 : p.entered - 1);
  return p;
}

std::uint64_t Gate::completed_by_all() const {
  std::uint64_t least = ~std::uint64_t(0);
  for (int r = 0; r < segment_->ranks(); ++r) least = std::min(least, progress(r).completed);
  return least;
}

void wake_sleepers(Os& os, const Segment& segment) {
  for (int r = 0; r < segment.ranks(); ++r) {
    RankBlock& block = segment.block(r);
    if (block.sleeping.load() == 0) continue;
    block.doorbell.fetch_add(1);
    os.futex_wake_all(&block.doorbell);
  }
}

}  // namespace topocoll::shm
