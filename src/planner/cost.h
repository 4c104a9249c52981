// Cost model: what one message costs, by protocol: alpha + bytes / beta + gamma * bytes for a
// reduction (Hockney 1994; Thakur, Rabenseifner and Gropp 2005).
//
//   CostModel model = CostModel::declared();
//   LineFit line = *fit_line(points);                       // from a probe of one link
//   model.protocols[0] = measured_protocol("bulk", line, 25.0);
//
// alpha_ns is the time per message that its channel is busy with beside moving bytes; the latency
// of the route comes on top. beta is the route's bandwidth times `efficiency`, the payload's part
// of what the wire carries. A message takes whichever protocol is quickest for its size on an idle
// route. Numbers that nobody measured are marked: `measured` is false for them. Units: ns, bytes,
// GB/s = bytes per ns. Thread rule: values. Failure rule: kInvalidArgument naming the point for
// numbers that are not finite or not positive, or too few sizes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "topocoll/status.h"

namespace topocoll {

/// One timing of a message. Several timings of one size are allowed.
struct ProbePoint {
  double bytes = 0;
  double ns = 0;
};

/// time = alpha_ns + ns_per_byte * bytes.
struct LineFit {
  double alpha_ns = 0;
  double ns_per_byte = 0;
  std::vector<double> residuals_ns;  ///< of each point in the order given: measured - predicted
  double median_error = 0;           ///< median of |residual| / measured
};

/// Theil-Sen (Theil 1950, Sen 1968): the slope is the median of the slopes of all pairs of points
/// of different size, alpha the median of what is left; up to 29 % of the points may be wild. A
/// slope or alpha below 0 becomes 0, as noise in short probes can make it so. At least 3 different
/// sizes, at most 2,000 points. One line does not fit across a change of protocol: fit each by
/// itself.
Result<LineFit> fit_line(std::span<const ProbePoint> points);

struct ProtocolCost {
  std::string name;
  double alpha_ns = 0;
  double efficiency = 1;  ///< above 0, at most 1
  bool measured = false;
  LineFit fit;  ///< where it is measured
};

/// From a probe of a route of `route_gbps`: efficiency is what the slope reaches of it, 1 at most.
Result<ProtocolCost> measured_protocol(std::string name, LineFit fit, double route_gbps);

struct CostModel {
  std::vector<ProtocolCost> protocols;  ///< at least one
  double reduce_ns_per_byte = 0;        ///< gamma: per byte of result and further source
  double copy_ns_per_byte = 0;
  bool reduce_is_measured = false;

  /// A starting point for machines that were not probed, all marked as declared: a protocol that
  /// carries a flag with every word (alpha 600 ns, half of the wire), one that carries a flag with
  /// every line (1,900 ns, 15/16), one without flags (3,400 ns), as on NVLink; 1/400 ns per byte
  /// reduced.
  static CostModel declared();
  /// One protocol, for closed forms and tests.
  static CostModel uniform(double alpha_ns, double reduce_ns_per_byte = 0);

  /// The quickest protocol for a message over an idle route.
  [[nodiscard]] const ProtocolCost& protocol_for(double bytes, double route_gbps) const;
  /// Relative error that predictions must be expected to have: the largest median error of the
  /// measured protocols; 0.1 if one is declared only.
  [[nodiscard]] double relative_error() const;
};

/// OK, or which number of the model makes no sense.
Status check(const CostModel& model);

}  // namespace topocoll
