// Method: how an executor moves bytes where several ways exist; MethodChooser: which of them wins now.
//
// Which copy is the fastest into memory that another core holds depends on how far that core is, and a
// hypervisor moves virtual processors while a job runs: between cores that share a cache plain stores win,
// between others non-temporal ones may. So the start-up probe only gives the first guess. From then on
// rank 0 now and then runs a few operations by each method in turn, times its own part of them, and
// publishes the winner in the segment, where all ranks look it up by size.
//
// A rank may read a newer or older copy kind than its peers: it concerns its own stores alone. Whether
// the two-shot plan is used must be the same everywhere, so rank 0's announcement of the operation says it.
// The ring is used where any rank's announcement says that its payload is not in its slot.
//
// Thread rule: one thread. Failure rule: none; a method that is not the fastest is still right.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/cpu/copy.h"
#include "topocoll/types.h"
#include "transport/shm/layout.h"

namespace topocoll {

struct Method {
  CopyKind copy = CopyKind::kMemcpy;  ///< into shared slots
  bool two_shot = false;              ///< all_reduce of two ranks: two_shot rather than one_shot
  bool ring = false;                  ///< through the ring, though a slot would hold it
  friend bool operator==(const Method&, const Method&) = default;

  /// Never 0, which in the table means: still the first guess.
  [[nodiscard]] std::uint8_t packed() const {
    return static_cast<std::uint8_t>(static_cast<unsigned>(copy) | (two_shot ? 4u : 0u) | (ring ? 8u : 0u) | 16u);
  }
  static Method unpack(std::uint8_t packed) {
    return {static_cast<CopyKind>(packed & 3u), (packed & 4u) != 0, (packed & 8u) != 0};
  }
};
static_assert(kNumCopyKinds <= 4);

/// Sizes from 2^k to 2^(k+1) - 1 bytes share a method; smaller than kMinMethodBytes have no choice.
inline constexpr std::size_t kMinMethodBytes = 512;
int method_class(std::size_t bytes);
std::size_t method_class_bytes(int size_class);

/// What the start-up probe advises, but for the ring: rank 0 sees first whether there is memory for it.
Method first_method(const shm::Tuning& tuning, std::size_t bytes);
/// What to use for a message of `bytes` now.
Method current_method(const shm::SegmentHeader& header, const shm::Tuning& tuning, std::size_t bytes);

class MethodChooser {
 public:
  struct Options {
    std::vector<CopyKind> copies;        ///< what may be tried; fewer than two: copies are not learnt
    std::size_t eager_bytes = 0;         ///< up to here ranks copy before they have heard of rank 0
    std::size_t two_shot_min_bytes = 0;  ///< all_reduce from here may change its plan; 0: never
    std::size_t ring_min_bytes = 0;      ///< all_reduce from here to eager_bytes may use the ring; 0: never
    /// Asked before the ring is used where a slot would do: whether there is memory for it.
    std::function<bool()> has_ring = [] { return true; };
  };

  /// Publishes in the segment's header.
  MethodChooser(shm::SegmentHeader& header, const shm::Tuning& tuning, Options options);

  /// To be called before every operation of kMinMethodBytes or more; publishes the method to use. True if
  /// the caller shall time the operation and report it: in a round of trials, and now and then in between
  /// to see whether times are still what they were.
  bool begin(CollectiveKind kind, std::size_t bytes);
  /// Time of the operation just begun, without waiting for peers to arrive.
  void report(std::size_t bytes, double nanoseconds);

 private:
  /// One round of trials of a class: the incumbent first, then what differs from it in one respect.
  struct Class {
    Method incumbent;
    std::array<Method, kNumCopyKinds + 2> entrants;  ///< of the round in progress
    std::array<double, kNumCopyKinds + 2> best{};    ///< ns per byte of each
    std::size_t size = 0;             ///< entrants; 0: no round in progress
    std::size_t entrant = 0;          ///< whose turn it is
    std::size_t turn = 0;             ///< operations of this entrant so far
    CollectiveKind kind{};            ///< of the round
    std::uint32_t wait = 0;           ///< operations until the next round
    std::uint32_t interval = 0;       ///< doubles while nothing changes
    std::uint32_t generation = 0;     ///< changes of any class that this one has seen
    double expected = 0;              ///< ns per byte of the incumbent in its last round; 0: unknown
    int surprises = 0;                ///< operations in a row that took much more or less than that
    bool prompted = false;            ///< this round is due to another class's change
    bool ring_first = false;          ///< the probe advises the ring, which nobody has used yet
    bool winning = false;             ///< `challenger` won the last round
    Method challenger;
  };

  void start_round(Class& c, int size_class, CollectiveKind kind);
  /// Whether messages of this class that a slot holds may go through the ring.
  [[nodiscard]] bool may_ring(int size_class);
  static void watch(Class& c, double cost);
  void end_round(Class& c, int size_class);
  void publish(int size_class, Method method) const;
  /// Operations of the entrant whose turn it is: those before it shows what it takes in the long run, and
  /// with those of which the fastest counts.
  [[nodiscard]] std::size_t settling(const Class& c, std::size_t bytes) const;
  [[nodiscard]] std::size_t turns(const Class& c, std::size_t bytes) const;
  [[nodiscard]] std::uint32_t first_interval(int size_class) const;

  shm::SegmentHeader& header_;
  Options options_;
  std::array<Class, shm::kMethodClasses> classes_;
  std::uint32_t generation_ = 0;
};

}  // namespace topocoll
