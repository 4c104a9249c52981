// The operations on accumulator vectors, compiled once per SIMD target (see reduce_kernel-inl.h).
// A floating result that is not a number has one bit pattern, whatever the payloads of the operands:
// which payload an addition keeps depends on how the compiler orders it.
// Thread rule: pure functions.
#include <limits>

#include "hwy/highway.h"

#include "collectives/cpu/reduce_kernel-inl.h"

#if defined(TOPOCOLL_REDUCE_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPOCOLL_REDUCE_OPS_INL_H_
#undef TOPOCOLL_REDUCE_OPS_INL_H_
#else
#define TOPOCOLL_REDUCE_OPS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V canonical(D d, V v) {
  using T = hn::TFromD<D>;
  if constexpr (hwy::IsFloat<T>()) {
    return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), v);
  } else {
    return v;
  }
}

/// What most operations share: no state, the first element as it is, the accumulator as the result.
struct PlainOp {
  explicit PlainOp(const ReduceCall&) {}
  template <class D, class V>
  HWY_INLINE V first(D, V x, int) const {
    return x;
  }
  template <class D, class V>
  HWY_INLINE V finish(D d, V acc) const {
    return canonical(d, acc);
  }
};

struct Sum : PlainOp {
  using PlainOp::PlainOp;
  template <class D, class V>
  HWY_INLINE V fold(D, V acc, V x, int) const {
    return hn::Add(acc, x);
  }
};

struct Prod : PlainOp {
  using PlainOp::PlainOp;
  template <class D, class V>
  HWY_INLINE V fold(D, V acc, V x, int) const {
    return hn::Mul(acc, x);
  }
};

/// Sum, then one division.
struct Average : Sum {
  explicit Average(const ReduceCall& call) : Sum(call), divisor(call.divisor) {}
  template <class D, class V>
  HWY_INLINE V finish(D d, V acc) const {
    return canonical(d, hn::Div(acc, hn::Set(d, static_cast<hn::TFromD<D>>(divisor))));
  }
  int divisor;
};

/// Sum of products with a factor per source. Multiplied and added in two roundings on every target.
struct PremulSum : PlainOp {
  explicit PremulSum(const ReduceCall& call) : PlainOp(call), factors(call.factors) {}
  template <class D, class V>
  HWY_INLINE V first(D d, V x, int k) const {
    return hn::Mul(x, hn::Set(d, static_cast<hn::TFromD<D>>(factors[k])));
  }
  template <class D, class V>
  HWY_INLINE V fold(D d, V acc, V x, int k) const {
    return hn::Add(acc, first(d, x, k));
  }
  const double* factors;
};

/// a < b ? a : b; so b if either is not a number, or if both are zeros.
template <class V>
HWY_INLINE V lesser(V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(a, b);  // minps is defined like this
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}

struct Min : PlainOp {
  using PlainOp::PlainOp;
  /// For floats both orders are taken, and or-ed: equal operands stay, -0 wins over +0, and what is
  /// not a number stays so (its exponent is all ones and its fraction keeps a set bit).
  template <class D, class V>
  HWY_INLINE V fold(D, V acc, V x, int) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::Or(lesser(acc, x), lesser(x, acc));
    } else {
      return hn::Min(acc, x);
    }
  }
};

/// The negated minimum of the negated floats, which gives +0 over -0 and keeps NaN.
struct Max : Min {
  using Min::Min;
  template <class D, class V>
  HWY_INLINE V first(D, V x, int) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::Neg(x);
    } else {
      return x;
    }
  }
  template <class D, class V>
  HWY_INLINE V fold(D d, V acc, V x, int k) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return Min::fold(d, acc, first(d, x, k), k);
    } else {
      return hn::Max(acc, x);
    }
  }
  template <class D, class V>
  HWY_INLINE V finish(D d, V acc) const {
    return canonical(d, first(d, acc, 0));
  }
};

/// Any floating operation, chosen by a branch per vector. For the types whose conversions cost much
/// more than that branch: one loop for all operations instead of one each.
struct AnyOp {
  AnyOp(const ReduceCall& call, ReduceOp which)
      : op(which), average(call), premul(call), min(call), max(call) {}
  template <class D, class V>
  HWY_INLINE V first(D d, V x, int k) const {
    if (op == ReduceOp::kPremulSum) return premul.first(d, x, k);
    return op == ReduceOp::kMax ? max.first(d, x, k) : x;
  }
  template <class D, class V>
  HWY_INLINE V fold(D d, V acc, V x, int k) const {
    switch (op) {
      case ReduceOp::kProd:
        return hn::Mul(acc, x);
      case ReduceOp::kMin:
        return min.fold(d, acc, x, k);
      case ReduceOp::kMax:
        return max.fold(d, acc, x, k);
      default:
        return hn::Add(acc, first(d, x, k));
    }
  }
  template <class D, class V>
  HWY_INLINE V finish(D d, V acc) const {
    if (op == ReduceOp::kAvg) return average.finish(d, acc);
    return op == ReduceOp::kMax ? max.finish(d, acc) : canonical(d, acc);
  }
  ReduceOp op;
  Average average;
  PremulSum premul;
  Min min;
  Max max;
};

template <class Codec>
HWY_NOINLINE void reduce_any(const AnyOp& op, const ReduceCall& call) {
  reduce_with<Codec>(op, call, call.count);
}

template <class Codec, ReduceOp kOp>
void reduce_one(const ReduceCall& call) {
  reduce_any<Codec>(AnyOp(call, kOp), call);
}

template <class Codec>
ReduceFunction find_any(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &reduce_one<Codec, ReduceOp::kSum>;
    case ReduceOp::kAvg:
      return &reduce_one<Codec, ReduceOp::kAvg>;
    case ReduceOp::kProd:
      return &reduce_one<Codec, ReduceOp::kProd>;
    case ReduceOp::kMin:
      return &reduce_one<Codec, ReduceOp::kMin>;
    case ReduceOp::kMax:
      return &reduce_one<Codec, ReduceOp::kMax>;
    case ReduceOp::kPremulSum:
      return &reduce_one<Codec, ReduceOp::kPremulSum>;
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
