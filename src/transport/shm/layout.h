// What lies in a group's shared segment, and where.
//
//   SegmentHeader | RankBlock[n] | MeetingBlock | ChannelControl[n(n-1)] | slots[2][n] | results[2]
//   | channel buffers | ring            (the second line is committed when it is first used)
//
// Everything is written by ranks of one build (the build id is compared before a segment is shared), so
// the layout needs no versioning beyond that.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/os.h"
#include "topocoll/communicator.h"
#include "topocoll/types.h"

namespace topocoll::shm {

inline constexpr int kMaxRanks = kMaxRanksPerHost;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::uint64_t kMagic = 0x6c6c6f636f706f74;  // "topocoll"

// Two cache lines: x86's spatial prefetcher pulls lines in pairs.
inline constexpr std::size_t kLinePair = 128;

/// What a rank is about to do. Ranks of one group compare these before any output is written.
struct Descriptor {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DataType type = DataType::kU8;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t reserved = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t counts_hash = 0;  ///< of per-rank counts that all ranks know; 0 if they are equal
  double factor = 1.0;            ///< premul_sum: this rank's own; not compared
};
static_assert(sizeof(Descriptor) == 32);

/// A rank's announcement of an operation, with small payloads beside the flag so that one cache line
/// carries all of it. The flag holds the sequence number and the bits below, and is only ever
/// advanced by compare-exchange: that is what lets a fault freeze it (see gate.h).
struct alignas(64) EntryLine {
  std::atomic<std::uint64_t> flag;
  Descriptor descriptor;
  std::array<std::byte, 24> payload;
};
static_assert(sizeof(EntryLine) == 64);
inline constexpr std::size_t kInlineBytes = sizeof(EntryLine::payload);

inline constexpr std::uint64_t kFrozen = std::uint64_t(1) << 63;
inline constexpr std::uint64_t kEager = std::uint64_t(1) << 62;   ///< the payload is in the slot
inline constexpr std::uint64_t kCounts = std::uint64_t(1) << 61;  ///< per-peer counts lead the slot
inline constexpr std::uint64_t kTwoShot = std::uint64_t(1) << 60; ///< rank 0's: which plan an all_reduce runs
inline constexpr std::uint64_t kSeqMask = (std::uint64_t(1) << 56) - 1;

enum class RankState : std::uint32_t { kAbsent = 0, kJoined = 1, kLeft = 2 };

struct RankBlock {
  /// Held by a thread of the rank for as long as its process lives: robust, so the kernel itself marks
  /// it at the process's death, sooner than any other notice (a futex word, no system call to read).
  alignas(kLinePair) pthread_mutex_t alive;
  std::atomic<RankState> state;
  std::atomic<std::int32_t> pid;
  /// CPUs that the rank may run on, one bit each, by number modulo the bits that there are.
  std::array<std::atomic<std::uint64_t>, 16> cpus;
  /// Why the rank ends the epoch, in its own words; written before it raises the fault.
  std::array<char, 256> reason;
  /// Strict mode: highest sequence number that this rank has completed. Frozen like the entry flags.
  alignas(kLinePair) std::atomic<std::uint64_t> done;
  /// Steps of pipelined operations that the rank has done, over all of them.
  alignas(kLinePair) std::atomic<std::uint64_t> tick;
  /// What the rank's threads sleep on, and how many do.
  alignas(kLinePair) std::atomic<std::uint32_t> doorbell;
  std::atomic<std::uint32_t> sleeping;
};

/// For groups with more ranks than cores: the last rank to arrive reduces for all.
struct MeetingBlock {
  alignas(kLinePair) std::atomic<std::uint64_t> arrivals[2];
  alignas(kLinePair) std::atomic<std::uint64_t> ready;  ///< sequence number of the newest result
  std::atomic<std::int32_t> reducer;  ///< who arrived last, and reduces; for those who wait in vain
};

/// Classes of message sizes that choose their method separately (see collectives/cpu/method.h).
inline constexpr int kMethodClasses = 32;

/// How the group works, decided by rank 0 and written before the others read it.
struct Tuning {
  double flag_latency_ns = 0;       ///< one way between ranks 0 and 1; 0: not measured
  std::uint64_t eager_bytes = 0;    ///< payloads up to this travel in entry slots
  /// Of these, payloads from this size rather go through the ring, as rank 0's first guess; 0: never.
  std::uint64_t ring_from_bytes = 0;
  std::uint64_t stream_bytes = 0;   ///< outputs from this size are written around the caches
  std::uint64_t ring_bytes = 0;     ///< of its part of the ring a rank goes round through, beyond its need
  std::uint64_t window_bytes = 0;   ///< two-shot: bytes of the message per pipeline window
  std::uint64_t exchange_bytes = 0; ///< one-shot pipeline: bytes per window
  std::uint64_t two_shot_bytes = 0; ///< all_reduce from this size runs the two-shot plan
  std::uint64_t small_copy_bytes = 0;  ///< below this, copies into slots use plain vector stores
  std::uint32_t spin = 0;           ///< iterations before yielding
  std::uint32_t yields = 0;         ///< yields before sleeping
  std::uint8_t slot_copy = 0;       ///< CopyKind for writes into shared slots
  std::uint8_t meet = 0;            ///< 1: more ranks than cores, the last arriver reduces
  std::uint8_t all_reduce = 0;      ///< AllReduceAlgorithm that rank 0 was told to use
};

struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t ranks;
  std::uint64_t bytes;
  std::uint64_t epoch;
  Token token;  ///< proves that a reader of the segment is on the creator's host
  Tuning tuning;
  std::atomic<std::uint32_t> tuning_ready;
  /// The first fault of the epoch, packed (see gate.h); 0 while there is none.
  alignas(kLinePair) std::atomic<std::uint64_t> fault;
  /// By size, what rank 0 has learnt since it tuned the group; 0: nothing.
  alignas(kLinePair) std::array<std::atomic<std::uint8_t>, kMethodClasses> methods;
  /// Threads asleep in the whole group: publishers look here before they ring doorbells.
  alignas(kLinePair) std::atomic<std::uint32_t> sleepers;
};

/// Offsets of the parts for a group of `ranks`.
struct Layout {
  int ranks = 0;
  std::size_t eager_capacity = 0;  ///< payload bytes of an entry slot
  std::size_t slot_stride = 0;
  std::size_t blocks = 0;
  std::size_t meeting = 0;
  std::size_t slots = 0;
  std::size_t results = 0;
  std::size_t channels = 0;        ///< ChannelControl of each ordered pair
  std::size_t base_bytes = 0;      ///< up to here memory is committed at creation
  std::size_t channel_buffers = 0;
  std::size_t channel_capacity = 0;
  std::size_t ring = 0;
  std::size_t ring_bytes = 0;
  std::size_t bytes = 0;

  static Layout of(int ranks);
};

}  // namespace topocoll::shm
