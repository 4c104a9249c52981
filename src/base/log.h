// The library's log: one logger, lines on stderr, level from TOPOCOLL_LOG_LEVEL.
//
//   log().warn("rank {} lost peer {}: {}", rank, peer, reason);
//   if (log().enabled(LogLevel::kDebug)) log().debug("plan: {}", render_text(plan));
//
// Style: lower case, one line, said once, where the fact is decided. A disabled level costs one
// relaxed load and the evaluation of the arguments; guard arguments that are expensive, as above.
// Thread rule: any thread, also in a child after fork(): a line is one write(2) and holds no lock.
// Failure rule: a line that stderr does not take is lost.
#pragma once

#include <string_view>

#include <fmt/core.h>

#include "base/options.h"

namespace topocoll {

/// Formats and writes lines. spdlog does the work behind it; it is not included here because its
/// headers would dominate the build of every file that logs.
class Logger {
 public:
  [[nodiscard]] bool enabled(LogLevel level) const;

  template <class... A>
  void error(fmt::format_string<A...> text, A&&... a) const {
    write(LogLevel::kError, text, fmt::make_format_args(a...));
  }
  template <class... A>
  void warn(fmt::format_string<A...> text, A&&... a) const {
    write(LogLevel::kWarn, text, fmt::make_format_args(a...));
  }
  template <class... A>
  void info(fmt::format_string<A...> text, A&&... a) const {
    write(LogLevel::kInfo, text, fmt::make_format_args(a...));
  }
  template <class... A>
  void debug(fmt::format_string<A...> text, A&&... a) const {
    write(LogLevel::kDebug, text, fmt::make_format_args(a...));
  }
  template <class... A>
  void trace(fmt::format_string<A...> text, A&&... a) const {
    write(LogLevel::kTrace, text, fmt::make_format_args(a...));
  }

 private:
  void write(LogLevel level, fmt::string_view text, fmt::format_args arguments) const;
};

/// The logger named "topocoll". Its level is that of TOPOCOLL_LOG_LEVEL at the first use, or warn
/// if the options cannot be read.
const Logger& log();

}  // namespace topocoll
