// The reference that reductions are held against: scalar, in source order, one rounding; and random
// elements to reduce.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "topocoll/types.h"

namespace topocoll {
namespace {

__extension__ using Int128 = __int128;
using Bytes = std::vector<unsigned char>;

// ---- Scalar conversions, by the definition of the formats -------------------------------------------

struct Format {
  int width, fraction, bias;
  bool infinity;
};
constexpr Format kHalf{16, 10, 15, true};
constexpr Format kBrain{16, 7, 127, true};
constexpr Format kE4M3{8, 3, 7, false};
constexpr Format kE5M2{8, 2, 15, true};

double decode(const Format& f, std::uint32_t code) {
  const std::uint32_t magnitude = code & ((1u << (f.width - 1)) - 1);
  const double sign = (code >> (f.width - 1)) != 0 ? -1.0 : 1.0;
  const int exponents = 1 << (f.width - 1 - f.fraction);
  const int exponent = static_cast<int>(magnitude >> f.fraction);
  const int fraction = static_cast<int>(magnitude & ((1u << f.fraction) - 1));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.infinity && exponent == exponents - 1) {
    return fraction != 0 ? nan : sign * std::numeric_limits<double>::infinity();
  }
  if (!f.infinity && magnitude == (1u << (f.width - 1)) - 1) return nan;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias - f.fraction);
  return sign * std::ldexp((1 << f.fraction) + fraction, exponent - f.bias - f.fraction);
}

