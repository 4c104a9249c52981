// Counts in words, for texts that people read.
//
// Thread rule: free functions on values. Failure rule: none fails.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace topocoll {

/// "1 rank", "3 ranks", "0.5 blocks".
template <class Number>
std::string counted(Number count, std::string_view thing) {
  const std::string number = fmt::format(std::is_floating_point_v<Number> ? "{:g}" : "{}", count);
  return fmt::format("{} {}{}", number, thing, number == "1" ? "" : "s");
}

}  // namespace topocoll
