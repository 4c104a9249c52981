// Request: one operation as this rank sees it, with what it announces to the others; and the
// comparison of all announcements, which every rank makes with the same result before any output is
// written.
//
// Which counts must agree, by kind:
//   all_reduce, broadcast, reduce, barrier   count
//   all_gather, reduce_scatter               the whole list of counts (by hash)
//   gather, scatter                          the root's list against each rank's own count
//   all_to_all                               what i sends to j against what j expects from i
// Where a list is needed and its entries differ, it leads the rank's slot (flag kCounts).
// Where no rank lists counts, all ranks of these three kinds have one count, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/cpu/context.h"
#include "collectives/cpu/view.h"
#include "topocoll/operation.h"
#include "transport/shm/layout.h"

namespace topocoll {

/// Kinds whose message is one on all ranks, cut into windows and chunks; all others but the barrier
/// have a block for each rank.
constexpr bool is_striped(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kReduce;
}

struct Request {
  const Operation* op = nullptr;
  std::size_t element = 1;
  shm::Descriptor descriptor;
  Blocks in_blocks;          ///< blocked kinds
  Blocks out_blocks;
  bool lists_counts = false;  ///< this rank's slot is led by counts
  std::size_t counts_bytes = 0;
  std::size_t payload_bytes = 0;  ///< what this rank would put into its slot behind the counts

  /// `op` has been validated (see communicator/validate.h).
  static Request of(const Operation& op, int rank, int ranks);
};

/// Writes this rank's list of counts to the head of its slot.
void write_counts(const Request& request, int ranks, std::byte* slot);

/// Compares all announcements of `seq`. Returns the rank to blame, or -1 if they agree. The same on
/// every rank.
int find_mismatch(const Context& context, std::uint64_t seq);

/// Two ranks of a gather, scatter or all_to_all whose counts for each other differ.
struct CountMismatch {
  int culprit = -1;
  int from = -1;
  int to = -1;
  std::uint64_t sent = 0;  ///< elements
  std::uint64_t expected = 0;
};
/// The first such pair of the rank to blame, where ranks list counts and the announcements agree in
/// all else.
std::optional<CountMismatch> find_count_mismatch(const Context& context, std::uint64_t seq);

/// Reads the announcements of an operation that all ranks have entered.
class Announcements {
 public:
  Announcements(const Context& context, std::uint64_t seq)
      : segment_(*context.segment), ranks_(context.ranks), parity_(static_cast<int>(seq & 1)) {}

  [[nodiscard]] const shm::Descriptor& descriptor(int rank) const {
    return segment_.entry(parity_, rank).descriptor;
  }
  [[nodiscard]] std::uint64_t flag(int rank) const {
    return segment_.entry(parity_, rank).flag.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool eager(int rank) const { return (flag(rank) & shm::kEager) != 0; }
  [[nodiscard]] bool two_shot() const { return (flag(0) & shm::kTwoShot) != 0; }
  [[nodiscard]] bool lists_counts(int rank) const { return (flag(rank) & shm::kCounts) != 0; }
  /// all_to_all: elements from `from` to `to`, by the sender's announcement.
  [[nodiscard]] std::uint64_t sends(int from, int to) const;
  /// all_to_all: the same by the receiver's.
  [[nodiscard]] std::uint64_t expects(int to, int from) const;
  /// gather, scatter: rank's own count; and what the root has for it.
  [[nodiscard]] std::uint64_t own(int rank) const { return descriptor(rank).count; }
  [[nodiscard]] std::uint64_t at_root(int root, int rank) const;
  /// The call that `rank` announced: what Request::of() made of it, without addresses.
  [[nodiscard]] Operation call(int rank) const;

 private:
  [[nodiscard]] const std::uint64_t* counts(int rank) const {
    return reinterpret_cast<const std::uint64_t*>(segment_.slot(parity_, rank));
  }
  const shm::Segment& segment_;
  int ranks_;
  int parity_;
};

}  // namespace topocoll
