// The network interfaces of this machine, in the network namespace of this process.
//
// Thread rule: free functions. Failure rule: an interface without an address is left out.
#pragma once

#include <string>
#include <vector>

#include "topocoll/status.h"
#include "transport/tcp/socket.h"

namespace topocoll::tcp {

struct Interface {
  std::string name;
  bool loopback = false;
  /// IPv4, then global, then link-local IPv6; the port is 0.
  std::vector<Address> addresses;
};

/// Those that are up and have an address, by name.
Result<std::vector<Interface>> list_interfaces();

}  // namespace topocoll::tcp
