// The loops that every reduction shares, compiled once per SIMD target (include after
// hwy/foreach_target.h). A reduction is a Codec (how elements are loaded into and stored from
// accumulator lanes) and an Op (how accumulators combine):
//
//   struct Codec { using Storage; using Accum;
//                  static V load(D, const Storage*); static void store(D, V, Storage*);
//                  static void stream(D, V, Storage*); };
//   struct Op { explicit Op(const ReduceCall&);
//               V first(D, V x, int k); V fold(D, V acc, V x, int k); V finish(D, V acc); };
//
// where V is whatever load() returns. All bits are the same on every target: each element goes
// through first(), fold() ... fold(), finish() in the order of the sources, in lanes of its own.
// Thread rule: pure functions.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/cpu/reduce.h"
#include "hwy/highway.h"

#include "collectives/cpu/copy_kernel-inl.h"

#if defined(TOPOCOLL_REDUCE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPOCOLL_REDUCE_KERNEL_INL_H_
#undef TOPOCOLL_REDUCE_KERNEL_INL_H_
#else
#define TOPOCOLL_REDUCE_KERNEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A mirrored call is cut into blocks of this size: what is copied is still in the L1 cache.
inline constexpr std::size_t kMirrorBlockBytes = 8192;

/// Fewer elements are not worth a non-temporal store.
inline constexpr std::size_t kMinStreamed = 256;

/// Unaligned load of all lanes of D. Partial vectors go through memcpy, since Highway reads those by
/// element, which is undefined for elements that are not aligned.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_lanes(D d, const T* from) {
  constexpr std::size_t kBytes = sizeof(T) * hn::MaxLanes(D());
  if constexpr (kBytes >= 16) {
    return hn::LoadU(d, from);
  } else {
    alignas(16) T lanes[hn::MaxLanes(D())];
    std::memcpy(lanes, from, kBytes);
    return hn::Load(d, lanes);
  }
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_lanes(D d, hn::Vec<D> v, T* to) {
  constexpr std::size_t kBytes = sizeof(T) * hn::MaxLanes(D());
  if constexpr (kBytes >= 16) {
    hn::StoreU(v, d, to);
  } else {
    alignas(16) T lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    std::memcpy(to, lanes, kBytes);
  }
}

/// Non-temporal where the vector is wide enough to have such a store; `to` is aligned to the vector.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void stream_lanes(D d, hn::Vec<D> v, T* to) {
  if constexpr (sizeof(T) * hn::MaxLanes(D()) >= 16) {
    hn::Stream(v, d, to);
  } else {
    store_lanes(d, v, to);
  }
}

/// Elements that are their own accumulators.
template <class T>
struct Plain {
  using Storage = T;
  using Accum = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* from) {
    return load_lanes(d, from);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, T* to) {
    store_lanes(d, v, to);
  }
  template <class D>
  static HWY_INLINE void stream(D d, hn::Vec<D> v, T* to) {
    stream_lanes(d, v, to);
  }
};

template <class T>
HWY_INLINE bool is_aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(T) == 0;
}

template <class V>
struct Four {
  V v0, v1, v2, v3;
};

/// The common case of two sources: no loop, no pointer table.
template <class Codec>
struct TwoSources {
  using Storage = typename Codec::Storage;
  const Storage* a;
  const Storage* b;

  template <class D, class Op>
  HWY_INLINE auto reduce(D d, const Op& op, std::size_t i) const {
    const auto acc = op.first(d, Codec::load(d, a + i), 0);
    return op.finish(d, op.fold(d, acc, Codec::load(d, b + i), 1));
  }

  template <class D, class Op>
  HWY_INLINE auto reduce_four(D d, const Op& op, std::size_t i) const {
    constexpr std::size_t kLanes = hn::MaxLanes(D());
    using V = decltype(reduce(d, op, i));
    return Four<V>{reduce(d, op, i), reduce(d, op, i + kLanes), reduce(d, op, i + 2 * kLanes),
                   reduce(d, op, i + 3 * kLanes)};
  }
};

template <class Codec>
struct ManySources {
  using Storage = typename Codec::Storage;
  const void* const* sources;
  int count;
  std::size_t begin;  ///< index of the first element to reduce

  HWY_INLINE const Storage* at(int k, std::size_t i) const {
    return static_cast<const Storage*>(sources[k]) + begin + i;
  }

  template <class D, class Op>
  HWY_INLINE auto reduce(D d, const Op& op, std::size_t i) const {
    auto acc = op.first(d, Codec::load(d, at(0, i)), 0);
    for (int k = 1; k < count; ++k) acc = op.fold(d, acc, Codec::load(d, at(k, i)), k);
    return op.finish(d, acc);
  }

  template <class D, class Op>
  HWY_INLINE auto reduce_four(D d, const Op& op, std::size_t i) const {
    constexpr std::size_t kLanes = hn::MaxLanes(D());
    const Storage* from = at(0, i);
    auto v0 = op.first(d, Codec::load(d, from), 0);
    auto v1 = op.first(d, Codec::load(d, from + kLanes), 0);
    auto v2 = op.first(d, Codec::load(d, from + 2 * kLanes), 0);
    auto v3 = op.first(d, Codec::load(d, from + 3 * kLanes), 0);
    for (int k = 1; k < count; ++k) {
      from = at(k, i);
      v0 = op.fold(d, v0, Codec::load(d, from), k);
      v1 = op.fold(d, v1, Codec::load(d, from + kLanes), k);
      v2 = op.fold(d, v2, Codec::load(d, from + 2 * kLanes), k);
      v3 = op.fold(d, v3, Codec::load(d, from + 3 * kLanes), k);
    }
    return Four<decltype(v0)>{op.finish(d, v0), op.finish(d, v1), op.finish(d, v2),
                              op.finish(d, v3)};
  }
};

