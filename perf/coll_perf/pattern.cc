#include "coll_perf/pattern.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

namespace topocoll::perf {
namespace {

using Complex = std::complex<double>;

/// Mixes its argument so that every bit depends on every bit.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

std::uint64_t draw(std::uint64_t salt, int id, std::size_t index) {
  return mix(mix(salt * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(id) + 1) + index);
}

struct FloatFormat {
  int mantissa_bits;
  int bias;
};

/// Of the types that C++ has no type for.
FloatFormat format_of(DataType type) {
  switch (type) {
    case DataType::kF16:
      return {10, 15};
    case DataType::kBF16:
      return {7, 127};
    case DataType::kF8E4M3:
      return {3, 7};
    default:
      return {2, 15};  // kF8E5M2
  }
}

bool is_complex(DataType type) { return type == DataType::kC64 || type == DataType::kC128; }

bool is_floating(DataType type) {
  switch (type) {
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kF32:
    case DataType::kF64:
    case DataType::kC64:
    case DataType::kC128:
    case DataType::kF8E4M3:
    case DataType::kF8E5M2:
      return true;
    default:
      return false;
  }
}

bool is_signed(DataType type) {
  return type == DataType::kI8 || type == DataType::kI16 || type == DataType::kI32 ||
         type == DataType::kI64;
}

/// Significant bits: integers up to 2^this are exact, and one rounding errs by 2^-this.
int precision(DataType type) {
  if (type == DataType::kF32 || type == DataType::kC64) return 24;
  if (type == DataType::kF64 || type == DataType::kC128) return 53;
  return format_of(type).mantissa_bits + 1;
}

/// A whole number such that sums over all ranks, in any order, stay within +-limit.
double small_number(std::uint64_t random, std::size_t index, int rank, int ranks, double limit) {
  const double share = std::floor(limit / ranks);
  if (share >= 1) {
    const auto span = static_cast<std::uint64_t>(std::min(share, 1000.0));
    return static_cast<double>(random % (2 * span + 1)) - static_cast<double>(span);
  }
  const auto turn = (static_cast<std::size_t>(rank) + index) % static_cast<std::size_t>(ranks);
  if (static_cast<double>(turn) >= limit) return 0;
  return (random & 1) != 0 ? 1 : -1;
}

Complex float_contribution(DataType type, ReduceOp op, int rank, int ranks, std::size_t index,
                           std::uint64_t random) {
  const double limit = std::ldexp(1.0, std::min(precision(type), 20));
  const std::uint64_t other = mix(random);
  switch (op) {
    case ReduceOp::kProd: {
      // Units, and a two from three ranks at most: no product leaves the range of any type.
      const auto turn = (static_cast<std::size_t>(rank) + index) % static_cast<std::size_t>(ranks);
      const double size = turn < 3 ? 2 : 1;
      const double sign = (random & 1) != 0 ? size : -size;
      return is_complex(type) && (other & 1) != 0 ? Complex(0, sign) : Complex(sign, 0);
    }
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return small_number(random, index, 0, 1, limit);
    default: {
      // Factors of premul_sum double a number.
      const double bound = op == ReduceOp::kPremulSum ? limit / 2 : limit;
      const double re = small_number(random, index, rank, ranks, bound);
      const double im = is_complex(type) ? small_number(other, index, rank, ranks, bound) : 0;
      return {re, im};
    }
  }
}

Complex float_reduced(DataType type, ReduceOp op, int ranks, std::size_t index,
                      std::uint64_t salt) {
  Complex result;
  for (int rank = 0; rank < ranks; ++rank) {
    Complex value = float_contribution(type, op, rank, ranks, index, draw(salt, rank, index));
    if (op == ReduceOp::kPremulSum) value *= premul_factor(rank);
    if (rank == 0) {
      result = value;
    } else if (op == ReduceOp::kProd) {
      result *= value;
    } else if (op == ReduceOp::kMin) {
      result = std::min(result.real(), value.real());
    } else if (op == ReduceOp::kMax) {
      result = std::max(result.real(), value.real());
    } else {
      result += value;
    }
  }
  return op == ReduceOp::kAvg ? result / static_cast<double>(ranks) : result;
}

void encode_complex(DataType type, Complex value, std::byte* element) {
  encode(type, value.real(), element);
  if (is_complex(type)) encode(type, value.imag(), element + size_of(type) / 2);
}

/// The lowest bytes of `bits` with the type's sign, as a 64-bit number.
std::int64_t widen(DataType type, std::uint64_t bits) {
  const int unused = 64 - 8 * static_cast<int>(size_of(type));
  const std::uint64_t high = bits << unused;
  return is_signed(type) ? static_cast<std::int64_t>(high) >> unused
                         : static_cast<std::int64_t>(high >> unused);
}

std::uint64_t integer_contribution(DataType type, ReduceOp op, int ranks, std::uint64_t random) {
  const auto n = static_cast<std::uint64_t>(ranks);
  if (type == DataType::kBool) {
    const bool conjunction = op == ReduceOp::kProd || op == ReduceOp::kMin || op == ReduceOp::kBand;
    // Rare enough that "and" and "or" over many ranks take both values.
    const bool rare = random % (n + 1) == 0;
    return conjunction != rare ? 1 : 0;
  }
  if (op == ReduceOp::kAvg) {
    // No overflow even in the element type.
    const int bits = 8 * static_cast<int>(size_of(type)) - (is_signed(type) ? 1 : 0);
    const std::uint64_t largest = ~std::uint64_t{0} >> (64 - bits);
    const std::uint64_t span = std::max<std::uint64_t>(largest / n, 1);
    if (!is_signed(type)) return random % (span == largest ? span : span + 1);
    return random % span * ((random >> 63) != 0 ? ~std::uint64_t{0} : 1);
  }
  return static_cast<std::uint64_t>(widen(type, random));
}

std::uint64_t combine_integers(DataType type, ReduceOp op, std::uint64_t a, std::uint64_t b) {
  if (type == DataType::kBool) {
    switch (op) {
      case ReduceOp::kProd:
      case ReduceOp::kMin:
      case ReduceOp::kBand:
        return a & b;
      case ReduceOp::kBxor:
        return a ^ b;
      default:
        return a | b;
    }
  }
  const bool less =
      is_signed(type) ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
  switch (op) {
    case ReduceOp::kProd:
      return static_cast<std::uint64_t>(widen(type, a * b));
    case ReduceOp::kMin:
      return less ? a : b;
    case ReduceOp::kMax:
      return less ? b : a;
    case ReduceOp::kBand:
      return a & b;
    case ReduceOp::kBor:
      return a | b;
    case ReduceOp::kBxor:
      return a ^ b;
    default:
      return static_cast<std::uint64_t>(widen(type, a + b));
  }
}

std::uint64_t integer_reduced(DataType type, ReduceOp op, int ranks, std::size_t index,
                              std::uint64_t salt) {
  std::uint64_t result = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::uint64_t value = integer_contribution(type, op, ranks, draw(salt, rank, index));
    result = rank == 0 ? value : combine_integers(type, op, result, value);
  }
  if (op != ReduceOp::kAvg) return result;
  if (!is_signed(type)) return result / static_cast<std::uint64_t>(ranks);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(result) / ranks);
}

}  // namespace

