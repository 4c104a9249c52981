// Typed test data: values that every type can hold exactly, and the expected result of a reduction.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "topocoll/types.h"

namespace topocoll::testing {

class Elements {
 public:
  /// `count` elements as rank `rank` would bring them. Starts at an odd address where the type allows.
  Elements(DataType type, std::size_t count, int rank)
      : type_(type), count_(count), bytes_(count * size_of(type) + kShift) {
    for (std::size_t i = 0; i < count; ++i) store(i, value(type, i, rank));
  }

  [[nodiscard]] std::byte* data() { return bytes_.data() + kShift; }
  [[nodiscard]] const std::byte* data() const { return bytes_.data() + kShift; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] bool same_bits(const std::byte* other) const {
    return count_ == 0 || std::memcmp(data(), other, count_ * size_of(type_)) == 0;
  }
  [[nodiscard]] bool same_bits(const Elements& other) const {
    return other.count_ == count_ && same_bits(other.data());
  }

  /// "" if these are the elements [first, first + count) of the reduction over `ranks` ranks, else the
  /// first that is not. premul_sum has the factor 0.5 (rank + 1).
  [[nodiscard]] std::string compare_reduced(int ranks, ReduceOp op, std::size_t first = 0) const {
    for (std::size_t i = 0; i < count_; ++i) {
      const std::complex<double> want = expected(ranks, op, first + i);
      const std::complex<double> got = load(i);
      const double tolerance = relative_tolerance() * std::max(1.0, std::abs(want)) * ranks;
      if (!(std::abs(got - want) <= tolerance)) {
        return "element " + std::to_string(i) + ": got " + std::to_string(got.real()) + "+" +
               std::to_string(got.imag()) + "i, want " + std::to_string(want.real()) + "+" +
               std::to_string(want.imag()) + "i";
      }
    }
    return "";
  }

 private:
  static constexpr std::size_t kShift = 1;

  static bool is_complex(DataType t) { return t == DataType::kC64 || t == DataType::kC128; }
  static bool is_integer(DataType t) { return t <= DataType::kI64; }

  static std::complex<double> value(DataType type, std::size_t i, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (type == DataType::kBool) return static_cast<double>((i * 3 + r * 5 + i / 7) % 3 == 0);
    // 0, 1 and 2: products of eight of them stay exact in every type.
    double v = static_cast<double>((i + 2 * r + i / 11) % 3);
    const bool is_signed = !(type == DataType::kU8 || type == DataType::kU16 || type == DataType::kU32 ||
                             type == DataType::kU64);
    if (is_signed && (i + r) % 4 == 0) v = -v;
    if (is_complex(type)) return {v, static_cast<double>((i + r) % 2)};
    return v;
  }

