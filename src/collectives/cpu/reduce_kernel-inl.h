// The loops that every reduction shares, compiled once per SIMD target (include after
// hwy/foreach_target.h). A reduction is a Codec (how elements are loaded into and stored from
// accumulator lanes) and an Op (how accumulators combine):
//
//   struct Codec { using Storage; using Accum; static constexpr std::size_t kPerLane;
//                  using Short;  // a codec of the same elements with one per lane
//                  static V load(D, const Storage*); static void store(D, V, Storage*);
//                  static void stream(D, V, Storage*); };
//   struct Op { explicit Op(const ReduceCall&);
//               V first(D, V x, int k); V fold(D, V acc, V x, int k); V finish(D, V acc); };
//
// where V is whatever load() returns: kPerLane elements for each lane of D. All bits are the same on
// every target: each element goes through first(), fold() ... fold(), finish() in the order of the
// sources, in a lane of its own.
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

/// Accumulators, and targets that are mirrored, are worked on in blocks that stay in the L1 cache.
inline constexpr std::size_t kBlockBytes = 8192;

/// As many sources are read side by side; hardware prefetchers follow about that many streams.
inline constexpr int kGroup = 8;

/// Less is not worth a non-temporal store. (At least four of the widest vectors.)
inline constexpr std::size_t kMinStreamedBytes = 4096;

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
  using Short = Plain;
  static constexpr std::size_t kPerLane = 1;
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

template <class Codec, bool kStream, class D, class V>
HWY_INLINE void put(D d, V v, typename Codec::Storage* to) {
  if constexpr (kStream) {
    Codec::stream(d, v, to);
  } else {
    Codec::store(d, v, to);
  }
}

template <class Codec, bool kStream, class D, class V>
HWY_INLINE void put_four(D d, const Four<V>& v, typename Codec::Storage* to) {
  constexpr std::size_t kStep = Codec::kPerLane * hn::MaxLanes(D());
  put<Codec, kStream>(d, v.v0, to);
  put<Codec, kStream>(d, v.v1, to + kStep);
  put<Codec, kStream>(d, v.v2, to + 2 * kStep);
  put<Codec, kStream>(d, v.v3, to + 3 * kStep);
}

/// The common case of two sources: no loop over them, no pointer table.
template <class Storage>
struct TwoSources {
  const Storage* a;
  const Storage* b;

  template <class Codec, class D, class Op>
  HWY_INLINE auto reduce(D d, const Op& op, std::size_t i) const {
    const auto acc = op.first(d, Codec::load(d, a + i), 0);
    return op.finish(d, op.fold(d, acc, Codec::load(d, b + i), 1));
  }

  /// As many times four vectors from element i on as end before `count`; returns where it stopped.
  template <class Codec, bool kStream, class D, class Op>
  HWY_INLINE std::size_t reduce_fours(D d, const Op& op, std::size_t i, std::size_t count,
                                      Storage* out) const {
    constexpr std::size_t kStep = Codec::kPerLane * hn::MaxLanes(D());
    using V = decltype(reduce<Codec>(d, op, i));
    for (; i + 4 * kStep <= count; i += 4 * kStep) {
      const Four<V> v{reduce<Codec>(d, op, i), reduce<Codec>(d, op, i + kStep),
                      reduce<Codec>(d, op, i + 2 * kStep), reduce<Codec>(d, op, i + 3 * kStep)};
      put_four<Codec, kStream>(d, v, out + i);
    }
    return i;
  }
};

template <class Storage>
struct ManySources {
  const void* const* sources;
  int num_sources;
  std::size_t begin;  ///< index of the first element to reduce

  HWY_INLINE const Storage* at(int k, std::size_t i) const {
    return static_cast<const Storage*>(sources[k]) + begin + i;
  }

  template <class Codec, class D, class Op>
  HWY_INLINE auto reduce(D d, const Op& op, std::size_t i) const {
    auto acc = op.first(d, Codec::load(d, at(0, i)), 0);
    for (int k = 1; k < num_sources; ++k) acc = op.fold(d, acc, Codec::load(d, at(k, i)), k);
    return op.finish(d, acc);
  }

  /// Sources are taken in groups: a group runs over a block of accumulators in the L1 cache before
  /// the next one does, so that each source is read in stretches and few are read at a time.
  template <class Codec, bool kStream, class D, class Op>
  HWY_INLINE std::size_t reduce_fours(D d, const Op& op, std::size_t i, std::size_t count,
                                      Storage* out) const {
    constexpr std::size_t kStep = 4 * Codec::kPerLane * hn::MaxLanes(D());
    using V = decltype(reduce<Codec>(d, op, i));
    constexpr std::size_t kBlock = kBlockBytes / sizeof(Four<V>);
    Four<V> block[kBlock];
    while (i + kStep <= count) {
      const std::size_t steps = std::min(kBlock, (count - i) / kStep);
      for (int k = 0; k < num_sources; k += kGroup) {
        const int end = std::min(k + kGroup, num_sources);
        for (std::size_t j = 0; j < steps; ++j) {
          fold_four<Codec>(d, op, k, end, i + j * kStep, block[j]);
          if (end < num_sources) continue;
          const Four<V>& v = block[j];
          const Four<V> done{op.finish(d, v.v0), op.finish(d, v.v1), op.finish(d, v.v2),
                             op.finish(d, v.v3)};
          put_four<Codec, kStream>(d, done, out + i + j * kStep);
        }
      }
      i += steps * kStep;
    }
    return i;
  }

