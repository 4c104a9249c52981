#include "collectives/cpu/reduce_parts.h"
#include "collectives/cpu/reduce_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/cpu/reduce_complex.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "collectives/cpu/reduce_kernel-inl.h"
#include "collectives/cpu/reduce_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {

template <class T>
struct Complex {
  T re, im;
};

/// Real parts in one vector, imaginary parts in another.
template <class T>
struct Interleaved {
  using Storage = Complex<T>;
  using Accum = T;
  using Short = Interleaved;
  static constexpr std::size_t kPerLane = 1;
  template <class D>
  using V = Complex<hn::Vec<D>>;
  /// Whether two vectors are read and written directly; else through an aligned array, because
  /// Highway would access elements, which is undefined for those that are not aligned.
  template <class D>
  static constexpr bool kDirect =
      HWY_TARGET != HWY_EMU128 && sizeof(Storage) * hn::MaxLanes(D()) >= 32;

  template <class D>
  static HWY_INLINE V<D> load(D d, const Storage* from) {
    V<D> v;
    if constexpr (kDirect<D>) {
      hn::LoadInterleaved2(d, reinterpret_cast<const T*>(from), v.re, v.im);
    } else {
      alignas(32) T lanes[2 * hn::MaxLanes(D())];
      std::memcpy(lanes, from, sizeof(lanes));
      hn::LoadInterleaved2(d, lanes, v.re, v.im);
    }
    return v;
  }
  template <class D>
  static HWY_INLINE void store(D d, V<D> v, Storage* to) {
    if constexpr (kDirect<D>) {
      hn::StoreInterleaved2(v.re, v.im, d, reinterpret_cast<T*>(to));
    } else {
      alignas(32) T lanes[2 * hn::MaxLanes(D())];
      hn::StoreInterleaved2(v.re, v.im, d, lanes);
      std::memcpy(to, lanes, sizeof(lanes));
    }
  }
  template <class D>
  static HWY_INLINE void stream(D d, V<D> v, Storage* to) {
    store(d, v, to);
  }
};

/// (a + bi)(c + di) = (ac - bd) + (ad + bc)i: four products, each rounded before it is added.
struct ComplexProd {
  explicit ComplexProd(const ReduceCall&) {}
  template <class D, class V>
  HWY_INLINE V first(D, V x, int) const {
    return x;
  }
  template <class D, class V>
  HWY_INLINE V fold(D, V a, V x, int) const {
    return {hn::Sub(hn::Mul(a.re, x.re), hn::Mul(a.im, x.im)),
            hn::Add(hn::Mul(a.re, x.im), hn::Mul(a.im, x.re))};
  }
  template <class D, class V>
  HWY_INLINE V finish(D d, V a) const {
    return {canonical(d, a.re), canonical(d, a.im)};
  }
};

ReduceFunction find_prod(DataType type) {
  switch (type) {
    case DataType::kC64:
      return &reduce<Interleaved<float>, ComplexProd>;
    case DataType::kC128:
      return &reduce<Interleaved<double>, ComplexProd>;
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topocoll {

HWY_EXPORT(find_prod);

ReduceFunction find_complex_prod(DataType type) { return HWY_DYNAMIC_DISPATCH(find_prod)(type); }

}  // namespace topocoll
#endif  // HWY_ONCE
