// Program: a Plan translated for a shared-memory pipeline.
//
// A rank's steps become actions, sorted into phases: what depends on nothing received is phase 0; what
// depends on a phase-p value of another rank is phase p + 1. A sent chunk becomes a *value*: a cell in the
// sender's part of the ring that every receiver reads in place, so that a chunk sent to many peers is
// written once, and a received chunk that only feeds a reduction is never copied.
//
//   two_shot, n ranks:   phase 0  put the chunks that others own
//                        phase 1  reduce the own chunk from n places, into output and a value
//                        phase 2  copy the other owners' values into the output
//
// Thread rule: a Program is a value.
#pragma once

#include <string>
#include <vector>

#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

/// Where an action reads: a chunk of the caller's own buffers, or a value of some rank (own or other).
struct Operand {
  /// The rank whose own contribution this is; -1: a partial result of several.
  int contributor = -1;
  bool is_value = false;
  ChunkRef chunk;  ///< if not is_value
  int rank = -1;   ///< if is_value
  int value = -1;
};

struct Action {
  enum class Kind : std::uint8_t {
    kPut,     ///< own value `value` = sources[0]
    kReduce,  ///< chunk `target` (if has_target) and own value `value` (if >= 0) = sources reduced
    kCopy,    ///< chunk `target` = sources[0]
  };
  Kind kind = Kind::kCopy;
  std::vector<Operand> sources;
  bool has_target = false;
  ChunkRef target;
  int value = -1;
  bool completes = false;  ///< kReduce: the result holds every rank's contribution
};

/// Before a phase: what must be visible of another rank.
struct Need {
  int rank = -1;
  int phase = 0;  ///< that rank must have finished this phase of the same window
};

struct Phase {
  std::vector<Need> needs;
  std::vector<Action> actions;
};

struct Program {
  std::string algorithm;   ///< the plan's
  int chunks = 1;          ///< the plan's
  int phases = 1;          ///< over all ranks
  int values = 1;          ///< cells per window: the most that any rank needs
  std::vector<Phase> own;  ///< this rank's, `phases` of them
};

/// Translates a plan that verifies. kInvalidArgument if it does not run to its end.
Result<Program> compile(const Plan& plan, int rank);

}  // namespace topocoll
