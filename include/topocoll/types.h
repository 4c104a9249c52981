// Element types, reductions and the kinds of operation, with their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "topocoll/export.h"

namespace topocoll {

/// Element types. Moves are byte-wise for all of them; reductions of the 8- and 16-bit floating
/// types accumulate in f32 and round once. Values travel between ranks: append only.
enum class DataType : std::uint8_t {
  kBool, kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64,
  kF16, kBF16, kF32, kF64, kC64, kC128,
  kF8E4M3, kF8E5M2,
};
inline constexpr int kNumDataTypes = 17;

/// Reductions. bool: sum and max are "or", prod and min are "and". avg of integers truncates toward
/// zero; integer sums and products wrap. Bitwise operations take bool and integers; min and max take
/// everything but complex; premul_sum takes floating and complex types; avg takes everything but bool.
/// min and max return NaN if any contribution is NaN.
enum class ReduceOp : std::uint8_t {
  kSum, kAvg, kProd, kMin, kMax, kBand, kBor, kBxor, kPremulSum,
};
inline constexpr int kNumReduceOps = 9;

/// A reduction with the factor that premul_sum multiplies this rank's contribution by (each rank may
/// bring its own; other reductions ignore it).
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;
  constexpr Reduction() = default;
  constexpr Reduction(ReduceOp o) : op(o) {}  // NOLINT: a ReduceOp is a Reduction
  static constexpr Reduction premul_sum(double factor) {
    Reduction r(ReduceOp::kPremulSum);
    r.factor = factor;
    return r;
  }
};

/// Kinds of operation. Values travel between ranks: append only.
enum class CollectiveKind : std::uint8_t {
  kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kAllToAll, kGather, kScatter,
  kBarrier, kSend, kRecv,
};
inline constexpr int kNumCollectiveKinds = 11;

/// Bytes per element.
TOPOCOLL_API std::size_t size_of(DataType type);

/// Short names: "f32", "sum", "all_reduce".
TOPOCOLL_API std::string_view name(DataType type);
TOPOCOLL_API std::string_view name(ReduceOp op);
TOPOCOLL_API std::string_view name(CollectiveKind kind);

/// The inverse of name(); nothing if the text is no such name.
TOPOCOLL_API std::optional<DataType> parse_data_type(std::string_view text);
TOPOCOLL_API std::optional<ReduceOp> parse_reduce_op(std::string_view text);
TOPOCOLL_API std::optional<CollectiveKind> parse_collective_kind(std::string_view text);

/// Whether `op` is defined on `type` (see ReduceOp).
TOPOCOLL_API bool is_defined(ReduceOp op, DataType type);

/// Whether the kind combines values (all_reduce, reduce, reduce_scatter).
TOPOCOLL_API bool reduces(CollectiveKind kind);
/// Whether the kind names a root (broadcast, reduce, gather, scatter).
TOPOCOLL_API bool has_root(CollectiveKind kind);

}  // namespace topocoll
