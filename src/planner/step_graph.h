// Step graph: which steps of a rank must be done before which, from what they read and write.
//
// Edges: the writer of a source before its reader; readers and the writer of a chunk before its
// next writer; sends of one FIFO in their order, receives likewise; all earlier steps before a
// signal, a wait before all later steps. In-place calls are not considered. Thread rule: a value.
// Failure rule: nothing fails; the plan's structure must be right.
#pragma once

#include <vector>

#include "topocoll/plan.h"

namespace topocoll {

struct StepGraph {
  std::vector<std::vector<int>> after;  ///< for each step, those that wait for it, ascending
  std::vector<int> needs;               ///< how many steps each waits for
};

StepGraph make_step_graph(const Plan& plan, int rank);

}  // namespace topocoll
