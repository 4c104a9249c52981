// Operation: one collective or point-to-point call as data, so that it can be queued and grouped.
// Buffers are borrowed: they must live until the operation ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/types.h"

namespace topocoll {

/// A contiguous piece of a caller's memory; `count` is in elements. data may be null if count is 0.
struct Block {
  void* data = nullptr;
  std::size_t count = 0;
};
struct ConstBlock {
  const void* data = nullptr;
  std::size_t count = 0;
};

inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;

/// What each field means, by kind (n = group size, "c" = count):
///   all_reduce, reduce   in: c elements, out: c (reduce: on the root)
///   broadcast            in: c on the root (out may equal in), out: c
///   all_gather           in: c, out: n*c, or out_blocks[r] = where rank r's part goes
///   reduce_scatter       in: n*c or in_blocks[r] = rank r's part, out: c
///   all_to_all           in, out: n*c, or in_blocks[r] to rank r and out_blocks[r] from rank r
///   gather               in: c, out (root): n*c or out_blocks
///   scatter              in (root): n*c or in_blocks, out: c
///   send, recv           in or out: c elements, with peer and tag
/// With blocks, `count` is this rank's own part where the table says c, and counts may differ between
/// ranks. In place means that in equals out (all_gather: in equals this rank's part of out;
/// reduce_scatter: out equals this rank's part of in). Other overlaps are not allowed.
struct Operation {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DataType type = DataType::kU8;
  Reduction reduction;
  int root = 0;  ///< group rank; only where the kind has a root
  int peer = 0;  ///< send: destination, recv: source or kAnySource
  int tag = 0;   ///< send, recv: >= 0, or kAnyTag for recv
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  std::vector<ConstBlock> in_blocks;  ///< empty, or exactly n
  std::vector<Block> out_blocks;      ///< empty, or exactly n
  /// How long this call may take; the communicator's own timeout if absent.
  std::optional<std::chrono::milliseconds> timeout;

  /// "all_reduce(f32 x 1024, sum)", "broadcast(u8 x 7, root 2)", "recv(i32 x 4, rank 1, tag 9)".
  /// With blocks "_v" follows the kind's name; all_to_all_v tells the sum of what goes out.
  [[nodiscard]] TOPOCOLL_API std::string to_string() const;
};

}  // namespace topocoll
