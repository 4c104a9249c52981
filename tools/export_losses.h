// What another format has no room for.
//
// Thread rule: free functions on values. Failure rule: a text that cannot be read back is what is
// said to be lost.
#pragma once

#include <string>

#include "topocoll/topology.h"

namespace topocoll::tools {

/// What of `topology` is gone once `written` is read back: "4 nvlink edges, 1 fault, findings
/// p2p-lies"; empty: links, faults and findings beyond those worth knowing are all there.
std::string losses(const Topology& topology, const std::string& written);

}  // namespace topocoll::tools
