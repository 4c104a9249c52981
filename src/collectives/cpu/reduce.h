// Reductions over CPU memory: many sources, one destination, one rounding.
//
//   ReduceFunction f = reduce_function(DataType::kBF16, ReduceOp::kSum);
//   f({.target = out, .sources = srcs, .num_sources = n, .count = count});
//
// target[i] = round(sources[0][i] op sources[1][i] op ... ), evaluated from left to right; f16, bf16
// and f8 accumulate in f32, so the bits depend on nothing but the order of the sources.
// Any alignment. The target may be one of the sources, and otherwise overlaps none.
// Thread rule: pure functions.
#pragma once

#include <cstddef>

#include "topocoll/types.h"

namespace topocoll {

struct ReduceCall {
  void* target = nullptr;
  /// If set, gets the same bytes as the target (for a shared slot beside the user's output).
  void* mirror = nullptr;
  const void* const* sources = nullptr;
  int num_sources = 0;
  std::size_t count = 0;
  /// premul_sum: sources[k] is multiplied by factors[k] in the accumulator; ignored otherwise.
  const double* factors = nullptr;
  /// avg: the sum is divided by this (the group's size, which may exceed num_sources in a partial sum).
  int divisor = 1;
  /// Write the target (never the mirror) with non-temporal stores; the caller fences.
  bool stream_target = false;
};

using ReduceFunction = void (*)(const ReduceCall&);

/// The best function for this machine, chosen once by run-time dispatch; null if is_defined() says no.
/// For kAvg, num_sources contributions are summed and divided by `divisor` at the end.
ReduceFunction reduce_function(DataType type, ReduceOp op);

}  // namespace topocoll
