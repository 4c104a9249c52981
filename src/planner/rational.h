// Rational: exact fractions, so that "the plan reaches the bound" is an equality and not a
// tolerance.
//
//   Rational rate = *Rational::make(1200, 7);
//   rate.to_string()                    // "1200/7"
//
// Numerator and denominator fit 64 bits each; intermediate products are computed in 128 bits, and
// what does not fit afterwards is nothing rather than a wrong number. Thread rule: a value. Failure
// rule: an operation that overflows returns nothing.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace topocoll {

__extension__ using Int128 = __int128;

class Rational {
 public:
  constexpr Rational() = default;
  constexpr explicit Rational(std::int64_t integer) : num_(integer) {}

  /// num / den in lowest terms; nothing if den is 0 or a part does not fit 64 bits.
  static std::optional<Rational> make(Int128 num, Int128 den);
  /// The decimal number that `value` prints as (shortest form that reads back equal): 12.5 is 25/2,
  /// 0.1 is 1/10. Nothing if it is not finite or does not fit.
  static std::optional<Rational> from_decimal(double value);
  /// The fraction of least denominator among the convergents of a positive `value` that is within
  /// 10^-9 of it, relatively: 15.753846153846155 is 1024/65. Nothing if it does not fit.
  static std::optional<Rational> simplest(double value);
  /// "17", "1200/7", "-3/4".
  static std::optional<Rational> parse(std::string_view text);

  [[nodiscard]] constexpr std::int64_t num() const { return num_; }
  /// Always positive.
  [[nodiscard]] constexpr std::int64_t den() const { return den_; }
  [[nodiscard]] double to_double() const {
    return static_cast<double>(num_) / static_cast<double>(den_);
  }
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] std::optional<Rational> times(Rational other) const;
  [[nodiscard]] std::optional<Rational> over(Rational other) const;
  [[nodiscard]] std::optional<Rational> plus(Rational other) const;

  friend constexpr bool operator==(const Rational&, const Rational&) = default;
  friend constexpr std::strong_ordering operator<=>(const Rational& a, const Rational& b) {
    return Int128{a.num_} * b.den_ <=> Int128{b.num_} * a.den_;
  }

 private:
  std::int64_t num_ = 0;
  std::int64_t den_ = 1;
};

/// Greatest common divisor of two numbers that are not negative; gcd(0, x) is x.
Int128 gcd(Int128 a, Int128 b);

/// `value` on a decimal grid whose step is at most 1 % of it (the error at most 0.5 %): steps of 1,
/// 2 or 5 units of the third digit. Measured bandwidths pass through it, so that noise does not
/// make every capacity its own and the common unit of a graph stays coarse.
double quantised(double value);

}  // namespace topocoll
