#include "collectives/cpu/reduce_parts.h"
#include "collectives/cpu/reduce_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/cpu/reduce_integer.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "collectives/cpu/reduce_kernel-inl.h"
#include "collectives/cpu/reduce_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {

/// Bytes in 16-bit lanes: there is no multiplication of 8-bit lanes, and the low byte of the wider
/// product is the wrapped one.
struct WideBytes {
  using Storage = std::uint8_t;
  using Accum = std::uint16_t;
  using Short = WideBytes;
  static constexpr std::size_t kPerLane = 1;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Storage* from) {
    return hn::PromoteTo(d, load_lanes(hn::Rebind<Storage, D>(), from));
  }
  template <class D>
  static HWY_INLINE void store(D, hn::Vec<D> v, Storage* to) {
    const hn::Rebind<Storage, D> ds;
    store_lanes(ds, hn::TruncateTo(ds, v), to);
  }
  template <class D>
  static HWY_INLINE void stream(D, hn::Vec<D> v, Storage* to) {
    const hn::Rebind<Storage, D> ds;
    stream_lanes(ds, hn::TruncateTo(ds, v), to);
  }
};

struct BitAnd : PlainOp {
  using PlainOp::PlainOp;
  template <class D, class V>
  HWY_INLINE V fold(D, V acc, V x, int) const {
    return hn::And(acc, x);
  }
};

struct BitOr : PlainOp {
  using PlainOp::PlainOp;
  template <class D, class V>
  HWY_INLINE V fold(D, V acc, V x, int) const {
    return hn::Or(acc, x);
  }
};

struct BitXor : PlainOp {
  using PlainOp::PlainOp;
  template <class D, class V>
  HWY_INLINE V fold(D, V acc, V x, int) const {
    return hn::Xor(acc, x);
  }
};

/// Bools arrive as any byte and leave as 0 or 1.
template <class D, class V>
HWY_INLINE V truth(D d, V x) {
  return hn::Min(x, hn::Set(d, std::uint8_t{1}));
}

struct AnyTrue : BitOr {
  using BitOr::BitOr;
  template <class D, class V>
  HWY_INLINE V finish(D d, V acc) const {
    return truth(d, acc);
  }
};

struct AllTrue : Min {
  using Min::Min;
  template <class D, class V>
  HWY_INLINE V finish(D d, V acc) const {
    return truth(d, acc);
  }
};

struct OddTrue : PlainOp {
  using PlainOp::PlainOp;
  template <class D, class V>
  HWY_INLINE V first(D d, V x, int) const {
    return truth(d, x);
  }
  template <class D, class V>
  HWY_INLINE V fold(D d, V acc, V x, int) const {
    return hn::Xor(acc, truth(d, x));
  }
};

ReduceFunction find_bool(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return &reduce<Plain<std::uint8_t>, AnyTrue>;
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return &reduce<Plain<std::uint8_t>, AllTrue>;
    case ReduceOp::kBxor:
      return &reduce<Plain<std::uint8_t>, OddTrue>;
    default:
      return nullptr;
  }
}

/// Sums and products wrap, so that signed and unsigned share them; bitwise operations share bytes.
template <class T>
ReduceFunction find_of(ReduceOp op) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::kSum:
      return &reduce<Plain<U>, Sum>;
    case ReduceOp::kProd:
      return &reduce<std::conditional_t<sizeof(T) == 1, WideBytes, Plain<U>>, Prod>;
    case ReduceOp::kMin:
      return &reduce<Plain<T>, Min>;
    case ReduceOp::kMax:
      return &reduce<Plain<T>, Max>;
    case ReduceOp::kBand:
      return &reduce<Plain<std::uint8_t>, BitAnd, sizeof(T)>;
    case ReduceOp::kBor:
      return &reduce<Plain<std::uint8_t>, BitOr, sizeof(T)>;
    case ReduceOp::kBxor:
      return &reduce<Plain<std::uint8_t>, BitXor, sizeof(T)>;
    default:
      return nullptr;
  }
}

ReduceFunction find_integer(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kBool:
      return find_bool(op);
    case DataType::kU8:
      return find_of<std::uint8_t>(op);
    case DataType::kI8:
      return find_of<std::int8_t>(op);
    case DataType::kU16:
      return find_of<std::uint16_t>(op);
    case DataType::kI16:
      return find_of<std::int16_t>(op);
    case DataType::kU32:
      return find_of<std::uint32_t>(op);
    case DataType::kI32:
      return find_of<std::int32_t>(op);
    case DataType::kU64:
      return find_of<std::uint64_t>(op);
    case DataType::kI64:
      return find_of<std::int64_t>(op);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topocoll {

HWY_EXPORT(find_integer);

ReduceFunction find_integer_reduce(DataType type, ReduceOp op) {
  return HWY_DYNAMIC_DISPATCH(find_integer)(type, op);
}

}  // namespace topocoll
#endif  // HWY_ONCE
