// Run: all that one rank does: its communicator, warm-up, timing, checks, and on rank 0 the report.
//
// Thread rule: one thread. Failure rule: errors go to stderr, one line each; see the exit status.
#pragma once

#include <memory>
#include <string>

#include "coll_perf/arguments.h"
#include "topocoll/store.h"

namespace topocoll::perf {

/// Who this rank is.
struct Member {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  std::string program;
  std::shared_ptr<Store> store;
  std::string variables;  ///< that a launcher set, if one did
};

/// 0, or 1 if a value was wrong, the bandwidth too low, or an operation failed; kBrokenPipe if
/// standard output is gone.
int run_rank(const Arguments& arguments, const Member& member);

}  // namespace topocoll::perf
