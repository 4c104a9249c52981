// File kinds: what topocoll's JSON files hold. A reader that is given another kind says which one
// it is and where it goes; "unknown member" would not help.
//
// Thread rule: that of JsonView. Failure rule: the first error is in the view's JsonErrors.
#pragma once

#include "topology/checked_json.h"

namespace topocoll {

enum class FileKind { kMachine, kPlan, kFabric, kPlanningReport, kClusterReport, kDoctorReport };

/// Fails if `root` is a file of another kind than `wanted`; of what is no known kind, the reader
/// finds out itself.
void refuse_other_files(const JsonView& root, FileKind wanted);

}  // namespace topocoll
