// Codecs of the 8- and 16-bit floating types, which accumulate in f32; compiled once per SIMD target.
// Conversions are integer arithmetic on the bits (but for f16, where the target has instructions),
// exact for every code, with one round-to-nearest-even on the way out. They do not depend on the
// thread's denormal mode.
// Thread rule: pure functions.
#include "hwy/highway.h"

#include "collectives/cpu/reduce_kernel-inl.h"
#include "collectives/cpu/reduce_ops-inl.h"

#if defined(TOPOCOLL_REDUCE_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPOCOLL_REDUCE_NARROW_INL_H_
#undef TOPOCOLL_REDUCE_NARROW_INL_H_
#else
#define TOPOCOLL_REDUCE_NARROW_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Storage in S, f32 lanes; Bits converts between codes in u32 lanes and f32.
template <class S, class Bits>
struct Narrow {
  using Storage = S;
  using Accum = float;
  using Short = Narrow;
  static constexpr std::size_t kPerLane = 1;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const S* from) {
    const hn::Rebind<S, D> ds;
    const hn::RebindToUnsigned<D> du;
    return Bits::decode(d, hn::PromoteTo(du, load_lanes(ds, from)));
  }
  template <class D>
  static HWY_INLINE auto pack(D d, hn::Vec<D> v) {
    const hn::Rebind<S, D> ds;
    return hn::TruncateTo(ds, Bits::encode(d, v));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, S* to) {
    store_lanes(hn::Rebind<S, D>(), pack(d, v), to);
  }
  template <class D>
  static HWY_INLINE void stream(D d, hn::Vec<D> v, S* to) {
    stream_lanes(hn::Rebind<S, D>(), pack(d, v), to);
  }
};

/// The upper half of an f32.
struct BFloat16Bits {
  template <class D, class VU>
  static HWY_INLINE hn::Vec<D> decode(D d, VU code) {
    return hn::BitCast(d, hn::ShiftLeft<16>(code));
  }
  /// Rounded to nearest even, with the code in the upper half. The one NaN pattern of canonical()
  /// passes unharmed.
  template <class D>
  static HWY_INLINE auto round(D, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
  }
  template <class D>
  static HWY_INLINE auto encode(D d, hn::Vec<D> v) {
    return hn::ShiftRight<16>(round(d, v));
  }
};

/// IEEE-like formats: sign, exponent of the given bias, kFraction bits. With kInfinity the highest
/// exponent holds infinity and NaN; without, only the code of all ones is NaN and overflow gives it.
template <int kWidth, int kFraction, int kBias, bool kInfinity>
struct SmallFloatBits {
  static constexpr int kShift = 23 - kFraction;
  static constexpr std::uint32_t kSign = 1u << (kWidth - 1);
  static constexpr std::uint32_t kOne = 1u << kFraction;         // lowest bit of the exponent
  static constexpr std::uint32_t kRebias = (127u - kBias) << 23;  // from a shifted code to f32
  static constexpr std::uint32_t kTop = kSign - kOne;            // the highest exponent
  static constexpr std::uint32_t kNaN = kInfinity ? kTop | (kOne >> 1) : kSign - 1;
  static constexpr std::uint32_t kOverflow = kInfinity ? kTop : kNaN;
  // Smallest normal number, as f32 bits.
  static constexpr std::uint32_t kMinNormal = kRebias + (1u << 23);
  // From here on magnitudes round to what lies beyond the largest number: 2^emax with infinity, and
  // without it the place of the NaN code, whose upper neighbours are caught by it as well.
  static constexpr std::uint32_t kLimit =
      kInfinity ? kRebias + (kTop << kShift) : kRebias + (kNaN << kShift);
  // A power of two whose last fraction bit weighs as much as the smallest denormal.
  static constexpr std::uint32_t kAligner = (127u - kBias + 1 + kShift) << 23;

  template <class D, class VU>
  static HWY_INLINE hn::Vec<D> decode(D d, VU code) {
    const hn::RebindToUnsigned<D> du;
    const auto sign = hn::ShiftLeft<32 - kWidth>(hn::And(code, hn::Set(du, kSign)));
    const auto magnitude = hn::And(code, hn::Set(du, kSign - 1));
    const auto shifted = hn::ShiftLeft<kShift>(magnitude);
    auto bits = hn::Add(shifted, hn::Set(du, kRebias));
    // Denormals: as fraction of the smallest normal number, less that number.
    const auto normal_one = hn::BitCast(d, hn::Set(du, kMinNormal));
    const auto denormal =
        hn::Sub(hn::BitCast(d, hn::Add(shifted, hn::Set(du, kMinNormal))), normal_one);
    bits = hn::IfThenElse(below(magnitude, kOne), hn::BitCast(du, denormal), bits);
    if constexpr (kInfinity) {
      const auto special = hn::Or(bits, hn::Set(du, 0x7F800000u));
      bits = hn::IfThenElse(below(magnitude, kTop), bits, special);
    } else {
      const auto nan = hn::Eq(magnitude, hn::Set(du, kNaN));
      bits = hn::IfThenElse(nan, hn::Set(du, 0x7FC00000u), bits);
    }
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  template <class D>
  static HWY_INLINE auto encode(D d, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const auto all = hn::BitCast(du, v);
    const auto bits = hn::And(all, hn::Set(du, 0x7FFFFFFFu));
    const auto sign = hn::And(hn::ShiftRight<32 - kWidth>(all), hn::Set(du, kSign));
    const auto odd = hn::And(hn::ShiftRight<kShift>(bits), hn::Set(du, 1u));
    const auto half = hn::Set(du, (1u << (kShift - 1)) - 1 - kRebias);
    auto code = hn::ShiftRight<kShift>(hn::Add(hn::Add(bits, half), odd));
    const auto aligner = hn::Set(du, kAligner);
    const auto aligned = hn::Add(hn::BitCast(d, bits), hn::BitCast(d, aligner));
    code = hn::IfThenElse(below(bits, kMinNormal), hn::Sub(hn::BitCast(du, aligned), aligner), code);
    code = hn::IfThenElse(below(bits, kLimit), code, hn::Set(du, kOverflow));
    if constexpr (kInfinity) {
      code = hn::IfThenElse(below(bits, 0x7F800001u), code, hn::Set(du, kNaN));
    }
    return hn::Or(code, sign);
  }

 private:
  /// Neither side has the sign bit set, so signed lanes compare them, which every target can.
  template <class VU>
  static HWY_INLINE auto below(VU magnitude, std::uint32_t limit) {
    const hn::DFromV<VU> du;
    const hn::RebindToSigned<decltype(du)> di;
    const auto signed_limit = hn::Set(di, static_cast<std::int32_t>(limit));
    return hn::RebindMask(du, hn::Lt(hn::BitCast(di, magnitude), signed_limit));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
