// Checks of a caller's arguments, before an operation has any effect.
#pragma once

#include "topocoll/operation.h"
#include "topocoll/status.h"

namespace topocoll {

/// OK, or kInvalidArgument (kUnsupported for a reduction that its type does not have) naming the field and
/// what is allowed. Looks at the arguments only, never at the data.
Status validate(const Operation& operation, int rank, int ranks);

}  // namespace topocoll
