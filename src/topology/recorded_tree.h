// Whether a recorded machine is fit for hwloc, which opens and reads whatever it finds there.
//
// Thread rule: a free function. Failure rule: kInvalidArgument names the entry.
#pragma once

#include <string>

#include "topocoll/status.h"

namespace topocoll {

/// Below `root` are directories, files of moderate size and links that lead to such or to nothing.
/// A pipe would be waited for, and a link to a device read for ever.
Status check_recorded_tree(const std::string& root);

}  // namespace topocoll
