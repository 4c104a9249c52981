// Merge: one graph of a job out of what each of its ranks sees.
//
// Thread rule: free functions on values. Failure rule: parts that contradict each other are
// kMismatch, and the text names both ranks, the thing and the field.
#pragma once

#include <string>
#include <vector>

#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

struct TopologyPart {
  int rank = 0;
  /// Equal for ranks of one host and different for others.
  std::string host_id;
  Topology topology;
};

/// The same result for the same parts, in whatever order they come.
///
/// Parts of one host become one: nodes, usable CPUs and edges of all of them; of figures,
/// attributes and notes what the lowest rank says counts. Kind, label, level, cache size, PCI
/// address, UUID, place in the tree, declared figures and numbers of links must be the same
/// wherever two ranks see the same thing. The attribute `ranks` of the host lists its ranks.
///
/// Several hosts become several subtrees: the ids of each begin with its host id and a slash, its
/// notes with its name. The host's name is its node's label.
Result<Topology> merge_topologies(std::vector<TopologyPart> parts);

}  // namespace topocoll
