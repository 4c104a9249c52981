// Numbers of bytes as people read and write them. Thread rule: free functions.
// Failure rule: what is no size gives no value; the caller names the flag or field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topocoll/export.h"

namespace topocoll {

/// The largest size that parse_size() knows, in bytes.
inline constexpr std::uint64_t kMaxSize = std::uint64_t(1) << 60;

/// "8", "64k", "64K", "64KiB", "64 KiB" and "1.5G": k, m, g and t in either case are powers of
/// 1024; a fraction of a byte is dropped.
TOPOCOLL_API std::optional<std::uint64_t> parse_size(std::string_view text);

/// "512 B", "4 MiB", "11.5 GiB": rounded to a tenth.
TOPOCOLL_API std::string size_text(std::uint64_t bytes);

}  // namespace topocoll
