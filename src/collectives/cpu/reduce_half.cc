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

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
/// The target converts in hardware, rounding to nearest even.
struct Half16 {
  using Storage = std::uint16_t;
  using Accum = float;

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

/// The operations of training have loops of their own.
template <class Codec>
ReduceFunction find_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &reduce<Codec, Sum>;
    case ReduceOp::kAvg:
      return &reduce<Codec, Average>;
    default:
      return find_any<Codec>(op);
  }
}

ReduceFunction find_half(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kF16:
      return find_of<Half16>(op);
    case DataType::kBF16:
      return find_of<BFloat16>(op);
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
