// Vector copies, compiled once per SIMD target (include after hwy/foreach_target.h).
// Thread rule: pure functions. Source and target do not overlap.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

// Highway's per-target include guard: visible once for every target.
#if defined(TOPOCOLL_COPY_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPOCOLL_COPY_KERNEL_INL_H_
#undef TOPOCOLL_COPY_KERNEL_INL_H_
#else
#define TOPOCOLL_COPY_KERNEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Stores one vector; non-temporally if kStream, and then `to` is aligned to the vector.
template <bool kStream, class D, class V>
HWY_INLINE void store_bytes(D d, V v, std::uint8_t* to) {
  if constexpr (kStream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

/// Copies with the widest vectors. The first and the last vector may overlap their neighbours, so
/// that no scalar loop is needed and every vector in between is aligned in the target. Non-temporal
/// stores are left unfenced.
template <bool kStream>
HWY_INLINE void copy_vectors(void* target, const void* source, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  auto* to = static_cast<std::uint8_t*>(target);
  const auto* from = static_cast<const std::uint8_t*>(source);
  if (bytes < kLanes || kLanes < 16) {  // the scalar target has nothing to offer over the C library
    if (bytes != 0) std::memcpy(to, from, bytes);
    return;
  }
  const auto head = hn::LoadU(d, from);
  const auto tail = hn::LoadU(d, from + (bytes - kLanes));
  hn::StoreU(head, d, to);
  std::size_t i = kLanes - reinterpret_cast<std::uintptr_t>(to) % kLanes;
  for (; i + 4 * kLanes <= bytes; i += 4 * kLanes) {
    const auto v0 = hn::LoadU(d, from + i);
    const auto v1 = hn::LoadU(d, from + i + kLanes);
    const auto v2 = hn::LoadU(d, from + i + 2 * kLanes);
    const auto v3 = hn::LoadU(d, from + i + 3 * kLanes);
    store_bytes<kStream>(d, v0, to + i);
    store_bytes<kStream>(d, v1, to + i + kLanes);
    store_bytes<kStream>(d, v2, to + i + 2 * kLanes);
    store_bytes<kStream>(d, v3, to + i + 3 * kLanes);
  }
  for (; i + kLanes < bytes; i += kLanes) store_bytes<kStream>(d, hn::LoadU(d, from + i), to + i);
  hn::StoreU(tail, d, to + (bytes - kLanes));
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
