// This machine as the network probe sees it.
//
// Thread rule: free functions. Failure rule: a Status that names the interface and what there is.
#pragma once

#include <string>
#include <vector>

#include "probe/network_wire.h"
#include "transport/tcp/interfaces.h"

namespace topocoll::network_probe {

/// TOPOCOLL_JOB_SECRET; kInvalidArgument if it is not set.
Result<std::string> job_secret();
/// TOPOCOLL_HOST_ID, else the kernel's name of this machine.
Result<std::string> host_name();
/// Those that are named, by interface or address, with the addresses named; without names all but
/// the loopback.
Result<std::vector<tcp::Interface>> chosen_interfaces(const std::vector<std::string>& names);
/// What a driver says of an interface's speed in 10^6 bits per second; 0: nothing.
std::uint32_t interface_mbit(const std::string& name);
InterfaceFacts describe(const tcp::Interface& interface, std::uint16_t port);

}  // namespace topocoll::network_probe
