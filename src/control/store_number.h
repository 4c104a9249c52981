// The integers of a Store: decimal text, so that set() and add() meet on one key.
//
// Thread rule: pure functions. Failure rule: a value that is no integer, and a sum that does not
// fit 64 bits, are kInvalidArgument.
#pragma once

#include <cstdint>
#include <string>

#include "topocoll/status.h"

namespace topocoll {

/// The integer that `text` spells plus `delta`; a null `text` counts as 0.
Result<std::int64_t> add_to_number(const std::string* text, std::int64_t delta);

}  // namespace topocoll
