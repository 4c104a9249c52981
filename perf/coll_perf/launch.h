// Launch: starts the ranks of a run as processes of this machine and looks after them.
//
// Each rank is a fork() in one process group of its own. Signals to the launcher go on to the
// ranks; when a rank fails the others get a few seconds to learn of it by themselves and are then
// killed; ranks die with their launcher, whatever ends it.
//
// Thread rule: call it before the process has any other thread. Failure rule: see the exit status.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "topocoll/store.h"

namespace topocoll::perf {

/// Exit status of a rank whose output nobody reads any more; not reported.
inline constexpr int kBrokenPipe = 141;

/// A rank's work; returns its exit status.
using RankMain = std::function<int(int rank, int ranks, std::shared_ptr<Store> store)>;

struct Launched {
  /// 0, or the exit status of the first rank that failed (1 if a signal ended it), or 128 + the
  /// signal that ended the launcher.
  int exit_status = 0;
  int failed_rank = -1;  ///< that rank; -1: none, or the launcher itself
  int rank_signal = 0;   ///< that ended it, if one did
};

/// Nothing, or in one line that the limit of open files is too low to start so many ranks.
std::optional<std::string> lack_of_files(int ranks);

/// Runs `ranks` ranks to their end. `program` leads messages on stderr.
Launched launch(const std::string& program, int ranks, const RankMain& rank_main);

}  // namespace topocoll::perf
