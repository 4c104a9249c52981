// A short name for a text, the same everywhere and always. No protection against forgery.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace topocoll {

inline constexpr std::uint64_t kFnvOffset = 0xcbf29ce484222325U;
inline constexpr std::uint64_t kFnvPrime = 0x100000001b3U;

/// FNV-1a of 64 bits. Of several texts in a row: `hash` is that of those before.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = kFnvOffset) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

/// 16 hexadecimal digits.
inline std::string hash_text(std::string_view text) { return fmt::format("{:016x}", fnv1a(text)); }

}  // namespace topocoll
