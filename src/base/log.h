// The library's log: one logger, lines on stderr, level from TOPOCOLL_LOG_LEVEL.
//
//   log().warn("rank {} lost peer {}: {}", rank, peer, reason);
//   if (log().should_log(spdlog::level::debug)) log().debug("plan: {}", render_text(plan));
//
// Style: lower case, one line, said once, where the fact is decided. A disabled level costs one
// relaxed load and the evaluation of the arguments; guard arguments that are expensive, as above.
// Thread rule: any thread, also in a child after fork(): a line is one write(2) and holds no lock.
// Failure rule: a line that stderr does not take is lost.
#pragma once

#include <spdlog/logger.h>

#include "base/options.h"

namespace topocoll {

/// The logger named "topocoll".
spdlog::logger& log();

/// Until this is called the level is that of TOPOCOLL_LOG_LEVEL, or warn if that cannot be read.
void set_log_level(LogLevel level);

}  // namespace topocoll