double premul_factor(int rank) { return rank % 2 == 0 ? 2.0 : 1.0; }

double decode(DataType type, const std::byte* element) {
  if (type == DataType::kF32 || type == DataType::kC64) {
    float value = 0;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  if (type == DataType::kF64 || type == DataType::kC128) {
    double value = 0;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  const FloatFormat format = format_of(type);
  std::uint32_t bits = 0;
  std::memcpy(&bits, element, size_of(type));
  const int width = 8 * static_cast<int>(size_of(type));
  const double sign = (bits >> (width - 1)) != 0 ? -1 : 1;
  const int mantissa = static_cast<int>(bits & ((1U << format.mantissa_bits) - 1));
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) &
                       ((1 << (width - 1 - format.mantissa_bits)) - 1);
  const int hidden = exponent == 0 ? 0 : 1 << format.mantissa_bits;
  return sign *
         std::ldexp(mantissa + hidden, std::max(exponent, 1) - format.bias - format.mantissa_bits);
}

void encode(DataType type, double value, std::byte* element) {
  if (type == DataType::kF32 || type == DataType::kC64) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(element, &narrow, sizeof narrow);
    return;
  }
  if (type == DataType::kF64 || type == DataType::kC128) {
    std::memcpy(element, &value, sizeof value);
    return;
  }
  const FloatFormat format = format_of(type);
  const int least = 1 - format.bias;  // exponent of the smallest normal number
  const double size = std::fabs(value);
  const int exponent = size == 0 ? least : std::max(std::ilogb(size), least);
  // A mantissa that rounds up to the next power of two carries into the exponent by itself.
  const auto scaled =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, format.mantissa_bits - exponent)));
  std::uint32_t bits =
      scaled + (static_cast<std::uint32_t>(exponent - least) << format.mantissa_bits);
  if (std::signbit(value)) bits |= 1U << (8 * size_of(type) - 1);
  std::memcpy(element, &bits, size_of(type));
}

