#include "planner/rational.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

namespace topocoll {

Int128 gcd(Int128 a, Int128 b) {
  while (b != 0) {
    const Int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

std::optional<Rational> Rational::make(Int128 num, Int128 den) {
  if (den == 0) return std::nullopt;
  if (den < 0) {
    num = -num;
    den = -den;
  }
  const Int128 common = gcd(num < 0 ? -num : num, den);
  num /= common;
  den /= common;
  constexpr Int128 kMax = std::numeric_limits<std::int64_t>::max();
  if (num > kMax || num < -kMax || den > kMax) return std::nullopt;
  Rational result;
  result.num_ = static_cast<std::int64_t>(num);
  result.den_ = static_cast<std::int64_t>(den);
  return result;
}

std::optional<Rational> Rational::from_decimal(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  // Scientific form: d.ddd...e[+-]xx, at most 17 digits, so digits fit 64 bits.
  std::array<char, 64> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific);
  if (error != std::errc()) return std::nullopt;
  Int128 digits = 0;
  int exponent = 0;
  bool negative = false;
  bool fraction = false;
  for (const char* at = text.data(); at != end; ++at) {
    if (*at == '-') {
      negative = true;
    } else if (*at == '.') {
      fraction = true;
    } else if (*at == 'e') {
      exponent += std::atoi(at + 1);
      break;
    } else {
      digits = digits * 10 + (*at - '0');
      if (fraction) --exponent;
    }
  }
  if (digits == 0) return Rational();
  // Beyond 10^18 the result cannot fit anyway, but for trailing zeros, which the shortest form
  // lacks.
  if (exponent > 18 || exponent < -36) return std::nullopt;
  Int128 power = 1;
  for (int i = 0; i < std::abs(exponent); ++i) power *= 10;
  if (negative) digits = -digits;
  return exponent < 0 ? make(digits, power) : make(digits * power, 1);
}

std::optional<Rational> Rational::simplest(double value) {
  constexpr double kTolerance = 1e-9;
  constexpr double kMost = 1e9;  // parts and denominators beyond do not occur within the tolerance
  if (!(value > 0 && value < kMost)) return std::nullopt;
  Int128 num = 1, num_before = 0;
  Int128 den = 0, den_before = 1;
  double rest = value;
  while (true) {
    const double part = std::floor(rest);
    if (part > kMost) return std::nullopt;
    const auto whole = static_cast<std::int64_t>(part);
    num_before = std::exchange(num, whole * num + num_before);
    den_before = std::exchange(den, whole * den + den_before);
    if (den > static_cast<Int128>(kMost)) return std::nullopt;
    const double reached = static_cast<double>(num) / static_cast<double>(den);
    if (std::abs(reached - value) <= kTolerance * value) return make(num, den);
    if (rest == part) return std::nullopt;
    rest = 1 / (rest - part);
  }
}

std::optional<Rational> Rational::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto integer = [](std::string_view part) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
    return value;
  };
  const auto num = integer(text.substr(0, slash));
  const auto den = slash == std::string_view::npos ? std::optional<std::int64_t>(1)
                                                   : integer(text.substr(slash + 1));
  if (!num || !den) return std::nullopt;
  return make(*num, *den);
}

std::string Rational::to_string() const {
  return den_ == 1 ? fmt::format("{}", num_) : fmt::format("{}/{}", num_, den_);
}

std::optional<Rational> Rational::times(Rational other) const {
  return make(Int128{num_} * other.num_, Int128{den_} * other.den_);
}

std::optional<Rational> Rational::over(Rational other) const {
  return make(Int128{num_} * other.den_, Int128{den_} * other.num_);
}

std::optional<Rational> Rational::plus(Rational other) const {
  const Int128 left = Int128{num_} * other.den_;
  const Int128 right = Int128{other.num_} * den_;
  return make(left + right, Int128{den_} * other.den_);
}

double quantised(double value) {
  if (!std::isfinite(value) || value <= 0) return value;
  const int exponent = static_cast<int>(std::floor(std::log10(value)));
  const double leading = value / std::pow(10.0, exponent);  // 1 to 10, but for rounding
  const int step = leading < 2 ? 1 : leading < 5 ? 2 : 5;
  const auto thirds = static_cast<std::int64_t>(std::llround(leading * 100 / step)) * step;
  // Through decimal text, so that the result is the decimal number nearest to thirds *
  // 10^(exponent-2).
  return std::strtod(fmt::format("{}e{}", thirds, exponent - 2).c_str(), nullptr);
}

}  // namespace topocoll
