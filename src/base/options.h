// Options: the TOPOCOLL_* environment variables as one plain value. options.def is their table.
//
//   Result<Options> options = Options::from_environment();
//   if (!options.ok()) return options.status();
//   if (options->reproducible) ...
//
// They are read once per communicator, at its creation, and carried from there; nothing else in the
// library reads the environment.
// Thread rule: values. As with getenv(), nobody may change the environment during
// from_environment(). Failure rule: an unknown name or a value out of range is kInvalidArgument and
// names what is allowed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "topocoll/communicator.h"
#include "topocoll/options.h"
#include "topocoll/status.h"

namespace topocoll {

enum class ShmBacking : std::uint8_t { kAuto, kMemfd, kDevShm };
enum class ShmCopy : std::uint8_t { kAuto, kMemcpy, kSimd, kString, kStream };
enum class AllReduceAlgorithm : std::uint8_t { kAuto, kOneShot, kExchange, kTwoShot };
enum class LogLevel : std::uint8_t { kError, kWarn, kInfo, kDebug, kTrace, kOff };

/// As they are written in the environment, e.g. "devshm", "two_shot".
std::string_view name(CommitMode mode);
std::string_view name(ShmBacking backing);
std::string_view name(ShmCopy copy);
std::string_view name(AllReduceAlgorithm algorithm);
std::string_view name(LogLevel level);

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Text that is never printed.
struct Secret {
  std::string text;
  friend bool operator==(const Secret&, const Secret&) = default;
};

/// What a value may be: numbers lie in [min, max], texts are that many bytes long, and `absent` is
/// the word for "no value".
struct OptionRule {
  std::uint64_t min = 0;
  std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
  std::string_view absent;
};

struct Options {
#define OPTION(member, type, fallback, name, rule, help) type member = fallback;
#include "base/options.def"
#undef OPTION

  /// Reads the process's environment.
  static Result<Options> from_environment();
  /// Reads "NAME=value" entries, ended by a null pointer; entries of other programs are skipped.
  static Result<Options> from(const char* const* environment);

  friend bool operator==(const Options&, const Options&) = default;
};

/// As the public ones, for a given environment.
OptionTable option_table(const char* const* environment);
Result<std::vector<OptionInfo>> list_options(const char* const* environment);

}  // namespace topocoll
