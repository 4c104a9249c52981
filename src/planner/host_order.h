// The order of hosts: a ring over the matrix of what each host can send to each other one.
//
//   Result<std::vector<int>> order = order_hosts(graph, split);
//
// With each host as one node, bandwidth from host to host is a max-flow through the network and
// latency the least sum over a path (measured where the links are). The ring has the highest
// bottleneck and then the least skew of latencies (rings.h): exact up to 20 hosts, by local search
// beyond. Thread rule: a free function on values. Failure rule: kUnsupported beyond 256 hosts or
// where no ring exists.
#pragma once

#include <vector>

#include "planner/graph.h"
#include "planner/hosts.h"
#include "topocoll/status.h"

namespace topocoll {

inline constexpr int kMaxOrderedHosts = 256;

/// Hosts in sending order, host 0 first.
Result<std::vector<int>> order_hosts(const Graph& graph, const HostSplit& split);

}  // namespace topocoll
