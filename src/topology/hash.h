// A short name for a text, the same everywhere and always. No protection against forgery.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace topocoll {

/// FNV-1a of 64 bits.
constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// 16 hexadecimal digits.
inline std::string hash_text(std::string_view text) { return fmt::format("{:016x}", fnv1a(text)); }

}  // namespace topocoll
