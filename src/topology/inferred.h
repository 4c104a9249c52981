// Which links of a topology a probe inferred: they are no part of the machine's make-up.
//
// Thread rule: a value. Failure rule: none.
#pragma once

#include <set>
#include <string>

#include "topocoll/topology.h"

namespace topocoll {

class InferredLinks {
 public:
  explicit InferredLinks(const Topology& topology) {
    for (const TopologyNode& node : topology.nodes) {
      if (is_inferred(node)) switches_.insert(node.id);
    }
  }
  /// Links of inferred switches, and those between NUMA nodes that nothing declares.
  [[nodiscard]] bool contain(const TopologyEdge& edge) const {
    const Figure& gbps = edge.bandwidth_gbps;
    const bool crossing = edge.kind == "interconnect" && gbps.measured && !gbps.declared;
    return crossing || switches_.contains(edge.from) || switches_.contains(edge.to);
  }

 private:
  std::set<std::string> switches_;
};

}  // namespace topocoll
