// Status and Result: how every topocoll call reports its outcome.
//
//   topocoll::Status s = comm->all_reduce(in, out, n, DataType::kF32, ReduceOp::kSum);
//   if (!s.ok()) std::fprintf(stderr, "%s\n", s.to_string().c_str());
//
// Thread rule: a Status is an immutable value; copies may be read from any thread.
// Failure rule: a Status is made once, where the failure is decided, and is carried unchanged. For a
// failed collective every rank that stays in the group holds the same cause, culprits, epoch and seq.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "topocoll/export.h"

namespace topocoll {

/// Why an operation or a call failed. The numeric values travel between ranks: append only.
enum class Cause : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 1,  ///< the caller's own arguments; nothing was sent to any peer
  kMismatch = 2,         ///< ranks called different operations under one sequence number
  kPeerDied = 3,         ///< the kernel reported the end of a peer's process
  kPeerLeft = 4,         ///< a peer shut its communicator down, or exited in good order
  kTimeout = 5,          ///< the deadline passed; the culprits are the ranks that were absent
  kAborted = 6,          ///< some rank called Communicator::abort()
  kResource = 7,         ///< memory, descriptors, disk: the text names which, and the limit
  kSystem = 8,           ///< a system call failed in a way that none of the above describes
  kVersion = 9,          ///< ranks, or plugin and host program, run builds that do not fit
  kUnsupported = 10,     ///< a valid request that this build or machine cannot serve
  kExcluded = 11,        ///< this rank is no longer a member of the group
  kInternal = 12,        ///< an invariant of topocoll itself does not hold: please report it
};

/// The cause's name as it appears in messages and in Python, e.g. "peer_died".
TOPOCOLL_API std::string_view name(Cause cause);

/// The outcome of a call: OK (one null pointer), or a cause with what is known about it.
class [[nodiscard]] TOPOCOLL_API Status {
 public:
  Status() noexcept = default;
  Status(Cause cause, std::string text);

  /// A failed group operation: `culprits` are group ranks (empty if no rank is to blame), `epoch`
  /// and `seq` name the first operation that did not commit.
  static Status operation(Cause cause, std::vector<int> culprits, std::uint64_t epoch,
                          std::uint64_t seq, std::string operation, std::string text);

  [[nodiscard]] bool ok() const noexcept { return rep_ == nullptr; }
  [[nodiscard]] Cause cause() const noexcept { return rep_ ? rep_->cause : Cause::kOk; }
  /// Group ranks to blame, ascending; empty if none is.
  [[nodiscard]] const std::vector<int>& culprits() const noexcept;
  /// The first culprit, or -1.
  [[nodiscard]] int culprit() const noexcept;
  [[nodiscard]] std::uint64_t epoch() const noexcept { return rep_ ? rep_->epoch : 0; }
  /// Sequence number of the first operation that did not commit; 0 if none is concerned.
  [[nodiscard]] std::uint64_t seq() const noexcept { return rep_ ? rep_->seq : 0; }
  /// The operation in words, e.g. "all_reduce(f32 x 1024, sum)"; empty if none is concerned.
  [[nodiscard]] const std::string& operation() const noexcept;
  /// One sentence that says what happened and, where there is one, the fix. Names from files and
  /// peers are for a terminal: control characters other than ends of lines are shown as ?.
  [[nodiscard]] const std::string& text() const noexcept;
  /// "peer_died: all_reduce(f32 x 1024, sum) number 7 of epoch 1: rank 3 died" and the like;
  /// "before operation number 7 of epoch 1" where no rank had begun it.
  [[nodiscard]] std::string to_string() const;

  /// The same status with `prefix` before its text, for callers that know the context.
  [[nodiscard]] Status annotated(std::string_view prefix) const;

 private:
  struct Rep {
    Cause cause = Cause::kInternal;
    std::vector<int> culprits;
    std::uint64_t epoch = 0;
    std::uint64_t seq = 0;
    std::string operation;
    std::string text;
  };
  std::shared_ptr<const Rep> rep_;
};

/// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  /// OK, or the error.
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<1>(state_); }
  /// The value; only when ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace topocoll
