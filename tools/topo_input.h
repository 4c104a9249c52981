// The machine that a subcommand is about.
//
// Thread rule: one thread. Failure rule: a Status whose text is one line for the user.
#pragma once

#include <string>
#include <vector>

#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll::tools {

/// Where a topology comes from: one of them at most, else this machine.
struct TopoInput {
  std::string file;       ///< any format that import_topology() knows; "-": standard input
  std::string from;       ///< a recorded machine, a directory or an archive
  std::string synthetic;  ///< a hwloc description
};

bool is_given(const TopoInput& input);
/// kInvalidArgument if there are several.
Status check_input(const TopoInput& input);
/// Without any, this machine as it is discovered, and nothing measured.
Result<Topology> load_topology(const TopoInput& input);
/// Without any, this machine with what an earlier probe has kept.
Result<Topology> load_known_topology(const TopoInput& input);

/// Takes these nodes and their links away. kInvalidArgument names one that is not there.
Status leave_out(const std::vector<std::string>& ids, Topology& topology);

}  // namespace topocoll::tools