template <class Codec, bool kStream, class D, class V>
HWY_INLINE void put(D d, V v, typename Codec::Storage* to) {
  if constexpr (kStream) {
    Codec::stream(d, v, to);
  } else {
    Codec::store(d, v, to);
  }
}

/// The tag to go on with where fewer elements are left than D has lanes: the next lower power of 4.
template <class D>
constexpr std::size_t lower_lanes() {
  std::size_t lanes = 1;
  while (4 * lanes < hn::MaxLanes(D())) lanes *= 4;
  return lanes;
}

/// Less than a full vector: smaller vectors, down to single elements.
template <class Codec, class D, class Op, class Sources>
HWY_INLINE void reduce_short(D, const Op& op, const Sources& sources, std::size_t i,
                             std::size_t count, typename Codec::Storage* out) {
  if constexpr (hn::MaxLanes(D()) > 1) {
    constexpr std::size_t kLanes = lower_lanes<D>();
    const hn::Simd<typename Codec::Accum, kLanes, 0> d;
    for (; i + kLanes <= count; i += kLanes) Codec::store(d, sources.reduce(d, op, i), out + i);
    reduce_short<Codec>(d, op, sources, i, count, out);
  }
}

/// The first and the last vector may overlap their neighbours: no scalar loop is needed, and every
/// vector in between is aligned in the target if its elements are. Both are computed before anything
/// is stored, because the target may be a source. Streaming requires aligned elements and at least
/// one vector of them.
template <class Codec, bool kStream, class Op, class Sources>
HWY_INLINE void reduce_span(const Op& op, const Sources& sources, std::size_t count,
                            typename Codec::Storage* out) {
  const hn::ScalableTag<typename Codec::Accum> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  if constexpr (!kStream) {
    if (count < kLanes) return reduce_short<Codec>(d, op, sources, 0, count, out);
  }
  const auto head = sources.reduce(d, op, 0);
  const auto tail = sources.reduce(d, op, count - kLanes);
  std::size_t i =
      kLanes - reinterpret_cast<std::uintptr_t>(out) / sizeof(typename Codec::Storage) % kLanes;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const auto four = sources.reduce_four(d, op, i);
    put<Codec, kStream>(d, four.v0, out + i);
    put<Codec, kStream>(d, four.v1, out + i + kLanes);
    put<Codec, kStream>(d, four.v2, out + i + 2 * kLanes);
    put<Codec, kStream>(d, four.v3, out + i + 3 * kLanes);
  }
  for (; i + kLanes < count; i += kLanes) {
    put<Codec, kStream>(d, sources.reduce(d, op, i), out + i);
  }
  Codec::store(d, head, out);
  Codec::store(d, tail, out + (count - kLanes));
}

/// Any number of sources from element `begin` on, kept out of line: three callers share it.
template <class Codec, bool kStream, class Op>
HWY_NOINLINE void reduce_many(const Op& op, const ReduceCall& call, std::size_t begin,
                              std::size_t count, void* out) {
  const ManySources<Codec> sources{call.sources, call.num_sources, begin};
  reduce_span<Codec, kStream>(op, sources, count, static_cast<typename Codec::Storage*>(out));
}

/// Writes target and mirror block by block, so that the second write reads the L1 cache. The mirror
/// is written by the C library's copy: it owns the choice between vectors and `rep movsb`, which
/// needs no read for ownership of lines that another core has in its cache.
template <class Codec, class Op>
void reduce_mirrored(const Op& op, const ReduceCall& call, std::size_t count) {
  using Storage = typename Codec::Storage;
  constexpr std::size_t kBlock = kMirrorBlockBytes / sizeof(Storage);
  alignas(64) Storage scratch[kBlock];
  auto* target = static_cast<Storage*>(call.target);
  auto* mirror = static_cast<Storage*>(call.mirror);
  for (std::size_t i = 0; i < count; i += kBlock) {
    const std::size_t n = std::min(kBlock, count - i);
    Storage* out = call.stream_target ? scratch : target + i;
    reduce_many<Codec, false>(op, call, i, n, out);
    if (call.stream_target) copy_vectors<true>(target + i, out, n * sizeof(Storage));
    std::memcpy(mirror + i, out, n * sizeof(Storage));
  }
}

template <class Codec, class Op>
HWY_INLINE void reduce_with(const Op& op, const ReduceCall& call, std::size_t count) {
  using Storage = typename Codec::Storage;
  if (HWY_UNLIKELY(call.mirror != nullptr)) {
    reduce_mirrored<Codec>(op, call, count);
  } else if (HWY_UNLIKELY(call.stream_target && count >= kMinStreamed &&
                          is_aligned<Storage>(call.target))) {
    reduce_many<Codec, true>(op, call, 0, count, call.target);
  } else if (call.num_sources == 2) {
    const TwoSources<Codec> sources{static_cast<const Storage*>(call.sources[0]),
                                    static_cast<const Storage*>(call.sources[1])};
    reduce_span<Codec, false>(op, sources, count, static_cast<Storage*>(call.target));
  } else {
    reduce_many<Codec, false>(op, call, 0, count, call.target);
  }
}

/// A ReduceFunction. kScale is the number of Codec elements per element of the call.
template <class Codec, class Op, std::size_t kScale = 1>
void reduce(const ReduceCall& call) {
  reduce_with<Codec>(Op(call), call, call.count * kScale);
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
