// Data for transfers: never zeros, which some links and memories compress, and never the same
// twice.
//
// Thread rule: a free function. Failure rule: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace topocoll {

/// Words that look random and go on where the `state` of an earlier call ended.
inline std::vector<std::uint32_t> pattern(std::size_t words, std::uint32_t& state) {
  std::vector<std::uint32_t> made(words);
  for (std::uint32_t& word : made) word = state = state * 1664525U + 1013904223U;
  return made;
}

}  // namespace topocoll
