// Ports: whether what a GPU exchanges with several peers goes through one port, as to an NVSwitch,
// or by links of their own, as in a mesh.
//
// No measurement is made here: the caller's function makes those that are asked for, up to six for
// each GPU. Thread rule: a free function. Failure rule: an error of the caller's function ends the
// inference and is returned.
#pragma once

#include <vector>

#include "probe/contention.h"
#include "topocoll/status.h"

namespace topocoll {

/// What leaves and enters a GPU when it exchanges with its peers.
struct GpuPort {
  bool shared_out =
      false;  ///< flows to two peers leave through one port; else by links of their own
  bool shared_in = false;
  double out_gbps = 0;  ///< stores to all its peers at once; 0: it has no peers
  double in_gbps = 0;
};

/// `alone_gbps[from][to]`: what stores between two GPUs carry alone; 0: there is no way.
Result<std::vector<GpuPort>> infer_ports(const std::vector<std::vector<double>>& alone_gbps,
                                         const JointRates& rates);

}  // namespace topocoll
