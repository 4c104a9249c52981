// "topocoll topo probe-net": what the network between hosts does.
//
// Thread rule: one thread. Failure rule: a Status whose text is one line for the user.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "topocoll/network_probe.h"
#include "topocoll/status.h"

namespace topocoll::tools {

struct ProbeNetRequest {
  bool listen = false;
  std::vector<std::string> on;  ///< of listen: interfaces or addresses
  int port = kNetworkProbePort;
  int seconds = 600;  ///< that listen lasts
  std::vector<std::string> peers;
  std::vector<std::string> interfaces;
  int flow_ms = 200;
  int connect_ms = 1000;
  bool json = false;
};

/// Adds the subcommand to "topo". `exit_status` becomes 3 if something is found; all must outlive
/// the parsing and the action.
void add_probe_net(CLI::App& topo, ProbeNetRequest& request, int& exit_status,
                   std::function<Result<std::string>()>& action);

}  // namespace topocoll::tools
