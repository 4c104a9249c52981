// Cost model: what one message costs, by protocol: alpha + bytes / beta + gamma * bytes for a
// reduction (Hockney 1994; Thakur, Rabenseifner and Gropp 2005).
//
//   CostModel model = CostModel::declared();
//   model.protocol_for(65536, 25.0).name;                   // "line_flags"
//
// alpha_ns is the time per message that its channel is busy with beside moving bytes; the latency
// of the route comes on top. beta is the route's bandwidth times `efficiency`, the payload's part
// of what the wire carries. A message takes whichever protocol is quickest for its size on an idle
// route. Units: ns, bytes, GB/s = bytes per ns. Thread rule: values. Failure rule: check() names
// the number that makes no sense.
#pragma once

#include <string>
#include <vector>

#include "topocoll/status.h"

namespace topocoll {

struct ProtocolCost {
  std::string name;
  double alpha_ns = 0;
  double efficiency = 1;  ///< above 0, at most 1
};

struct CostModel {
  std::vector<ProtocolCost> protocols;  ///< at least one
  double reduce_ns_per_byte = 0;        ///< gamma: per byte of result and further source
  double copy_ns_per_byte = 0;
  double relative_error = 0.1;  ///< that predictions must be expected to have

  /// What no probe measures: a protocol that carries a flag with every word (alpha 600 ns, half of
  /// the wire), one that carries a flag with every line (1,900 ns, 15/16), one without flags
  /// (3,400 ns), as on NVLink; 1/400 ns per byte reduced.
  static CostModel declared();

  /// The quickest protocol for a message over an idle route.
  [[nodiscard]] const ProtocolCost& protocol_for(double bytes, double route_gbps) const;
};

/// OK, or which number of the model makes no sense.
Status check(const CostModel& model);

}  // namespace topocoll