Pattern::Pattern(DataType type, bool inexact)
    : type_(type), inexact_(inexact), element_(size_of(type)), table_(kPeriod * element_) {}

Pattern Pattern::message(DataType type, int id, std::uint64_t salt) {
  Pattern p(type, false);
  for (std::size_t i = 0; i < p.table_.size(); ++i) {
    const std::uint64_t random = draw(salt, id, i);
    p.table_[i] = static_cast<std::byte>(type == DataType::kBool ? random & 1 : random & 0xff);
  }
  return p;
}

Pattern Pattern::contribution(DataType type, ReduceOp op, int rank, int ranks, std::uint64_t salt) {
  Pattern p(type, false);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    std::byte* element = p.table_.data() + i * p.element_;
    const std::uint64_t random = draw(salt, rank, i);
    if (is_floating(type)) {
      encode_complex(type, float_contribution(type, op, rank, ranks, i, random), element);
    } else {
      const std::uint64_t value = integer_contribution(type, op, ranks, random);
      std::memcpy(element, &value, p.element_);
    }
  }
  return p;
}

Pattern Pattern::reduced(DataType type, ReduceOp op, int ranks, std::uint64_t salt) {
  Pattern p(type, op == ReduceOp::kAvg && is_floating(type));
  for (std::size_t i = 0; i < kPeriod; ++i) {
    std::byte* element = p.table_.data() + i * p.element_;
    if (is_floating(type)) {
      encode_complex(type, float_reduced(type, op, ranks, i, salt), element);
    } else {
      const std::uint64_t value = integer_reduced(type, op, ranks, i, salt);
      std::memcpy(element, &value, p.element_);
    }
  }
  return p;
}

void Pattern::fill(void* data, std::size_t count, std::size_t first) const {
  auto* out = static_cast<std::byte*>(data);
  std::size_t at = first % kPeriod;
  while (count > 0) {
    const std::size_t run = std::min(count, kPeriod - at);
    std::memcpy(out, table_.data() + at * element_, run * element_);
    out += run * element_;
    count -= run;
    at = 0;
  }
}

std::size_t Pattern::wrong(const void* data, std::size_t count, std::size_t first) const {
  const auto* in = static_cast<const std::byte*>(data);
  const std::size_t part = is_complex(type_) ? element_ / 2 : element_;
  const double tolerance = inexact_ ? std::ldexp(2.0, -precision(type_)) : 0;
  // -0 and 0 are the same result of a sum.
  const auto differs = [&](const std::byte* got, const std::byte* want) {
    if (std::memcmp(got, want, element_) == 0) return false;
    if (!is_floating(type_)) return true;
    for (std::size_t at = 0; at < element_; at += part) {
      const double expected = decode(type_, want + at);
      const double distance = std::fabs(decode(type_, got + at) - expected);
      if (!(distance <= tolerance * std::fabs(expected))) return true;
    }
    return false;
  };
  std::size_t wrong = 0;
  std::size_t at = first % kPeriod;
  while (count > 0) {
    const std::size_t run = std::min(count, kPeriod - at);
    const std::byte* want = table_.data() + at * element_;
    if (std::memcmp(in, want, run * element_) != 0) {
      for (std::size_t i = 0; i < run; ++i)
        wrong += differs(in + i * element_, want + i * element_) ? 1 : 0;
    }
    in += run * element_;
    count -= run;
    at = 0;
  }
  return wrong;
}

}  // namespace topocoll::perf
