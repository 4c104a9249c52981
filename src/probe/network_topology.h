// What a network probe knows, as a topology.
//
// Thread rule: free functions on values. Failure rule: none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "probe/network_wire.h"
#include "topocoll/network_probe.h"

namespace topocoll::network_probe {

struct Host {
  std::string name;
  Description description;
};

/// "host/port:eth0".
std::string port_id(const std::string& host, const std::string& interface);
/// The pair with its figures, or why there are none.
NetworkPair to_pair(const std::string& from, const std::string& to, const Measurement& measurement);
/// Hosts, ports and edges; what a port does not reach at all is its attribute "unreached HOST".
Topology to_topology(const std::vector<Host>& hosts, const std::vector<NetworkPair>& pairs);

}  // namespace topocoll::network_probe
