// Shape: how many elements a test moves for one row of the table, and what its bandwidth counts.
//
// Thread rule: pure functions. Failure rule: none; a size that is too small gives empty messages.
#pragma once

#include <cstddef>

#include "coll_perf/vocabulary.h"

namespace topocoll::perf {

struct Shape {
  std::size_t send = 0;       ///< elements in this rank's send buffer
  std::size_t recv = 0;       ///< elements in its receive buffer
  std::size_t count = 0;      ///< the call's own count argument: the table's "count"
  std::size_t row_bytes = 0;  ///< the table's "size"
  double traffic_bytes = 0;   ///< what algbw divides by the time
  double bus_factor = 1;      ///< busbw = algbw * bus_factor
};

/// The shape for a nominal size of `bytes`. Tests that split the buffer between ranks round each
/// part down to 16 bytes.
Shape shape_of(Collective test, std::size_t bytes, std::size_t element_bytes, int ranks);

/// alltoallv: elements from `from` to `to` where an even split would give `even` to each pair.
/// Parts are a third, two thirds or the whole of that, in a pattern that differs by row and column.
std::size_t uneven_part(std::size_t even, int from, int to);

}  // namespace topocoll::perf