  [[nodiscard]] std::complex<double> expected(int ranks, ReduceOp op, std::size_t i) const {
    std::complex<double> acc = value(type_, i, 0);
    std::uint64_t bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(acc.real()));
    if (op == ReduceOp::kPremulSum) acc *= 0.5;
    for (int r = 1; r < ranks; ++r) {
      const std::complex<double> x = value(type_, i, r);
      const auto x_bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(x.real()));
      switch (op) {
        case ReduceOp::kSum:
        case ReduceOp::kAvg: acc += x; break;
        case ReduceOp::kPremulSum: acc += x * (0.5 * (r + 1)); break;
        case ReduceOp::kProd: acc *= x; break;
        case ReduceOp::kMin: acc = std::min(acc.real(), x.real()); break;
        case ReduceOp::kMax: acc = std::max(acc.real(), x.real()); break;
        case ReduceOp::kBand: bits &= x_bits; break;
        case ReduceOp::kBor: bits |= x_bits; break;
        case ReduceOp::kBxor: bits ^= x_bits; break;
      }
    }
    if (op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor) {
      return static_cast<double>(static_cast<std::int64_t>(bits));
    }
    if (type_ == DataType::kBool) return acc.real() != 0 ? 1.0 : 0.0;
    if (op == ReduceOp::kAvg) {
      acc /= ranks;
      if (is_integer(type_)) acc = std::trunc(acc.real());
    }
    return acc;
  }

  [[nodiscard]] double relative_tolerance() const {
    switch (type_) {
      case DataType::kF16: return 1e-3;
      case DataType::kBF16: return 8e-3;
      case DataType::kF8E4M3: return 0.07;
      case DataType::kF8E5M2: return 0.13;
      case DataType::kF32:
      case DataType::kC64: return 1e-6;
      case DataType::kF64:
      case DataType::kC128: return 1e-14;
      default: return 0;
    }
  }

  template <class T>
  void put(std::size_t i, T v) { std::memcpy(data() + i * sizeof(T), &v, sizeof(T)); }
  template <class T>
  [[nodiscard]] T get(std::size_t i) const {
    T v;
    std::memcpy(&v, data() + i * sizeof(T), sizeof(T));
    return v;
  }

  /// A small float format as its bits: exponent and mantissa widths and bias. The test's values are exact.
  static std::uint32_t encode(double v, int exponent_bits, int mantissa_bits) {
    if (v == 0) return std::signbit(v) ? 1u << (exponent_bits + mantissa_bits) : 0;
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(v), &exponent);  // in [0.5, 1)
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto mantissa = static_cast<std::uint32_t>((fraction * 2 - 1) * (1 << mantissa_bits));
    return (v < 0 ? 1u << (exponent_bits + mantissa_bits) : 0) |
           static_cast<std::uint32_t>(exponent - 1 + bias) << mantissa_bits | mantissa;
  }
  static double decode(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    const double mantissa = static_cast<double>(bits & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1 + mantissa, exponent - bias);
    return (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -magnitude : magnitude;
  }

  void store(std::size_t i, std::complex<double> v) {
    const double x = v.real();
    switch (type_) {
      case DataType::kBool:
      case DataType::kU8: return put(i, static_cast<std::uint8_t>(x));
      case DataType::kI8: return put(i, static_cast<std::int8_t>(x));
      case DataType::kU16: return put(i, static_cast<std::uint16_t>(x));
      case DataType::kI16: return put(i, static_cast<std::int16_t>(x));
      case DataType::kU32: return put(i, static_cast<std::uint32_t>(x));
      case DataType::kI32: return put(i, static_cast<std::int32_t>(x));
      case DataType::kU64: return put(i, static_cast<std::uint64_t>(x));
      case DataType::kI64: return put(i, static_cast<std::int64_t>(x));
      case DataType::kF16: return put(i, static_cast<std::uint16_t>(encode(x, 5, 10)));
      case DataType::kBF16: return put(i, static_cast<std::uint16_t>(encode(x, 8, 7)));
      case DataType::kF32: return put(i, static_cast<float>(x));
      case DataType::kF64: return put(i, x);
      case DataType::kC64: return put(i, std::complex<float>(v));
      case DataType::kC128: return put(i, v);
      case DataType::kF8E4M3: return put(i, static_cast<std::uint8_t>(encode(x, 4, 3)));
      case DataType::kF8E5M2: return put(i, static_cast<std::uint8_t>(encode(x, 5, 2)));
    }
  }

  [[nodiscard]] std::complex<double> load(std::size_t i) const {
    switch (type_) {
      case DataType::kBool:
      case DataType::kU8: return static_cast<double>(get<std::uint8_t>(i));
      case DataType::kI8: return static_cast<double>(get<std::int8_t>(i));
      case DataType::kU16: return static_cast<double>(get<std::uint16_t>(i));
      case DataType::kI16: return static_cast<double>(get<std::int16_t>(i));
      case DataType::kU32: return static_cast<double>(get<std::uint32_t>(i));
      case DataType::kI32: return static_cast<double>(get<std::int32_t>(i));
      case DataType::kU64: return static_cast<double>(get<std::uint64_t>(i));
      case DataType::kI64: return static_cast<double>(get<std::int64_t>(i));
      case DataType::kF16: return decode(get<std::uint16_t>(i), 5, 10);
      case DataType::kBF16: return decode(get<std::uint16_t>(i), 8, 7);
      case DataType::kF32: return static_cast<double>(get<float>(i));
      case DataType::kF64: return get<double>(i);
      case DataType::kC64: return std::complex<double>(get<std::complex<float>>(i));
      case DataType::kC128: return get<std::complex<double>>(i);
      case DataType::kF8E4M3: return decode(get<std::uint8_t>(i), 4, 3);
      case DataType::kF8E5M2: return decode(get<std::uint8_t>(i), 5, 2);
    }
    return 0;
  }

  DataType type_;
  std::size_t count_;
  std::vector<std::byte> bytes_;
};

}  // namespace topocoll::testing
