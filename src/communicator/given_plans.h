// Given plans: the files that TOPOCOLL_PLAN names, read and proved when a communicator is made.
//
// Thread rule: a free function. Failure rule: a file that cannot be read, is no plan, does not verify, was made
// for another machine, would never run, or may not be used under TOPOCOLL_REPRODUCIBLE is an error that names it. A plan for another number of ranks
// is no error: a job has groups of several sizes, and each uses what is made for it.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

struct GivenPlans {
  std::vector<Plan> plans;  ///< for groups of this size; later ones win
  std::vector<std::string> others;  ///< "file (8 ranks)": those for groups of other sizes
  std::string digest;       ///< "none", or 16 hex digits that are equal where the plans are
};

/// `files` is separated by commas; `forced` is what TOPOCOLL_ALL_REDUCE_ALGORITHM asks for.
Result<GivenPlans> read_given_plans(const std::string& files, int ranks, bool reproducible, AllReduceAlgorithm forced);

}  // namespace topocoll
