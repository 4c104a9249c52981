#include "topocoll/size.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>

namespace topocoll {
namespace {

/// The power of two that a unit stands for; none for what is no unit.
std::optional<int> shift_of(std::string_view unit) {
  if (unit.size() > 1 && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty() || unit == "B") return 0;
  if (unit.size() == 3 && unit.ends_with("iB")) unit.remove_suffix(2);
  const std::size_t place = std::string_view("KkMmGgTt").find(unit.front());
  if (unit.size() != 1 || place == std::string_view::npos) return std::nullopt;
  return 10 * (static_cast<int>(place) / 2 + 1);
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const char* const stop = text.data() + text.size();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), stop, number, std::chars_format::fixed);
  if (error != std::errc() || text.front() == '-' || !std::isfinite(number)) return std::nullopt;
  const auto shift = shift_of({end, static_cast<std::size_t>(stop - end)});
  if (!shift) return std::nullopt;
  std::uint64_t whole = 0;  // a double does not hold every one
  const auto [whole_end, whole_error] = std::from_chars(text.data(), stop, whole);
  if (whole_end == end) {
    if (whole_error != std::errc() || whole > kMaxSize >> *shift) return std::nullopt;
    return whole << *shift;
  }
  const double bytes = std::ldexp(number, *shift);
  if (bytes > static_cast<double>(kMaxSize)) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, kUnits[unit]);
}

}  // namespace topocoll
