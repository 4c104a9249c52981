// The part of a machine that plans are made for.
//
// Thread rule: a free function on values. Failure rule: that of graph_from_topology().
#pragma once

#include "planner/graph.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

/// What the planner looks at: where NVLink, xGMI or another fabric connects all GPUs, it is used
/// alone. The way through PCIe and the host's memory would add a few per cent at best, and
/// everything else passes there.
struct Machine {
  Graph graph;
  int declared_links = 0;
  int measured_links = 0;
};

Result<Machine> machine_of(const Topology& topology);

}  // namespace topocoll
