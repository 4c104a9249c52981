// Copies over CPU memory. Which one wins depends on the machine and on where the lines are cached, so
// the start-up probe times them and a communicator carries the winner.
// Thread rule: pure functions. Source and target do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace topocoll {

enum class CopyKind : std::uint8_t {
  kMemcpy,  ///< the C library's choice
  kSimd,    ///< widest vector loads and stores
  kString,  ///< rep movsb (x86 with ERMS); falls back to kMemcpy elsewhere
  kStream,  ///< non-temporal stores with a fence at the end; falls back to kSimd elsewhere
};
inline constexpr int kNumCopyKinds = 4;
std::string_view name(CopyKind kind);

using CopyFunction = void (*)(void* target, const void* source, std::size_t bytes);
CopyFunction copy_function(CopyKind kind);

}  // namespace topocoll
