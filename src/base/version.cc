#include "topocoll/version.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "topocoll/types.h"

// The build passes the project's version and a digest of the headers that lay out shared data.
#if !defined(TOPOCOLL_PROJECT_VERSION) || !defined(TOPOCOLL_LAYOUT_DIGEST)
#error "src/base/version.cc needs TOPOCOLL_PROJECT_VERSION and TOPOCOLL_LAYOUT_DIGEST"
#endif

namespace topocoll {
namespace {

constexpr int kWireVersion = 1;

#define TOPOCOLL_TEXT_(x) #x
#define TOPOCOLL_TEXT(x) TOPOCOLL_TEXT_(x)
constexpr std::string_view kComposed = TOPOCOLL_TEXT(TOPOCOLL_VERSION_MAJOR) "." TOPOCOLL_TEXT(
    TOPOCOLL_VERSION_MINOR) "." TOPOCOLL_TEXT(TOPOCOLL_VERSION_PATCH);
static_assert(kComposed == TOPOCOLL_VERSION_STRING, "the macros of topocoll/version.h disagree");
static_assert(kComposed == TOPOCOLL_PROJECT_VERSION,
              "topocoll/version.h and the CMake project name different versions");

#if defined(__clang__)
constexpr std::string_view kCompiler = "clang-" __clang_version__;
#elif defined(__GNUC__)
constexpr std::string_view kCompiler = "gcc-" __VERSION__;
#else
#error "topocoll is built with GCC or Clang"
#endif

constexpr std::uint32_t hash(std::uint32_t state, std::uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) {  // FNV-1a
    state = (state ^ static_cast<std::uint32_t>(value >> (8 * byte) & 0xff)) * 16777619u;
  }
  return state;
}

constexpr std::uint32_t layout_hash() {
  std::uint32_t state = 2166136261u;
  for (const char c : std::string_view(TOPOCOLL_LAYOUT_DIGEST)) {
    state = hash(state, static_cast<unsigned char>(c));
  }
  // What the ABI adds to the headers' text.
  for (const std::uint64_t value :
       {std::uint64_t{kWireVersion}, std::uint64_t{__BYTE_ORDER__}, std::uint64_t{sizeof(void*)},
        std::uint64_t{sizeof(long)}, std::uint64_t{alignof(std::max_align_t)},
        std::uint64_t{kNumDataTypes}, std::uint64_t{kNumReduceOps},
        std::uint64_t{kNumCollectiveKinds}}) {
    state = hash(state, value);
  }
  return state;
}

}  // namespace

std::string_view version() { return TOPOCOLL_VERSION_STRING; }

int wire_version() { return kWireVersion; }

std::string_view build_id() {
  static const std::string id = [] {
    // The first word is the number; distributors append their own words to it.
    const auto compiler = kCompiler.substr(0, kCompiler.find(' '));
    return fmt::format("{} {} {:08x}", version(), compiler, layout_hash());
  }();
  return id;
}

}  // namespace topocoll
