#include "collectives/cpu/reduce_parts.h"
#include "collectives/cpu/reduce_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/cpu/reduce_half.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "collectives/cpu/reduce_narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {

using BFloat16 = Narrow<std::uint16_t, BFloat16Bits>;

template <class V>
struct Pair {
  V even, odd;
};

/// Two neighbouring bf16 per lane, one in each vector: no element leaves its lane on the way in or
/// out, which costs half of what widening and packing do.
struct BFloat16Pairs {
  using Storage = std::uint16_t;
  using Accum = float;
  using Short = BFloat16;
  static constexpr std::size_t kPerLane = 2;

  template <class D>
  static HWY_INLINE Pair<hn::Vec<D>> load(D d, const Storage* from) {
    const hn::RebindToUnsigned<D> du;
    const auto both = load_lanes(du, reinterpret_cast<const std::uint32_t*>(from));
    return {BFloat16Bits::decode(d, both), hn::BitCast(d, hn::And(both, upper(du)))};
  }
  template <class D>
  static HWY_INLINE auto pack(D d, Pair<hn::Vec<D>> v) {
    const hn::RebindToUnsigned<D> du;
    const auto odd = hn::And(BFloat16Bits::round(d, v.odd), upper(du));
    return hn::Or(BFloat16Bits::encode(d, v.even), odd);
  }
  template <class D>
  static HWY_INLINE void store(D d, Pair<hn::Vec<D>> v, Storage* to) {
    store_lanes(hn::RebindToUnsigned<D>(), pack(d, v), reinterpret_cast<std::uint32_t*>(to));
  }
  template <class D>
  static HWY_INLINE void stream(D d, Pair<hn::Vec<D>> v, Storage* to) {
    stream_lanes(hn::RebindToUnsigned<D>(), pack(d, v), reinterpret_cast<std::uint32_t*>(to));
  }

 private:
  template <class DU>
  static HWY_INLINE hn::Vec<DU> upper(DU du) {
    return hn::Set(du, 0xFFFF0000u);
  }
};

/// An operation on both vectors of a pair, and on single vectors as before.
template <class Op>
struct OnPairs : Op {
  using Op::first;
  using Op::fold;
  using Op::finish;
  using Op::Op;
  template <class D, class V>
  HWY_INLINE Pair<V> first(D d, Pair<V> x, int k) const {
    return {Op::first(d, x.even, k), Op::first(d, x.odd, k)};
  }
  template <class D, class V>
  HWY_INLINE Pair<V> fold(D d, Pair<V> acc, Pair<V> x, int k) const {
    return {Op::fold(d, acc.even, x.even, k), Op::fold(d, acc.odd, x.odd, k)};
  }
  template <class D, class V>
  HWY_INLINE Pair<V> finish(D d, Pair<V> acc) const {
    return {Op::finish(d, acc.even), Op::finish(d, acc.odd)};
  }
};

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
/// The target converts in hardware, rounding to nearest even.
struct Half16 {
  using Storage = std::uint16_t;
  using Accum = float;
  using Short = Half16;
  static constexpr std::size_t kPerLane = 1;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Storage* from) {
    const hn::Rebind<Storage, D> ds;
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::BitCast(dh, load_lanes(ds, from)));
  }
  template <class D>
  static HWY_INLINE auto pack(D, hn::Vec<D> v) {
    const hn::Rebind<Storage, D> ds;
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::BitCast(ds, hn::DemoteTo(dh, v));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, Storage* to) {
    store_lanes(hn::Rebind<Storage, D>(), pack(d, v), to);
  }
  template <class D>
  static HWY_INLINE void stream(D d, hn::Vec<D> v, Storage* to) {
    stream_lanes(hn::Rebind<Storage, D>(), pack(d, v), to);
  }
};
#else
using Half16 = Narrow<std::uint16_t, SmallFloatBits<16, 10, 15, true>>;
#endif

// The operations of training have loops of their own.

ReduceFunction find_f16(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &reduce<Half16, Sum>;
    case ReduceOp::kAvg:
      return &reduce<Half16, Average>;
    default:
      return find_any<Half16>(op);
  }
}

ReduceFunction find_bf16(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &reduce<BFloat16Pairs, OnPairs<Sum>>;
    case ReduceOp::kAvg:
      return &reduce<BFloat16Pairs, OnPairs<Average>>;
    default:
      return find_any<BFloat16>(op);
  }
}

ReduceFunction find_half(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kF16:
      return find_f16(op);
    case DataType::kBF16:
      return find_bf16(op);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topocoll {

HWY_EXPORT(find_half);

ReduceFunction find_half_reduce(DataType type, ReduceOp op) {
  return HWY_DYNAMIC_DISPATCH(find_half)(type, op);
}

}  // namespace topocoll
#endif  // HWY_ONCE