/// The code nearest to the value, found by searching them all by bisection; ties to the even code.
std::uint32_t encode(const Format& f, float value) {
  const std::uint32_t sign = std::signbit(value) ? 1u << (f.width - 1) : 0;
  const std::uint32_t top = (1u << (f.width - 1)) - (1u << f.fraction);  // exponent of all ones
  const std::uint32_t nan = f.infinity ? top | (1u << (f.fraction - 1)) : (1u << (f.width - 1)) - 1;
  if (std::isnan(value)) return nan;
  const std::uint32_t beyond = f.infinity ? top : nan;  // where overflow goes
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) return sign | beyond;
  std::uint32_t low = 0;
  std::uint32_t high = beyond;
  // The place of `beyond`, as if the format went on.
  const auto at = [&](std::uint32_t code) {
    return code == beyond ? 2 * decode(f, code - 1) - decode(f, code - 2) : decode(f, code);
  };
  if (magnitude >= at(beyond)) return sign | beyond;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (at(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - at(low);
  const double above = at(high) - magnitude;
  const bool up = above < below || (above == below && (high & 1) == 0);
  return sign | (up ? high : low);
}

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void save(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// ---- References: one element of every source to one element of the target ----------------------------

struct Element {
  std::vector<const unsigned char*> sources;
  const double* factors;
  int divisor;
  bool tame;  // no overflow or underflow on the way, so that rounding bounds hold
};

template <class T>
T canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <class T>
T minimum(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

template <class A>
A fold_real(const std::vector<A>& x, const Element& e, ReduceOp op) {
  const auto term = [&](std::size_t k) -> A {
    return op == ReduceOp::kPremulSum ? x[k] * static_cast<A>(e.factors[k]) : x[k];
  };
  A acc = term(0);
  for (std::size_t k = 1; k < x.size(); ++k) {
    if (op == ReduceOp::kProd) {
      acc = acc * x[k];
    } else if (op == ReduceOp::kMin) {
      acc = minimum(acc, x[k]);
    } else if (op == ReduceOp::kMax) {
      acc = -minimum<A>(-acc, -x[k]);
    } else {
      acc = acc + term(k);
    }
  }
  if (op == ReduceOp::kAvg) acc = acc / static_cast<A>(e.divisor);
  return canonical(acc);
}

/// Bound of |result - exact| for n roundings of the accumulator.
double real_bound(const std::vector<double>& x, const Element& e, ReduceOp op, double unit) {
  double size = op == ReduceOp::kProd ? 1 : 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const double term =
        std::fabs(op == ReduceOp::kPremulSum ? x[k] * e.factors[k] : x[k]);
    size = op == ReduceOp::kProd ? size * term : size + term;
  }
  if (op == ReduceOp::kAvg) size /= e.divisor;
  return size * unit * static_cast<double>(2 * x.size() + 2);
}

template <class A>
struct RealCase {
  std::function<A(const void*)> decode;
  std::function<void(void*, A)> encode;
  double unit;      // half a step of the type, relative
  double smallest;  // its smallest positive number
};

template <class A>
void expect_near(const RealCase<A>& type, const std::vector<A>& x, const Element& e, ReduceOp op,
                 A got) {
  if (!e.tame) return;  // the bits are compared anyway
  const std::vector<long double> wide(x.begin(), x.end());
  const auto exact = static_cast<double>(fold_real(wide, e, op));
  const double acc_unit = std::numeric_limits<A>::epsilon() / 2;
  const double bound = real_bound(std::vector<double>(x.begin(), x.end()), e, op, acc_unit) +
                       std::fabs(exact) * type.unit * 1.001 + type.smallest;
  ASSERT_LE(std::fabs(static_cast<double>(got) - exact), bound);
}

template <class S>
RealCase<float> narrow_case(const Format& f) {
  return {[f](const void* p) { return static_cast<float>(decode(f, load<S>(p))); },
          [f](void* p, float v) { save(p, static_cast<S>(encode(f, v))); },
          std::ldexp(1.0, -f.fraction - 1), std::ldexp(1.0, 1 - f.bias - f.fraction)};
}

template <class T>
RealCase<T> wide_case() {
  return {load<T>, save<T>, std::numeric_limits<T>::epsilon() / 2,
          static_cast<double>(std::numeric_limits<T>::denorm_min())};
}

template <class A>
void reduce_real(const RealCase<A>& type, const Element& e, ReduceOp op, void* out) {
  std::vector<A> x;
  for (const auto* source : e.sources) x.push_back(type.decode(source));
  type.encode(out, fold_real(x, e, op));
  expect_near(type, x, e, op, type.decode(out));
}

template <class A>
void reduce_complex(const Element& e, ReduceOp op, void* out) {
  using C = std::array<A, 2>;
  std::vector<A> re, im;
  for (const auto* source : e.sources) {
    const C x = load<C>(source);
    re.push_back(x[0]);
    im.push_back(x[1]);
  }
  if (op != ReduceOp::kProd) {
    const C sum{fold_real(re, e, op), fold_real(im, e, op)};
    expect_near(wide_case<A>(), re, e, op, sum[0]);
    expect_near(wide_case<A>(), im, e, op, sum[1]);
    return save(out, sum);
  }
  A a = re[0];
  A b = im[0];
  std::complex<long double> exact(a, b);
  for (std::size_t k = 1; k < re.size(); ++k) {
    const A real = a * re[k] - b * im[k];
    b = a * im[k] + b * re[k];
    a = real;
    exact *= std::complex<long double>(re[k], im[k]);
  }
  save(out, C{canonical(a), canonical(b)});
  if (!e.tame) return;
  // Each product rounds twice in either part.
  const double bound = static_cast<double>(std::abs(exact)) * std::numeric_limits<A>::epsilon() *
                           2 * static_cast<double>(re.size()) +
                       static_cast<double>(std::numeric_limits<A>::min());
  ASSERT_LE(static_cast<double>(std::abs(std::complex<long double>(a, b) - exact)), bound);
}

template <class T>
void reduce_integer(const Element& e, ReduceOp op, void* out) {
  using U = std::make_unsigned_t<T>;
  T acc = load<T>(e.sources[0]);
  Int128 sum = acc;
  for (std::size_t k = 1; k < e.sources.size(); ++k) {
    const T x = load<T>(e.sources[k]);
    sum += x;
    const auto ua = static_cast<std::uint64_t>(acc);
    const auto ux = static_cast<std::uint64_t>(x);
    switch (op) {
      case ReduceOp::kSum:
        acc = static_cast<T>(static_cast<U>(ua + ux));
        break;
      case ReduceOp::kProd:
        acc = static_cast<T>(static_cast<U>(ua * ux));
        break;
      case ReduceOp::kMin:
        acc = std::min(acc, x);
        break;
      case ReduceOp::kMax:
        acc = std::max(acc, x);
        break;
      case ReduceOp::kBand:
        acc = static_cast<T>(ua & ux);
        break;
      case ReduceOp::kBor:
        acc = static_cast<T>(ua | ux);
        break;
      case ReduceOp::kBxor:
        acc = static_cast<T>(ua ^ ux);
        break;
      default:
        break;
    }
  }
  if (op == ReduceOp::kAvg) acc = static_cast<T>(sum / e.divisor);
  save(out, acc);
}

void reduce_bool(const Element& e, ReduceOp op, void* out) {
  const auto at = [&](std::size_t k) { return *e.sources[k] != 0; };
  bool acc = at(0);
  for (std::size_t k = 1; k < e.sources.size(); ++k) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMax:
      case ReduceOp::kBor:
        acc = acc || at(k);
        break;
      case ReduceOp::kBxor:
        acc = acc != at(k);
        break;
      default:
        acc = acc && at(k);
        break;
    }
  }
  save(out, static_cast<unsigned char>(acc ? 1 : 0));
}

