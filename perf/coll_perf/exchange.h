// Exchange: one test at one size on one rank: its operations on given buffers, the data to put in,
// and the check of what comes out.
//
// Thread rule: one thread. Failure rule: issue() returns the communicator's Status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "coll_perf/shape.h"
#include "coll_perf/vocabulary.h"
#include "topocoll/communicator.h"

namespace topocoll::perf {

/// What an exchange is about, in the terms of a table row.
struct Subject {
  Collective test = Collective::kAllReduce;
  Shape shape;
  DataType type = DataType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int rank = 0;
  int ranks = 1;
  bool in_place = false;
};

/// Whether the test has a form in place. sendrecv and alltoallv have none: what leaves and what
/// arrives would overlap.
bool has_in_place(Collective test);

class Exchange {
 public:
  /// `send` and `recv` hold shape.send and shape.recv elements; in place only `recv` is used, and
  /// holds the larger of the two.
  Exchange(const Subject& subject, std::byte* send, std::byte* recv);

  /// Performs the test `times` times: one by one if it is 1, else as one group.
  Status issue(Communicator& communicator, int times) const;
  /// The operation that stands for the test in Communicator::choice().
  [[nodiscard]] const Operation& first_operation() const { return operations_.front(); }

  /// Puts this rank's data in and spoils what is to be overwritten.
  void fill(std::uint64_t salt) const;
  /// Elements of this rank's output that are wrong, and of its input if that has changed.
  [[nodiscard]] std::size_t wrong(std::uint64_t salt) const;

 private:
  [[nodiscard]] std::byte* at(std::byte* base, std::size_t element) const {
    return base + element * element_;
  }
  [[nodiscard]] bool is_root() const { return s_.rank == s_.root; }
  void make_operations();
  void make_uneven(Operation& operation);
  void make_hypercube();
  /// Calls f(data, count, message id) for each piece that this rank sends, or receives.
  template <class F>
  void for_each_input(F f) const;
  template <class F>
  void for_each_output(F f) const;

  Subject s_;
  std::size_t element_;
  std::byte* in_ = nullptr;   // where this rank's input lies
  std::byte* out_ = nullptr;  // where its output goes
  std::vector<Operation> operations_;
  std::size_t group_ =
      1;  // operations that belong together: one after the other, such a group at a time
};

}  // namespace topocoll::perf