 private:
  /// Folds sources [k, end) into `acc`, which holds what came before k.
  template <class Codec, class D, class Op, class V>
  HWY_INLINE void fold_four(D d, const Op& op, int k, int end, std::size_t i, Four<V>& acc) const {
    constexpr std::size_t kStep = Codec::kPerLane * hn::MaxLanes(D());
    Four<V> v = acc;
    if (k == 0) {
      const Storage* from = at(k++, i);
      v.v0 = op.first(d, Codec::load(d, from), 0);
      v.v1 = op.first(d, Codec::load(d, from + kStep), 0);
      v.v2 = op.first(d, Codec::load(d, from + 2 * kStep), 0);
      v.v3 = op.first(d, Codec::load(d, from + 3 * kStep), 0);
    }
    for (; k < end; ++k) {
      const Storage* from = at(k, i);
      v.v0 = op.fold(d, v.v0, Codec::load(d, from), k);
      v.v1 = op.fold(d, v.v1, Codec::load(d, from + kStep), k);
      v.v2 = op.fold(d, v.v2, Codec::load(d, from + 2 * kStep), k);
      v.v3 = op.fold(d, v.v3, Codec::load(d, from + 3 * kStep), k);
    }
    acc = v;
  }
};

/// The next lower power of 4.
constexpr std::size_t lower_power(std::size_t lanes) {
  std::size_t power = 1;
  while (4 * power < lanes) power *= 4;
  return power;
}

/// Less than kLimit elements: smaller vectors, down to single elements.
template <class Codec, std::size_t kLimit, class Op, class Sources>
HWY_INLINE void reduce_short(const Op& op, const Sources& sources, std::size_t i, std::size_t count,
                             typename Codec::Storage* out) {
  if constexpr (kLimit > 1) {
    constexpr std::size_t kLanes = lower_power(kLimit);
    const hn::Simd<typename Codec::Accum, kLanes, 0> d;
    for (; i + kLanes <= count; i += kLanes) {
      Codec::store(d, sources.template reduce<Codec>(d, op, i), out + i);
    }
    reduce_short<Codec, kLanes>(op, sources, i, count, out);
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
  constexpr std::size_t kStep = Codec::kPerLane * hn::MaxLanes(d);
  if constexpr (!kStream) {
    if (count < kStep) {
      return reduce_short<typename Codec::Short, kStep>(op, sources, 0, count, out);
    }
  }
  const auto head = sources.template reduce<Codec>(d, op, 0);
  const auto tail = sources.template reduce<Codec>(d, op, count - kStep);
  std::size_t i =
      kStep - reinterpret_cast<std::uintptr_t>(out) / sizeof(typename Codec::Storage) % kStep;
  i = sources.template reduce_fours<Codec, kStream>(d, op, i, count, out);
  for (; i + kStep < count; i += kStep) {
    put<Codec, kStream>(d, sources.template reduce<Codec>(d, op, i), out + i);
  }
  Codec::store(d, head, out);
  Codec::store(d, tail, out + (count - kStep));
}

/// Any number of sources from element `begin` on, kept out of line: three callers share it.
template <class Codec, bool kStream, class Op>
HWY_NOINLINE void reduce_many(const Op& op, const ReduceCall& call, std::size_t begin,
                              std::size_t count, void* out) {
  const ManySources<typename Codec::Storage> sources{call.sources, call.num_sources, begin};
  reduce_span<Codec, kStream>(op, sources, count, static_cast<typename Codec::Storage*>(out));
}

/// Writes target and mirror block by block, so that the second write reads the L1 cache. The mirror
/// is written by the C library's copy: it owns the choice between vectors and `rep movsb`, which
/// needs no read for ownership of lines that another core has in its cache.
template <class Codec, class Op>
HWY_NOINLINE void reduce_mirrored(const Op& op, const ReduceCall& call, std::size_t count) {
  using Storage = typename Codec::Storage;
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Storage);
  auto* target = static_cast<Storage*>(call.target);
  auto* mirror = static_cast<Storage*>(call.mirror);
  for (std::size_t i = 0; i < count; i += kBlock) {
    const std::size_t n = std::min(kBlock, count - i);
    reduce_many<Codec, false>(op, call, i, n, target + i);
    std::memcpy(mirror + i, target + i, n * sizeof(Storage));
  }
}

/// The same with a streamed target: each block is made beside it.
template <class Codec, class Op>
HWY_NOINLINE void reduce_mirrored_stream(const Op& op, const ReduceCall& call, std::size_t count) {
  using Storage = typename Codec::Storage;
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Storage);
  alignas(64) Storage block[kBlock];
  auto* target = static_cast<Storage*>(call.target);
  auto* mirror = static_cast<Storage*>(call.mirror);
  for (std::size_t i = 0; i < count; i += kBlock) {
    const std::size_t n = std::min(kBlock, count - i);
    reduce_many<Codec, false>(op, call, i, n, block);
    copy_vectors<true>(target + i, block, n * sizeof(Storage));
    std::memcpy(mirror + i, block, n * sizeof(Storage));
  }
}

template <class Codec, class Op>
HWY_INLINE void reduce_with(const Op& op, const ReduceCall& call, std::size_t count) {
  using Storage = typename Codec::Storage;
  const bool stream = call.stream_target && count * sizeof(Storage) >= kMinStreamedBytes;
  if (HWY_UNLIKELY(call.mirror != nullptr)) {
    if (stream) return reduce_mirrored_stream<Codec>(op, call, count);
    reduce_mirrored<Codec>(op, call, count);
  } else if (HWY_UNLIKELY(stream && is_aligned<Storage>(call.target))) {
    reduce_many<Codec, true>(op, call, 0, count, call.target);
  } else if (call.num_sources == 2) {
    const TwoSources<Storage> sources{static_cast<const Storage*>(call.sources[0]),
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
