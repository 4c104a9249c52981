// Pattern: test data that repeats with a prime period, so that filling and checking run at memory
// speed and a piece that lands in the wrong place (pieces have round sizes) is seen.
//
// Values for reductions are chosen so that every partial result is exact in the element type,
// whatever the order of evaluation: results must be equal bit for bit. Only averages of floating
// types are compared with a tolerance of two roundings.
//
// Thread rule: values. Failure rule: none; op must be defined on type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "topocoll/types.h"

namespace topocoll::perf {

class Pattern {
 public:
  static constexpr std::size_t kPeriod = 4099;

  /// Bytes to be moved; `id` tells messages apart.
  static Pattern message(DataType type, int id, std::uint64_t salt);
  /// What `rank` contributes to a reduction.
  static Pattern contribution(DataType type, ReduceOp op, int rank, int ranks, std::uint64_t salt);
  /// The reduction of all contributions.
  static Pattern reduced(DataType type, ReduceOp op, int ranks, std::uint64_t salt);

  /// Writes elements first, first+1, ... of the endless pattern to `data`.
  void fill(void* data, std::size_t count, std::size_t first = 0) const;
  /// How many of `count` elements differ from elements first, first+1, ... of the pattern.
  [[nodiscard]] std::size_t wrong(const void* data, std::size_t count, std::size_t first = 0) const;

 private:
  Pattern(DataType type, bool inexact);

  DataType type_;
  bool inexact_;
  std::size_t element_;
  std::vector<std::byte> table_;  // one period
};

/// The factor that a rank brings to premul_sum in these tests: a power of two.
double premul_factor(int rank);

/// An element as a number (complex: one part) and back, rounding to nearest even. Floating types
/// only.
double decode(DataType type, const std::byte* element);
void encode(DataType type, double value, std::byte* element);

}  // namespace topocoll::perf