void reference(DataType type, ReduceOp op, const Element& e, void* out) {
  switch (type) {
    case DataType::kBool:
      return reduce_bool(e, op, out);
    case DataType::kU8:
      return reduce_integer<std::uint8_t>(e, op, out);
    case DataType::kI8:
      return reduce_integer<std::int8_t>(e, op, out);
    case DataType::kU16:
      return reduce_integer<std::uint16_t>(e, op, out);
    case DataType::kI16:
      return reduce_integer<std::int16_t>(e, op, out);
    case DataType::kU32:
      return reduce_integer<std::uint32_t>(e, op, out);
    case DataType::kI32:
      return reduce_integer<std::int32_t>(e, op, out);
    case DataType::kU64:
      return reduce_integer<std::uint64_t>(e, op, out);
    case DataType::kI64:
      return reduce_integer<std::int64_t>(e, op, out);
    case DataType::kF16:
      return reduce_real(narrow_case<std::uint16_t>(kHalf), e, op, out);
    case DataType::kBF16:
      return reduce_real(narrow_case<std::uint16_t>(kBrain), e, op, out);
    case DataType::kF8E4M3:
      return reduce_real(narrow_case<std::uint8_t>(kE4M3), e, op, out);
    case DataType::kF8E5M2:
      return reduce_real(narrow_case<std::uint8_t>(kE5M2), e, op, out);
    case DataType::kF32:
      return reduce_real(wide_case<float>(), e, op, out);
    case DataType::kF64:
      return reduce_real(wide_case<double>(), e, op, out);
    case DataType::kC64:
      return reduce_complex<float>(e, op, out);
    case DataType::kC128:
      return reduce_complex<double>(e, op, out);
  }
}

// ---- Data ------------------------------------------------------------------------------------------

bool is_integer(DataType type) { return type <= DataType::kI64; }

/// Random elements. Floats: mostly of similar size, so that sums round and do not overflow; some of
/// any bits at all, which includes infinities, NaN and denormals.
template <class Rng>
void fill(DataType type, Bytes& bytes, std::size_t begin, std::size_t count, bool wild, Rng& rng) {
  const std::size_t size = size_of(type);
  std::normal_distribution<double> normal;
  for (std::size_t i = 0; i < count; ++i) {
    unsigned char* at = bytes.data() + begin + i * size;
    if (is_integer(type) || wild) {
      for (std::size_t b = 0; b < size; ++b) at[b] = static_cast<unsigned char>(rng());
      // Small integers, too: products of random ones are soon even, bools never false.
      if (is_integer(type) && rng() % 4 == 0) {
        std::memset(at, 0, size);
        at[0] = static_cast<unsigned char>(rng() % 3);
      }
      continue;
    }
    const double value = normal(rng);
    switch (type) {
      case DataType::kF16:
        save(at, static_cast<std::uint16_t>(encode(kHalf, static_cast<float>(value))));
        break;
      case DataType::kBF16:
        save(at, static_cast<std::uint16_t>(encode(kBrain, static_cast<float>(value))));
        break;
      case DataType::kF8E4M3:
        save(at, static_cast<std::uint8_t>(encode(kE4M3, static_cast<float>(value))));
        break;
      case DataType::kF8E5M2:
        save(at, static_cast<std::uint8_t>(encode(kE5M2, static_cast<float>(value))));
        break;
      case DataType::kF32:
        save(at, static_cast<float>(value));
        break;
      case DataType::kF64:
        save(at, value);
        break;
      case DataType::kC64:
        save(at, std::array<float, 2>{static_cast<float>(value), static_cast<float>(normal(rng))});
        break;
      default:
        save(at, std::array<double, 2>{value, normal(rng)});
        break;
    }
  }
}

constexpr DataType type_at(int i) { return static_cast<DataType>(i); }
constexpr ReduceOp op_at(int i) { return static_cast<ReduceOp>(i); }

template <class Body>
void for_each_type_and_op(const Body& body) {
  for (int type = 0; type < kNumDataTypes; ++type) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      if (!is_defined(op_at(op), type_at(type))) continue;
      body(type_at(type), op_at(op));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace topocoll
