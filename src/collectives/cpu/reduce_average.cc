#include "collectives/cpu/reduce_parts.h"
#include "collectives/cpu/reduce_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/cpu/reduce_average.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "collectives/cpu/reduce_kernel-inl.h"
#include "collectives/cpu/reduce_ops-inl.h"

#ifndef TOPOCOLL_REDUCE_AVERAGE_ONCE_
#define TOPOCOLL_REDUCE_AVERAGE_ONCE_
namespace topocoll {

__extension__ using Int128 = __int128;

/// Sums exactly in Wide and divides, toward zero as C++ does. For the 64-bit types, and for so many
/// sources that floating lanes could not hold the sum.
template <class T, class Wide>
void average_exactly(const ReduceCall& call) {
  auto* target = static_cast<unsigned char*>(call.target);
  auto* mirror = static_cast<unsigned char*>(call.mirror);
  for (std::size_t i = 0; i < call.count * sizeof(T); i += sizeof(T)) {
    Wide sum = 0;
    for (int k = 0; k < call.num_sources; ++k) {
      T x;
      std::memcpy(&x, static_cast<const unsigned char*>(call.sources[k]) + i, sizeof(T));
      sum += x;
    }
    const auto short_sum = static_cast<std::int64_t>(sum);  // almost always all of it
    const T average = static_cast<T>(short_sum == sum ? short_sum / call.divisor
                                                      : sum / call.divisor);
    std::memcpy(target + i, &average, sizeof(T));
    if (mirror != nullptr) std::memcpy(mirror + i, &average, sizeof(T));
  }
}

}  // namespace topocoll
#endif

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {

/// A sum of integers in floating lanes is exact while it fits the fraction. The quotient is then
/// right after truncation: where a / b is no integer, it is further from the next one than a rounding.
struct IntegerAverage : Sum {
  explicit IntegerAverage(const ReduceCall& call) : Sum(call), divisor(call.divisor) {}
  template <class D, class V>
  HWY_INLINE V finish(D d, V acc) const {
    return hn::Div(acc, hn::Set(d, static_cast<hn::TFromD<D>>(divisor)));
  }
  int divisor;
};

/// 8- and 16-bit integers in f32: 256 of 16 bits are below 2^24.
template <class T>
struct InFloat {
  using Storage = T;
  using Accum = float;
  using Short = InFloat;
  static constexpr std::size_t kPerLane = 1;
  using Wide = std::int64_t;
  static constexpr int kMaxSources = 256;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* from) {
    const hn::RebindToSigned<D> di;
    return hn::ConvertTo(d, hn::PromoteTo(di, load_lanes(hn::Rebind<T, D>(), from)));
  }
  template <class D>
  static HWY_INLINE void store(D, hn::Vec<D> v, T* to) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<T, D> ds;
    store_lanes(ds, hn::DemoteTo(ds, hn::ConvertTo(di, v)), to);
  }
  template <class D>
  static HWY_INLINE void stream(D d, hn::Vec<D> v, T* to) {
    store(d, v, to);
  }
};

/// 32-bit integers in f64: 2^20 of 32 bits are below 2^53. Unsigned ones are converted as signed
/// with an offset, which floor() keeps exact.
template <class T>
struct InDouble {
  using Storage = T;
  using Accum = double;
  using Short = InDouble;
  static constexpr std::size_t kPerLane = 1;
  using Wide = std::int64_t;
  static constexpr int kMaxSources = 1 << 20;
  static constexpr bool kUnsigned = std::is_unsigned_v<T>;
  static constexpr double kOffset = 2147483648.0;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* from) {
    const hn::Rebind<T, D> ds;
    const hn::Rebind<std::int32_t, D> di;
    if constexpr (kUnsigned) {
      const auto flipped = hn::Xor(load_lanes(ds, from), hn::Set(ds, 0x80000000u));
      return hn::Add(hn::PromoteTo(d, hn::BitCast(di, flipped)), hn::Set(d, kOffset));
    } else {
      return hn::PromoteTo(d, load_lanes(ds, from));
    }
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, T* to) {
    const hn::Rebind<T, D> ds;
    const hn::Rebind<std::int32_t, D> di;
    if constexpr (kUnsigned) {
      const auto flipped = hn::DemoteTo(di, hn::Sub(hn::Floor(v), hn::Set(d, kOffset)));
      store_lanes(ds, hn::Xor(hn::BitCast(ds, flipped), hn::Set(ds, 0x80000000u)), to);
    } else {
      store_lanes(ds, hn::DemoteTo(ds, v), to);
    }
  }
  template <class D>
  static HWY_INLINE void stream(D d, hn::Vec<D> v, T* to) {
    store(d, v, to);
  }
};

template <class Codec>
void average(const ReduceCall& call) {
  if (call.num_sources > Codec::kMaxSources) {
    average_exactly<typename Codec::Storage, typename Codec::Wide>(call);
  } else {
    reduce<Codec, IntegerAverage>(call);
  }
}

ReduceFunction find_average(DataType type) {
  switch (type) {
    case DataType::kU8:
      return &average<InFloat<std::uint8_t>>;
    case DataType::kI8:
      return &average<InFloat<std::int8_t>>;
    case DataType::kU16:
      return &average<InFloat<std::uint16_t>>;
    case DataType::kI16:
      return &average<InFloat<std::int16_t>>;
    case DataType::kU32:
      return &average<InDouble<std::uint32_t>>;
    case DataType::kI32:
      return &average<InDouble<std::int32_t>>;
    case DataType::kU64:
      return &average_exactly<std::uint64_t, Int128>;
    case DataType::kI64:
      return &average_exactly<std::int64_t, Int128>;
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topocoll {

HWY_EXPORT(find_average);

ReduceFunction find_integer_average(DataType type) {
  return HWY_DYNAMIC_DISPATCH(find_average)(type);
}

}  // namespace topocoll
#endif  // HWY_ONCE
