// Whether this build runs many times slower than one without sanitizers: what is large then only repeats what small
// cases have shown.
#pragma once

namespace topocoll::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace topocoll::testing
