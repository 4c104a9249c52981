#include "planner/cost.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

namespace topocoll {
namespace {

Status invalid(std::string text) { return Status(Cause::kInvalidArgument, std::move(text)); }

}  // namespace

CostModel CostModel::declared() {
  CostModel model;
  model.protocols = {{"word_flags", 600, 0.5}, {"line_flags", 1900, 15.0 / 16}, {"bulk", 3400, 1}};
  model.reduce_ns_per_byte = 1.0 / 400;
  model.copy_ns_per_byte = 1.0 / 800;
  return model;
}

const ProtocolCost& CostModel::protocol_for(double bytes, double route_gbps) const {
  const ProtocolCost* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const ProtocolCost& p : protocols) {
    const double ns = p.alpha_ns + bytes / (route_gbps * p.efficiency);
    if (best == nullptr || ns < least) {
      best = &p;
      least = ns;
    }
  }
  return *best;
}

Status check(const CostModel& model) {
  if (model.protocols.empty()) return invalid("cost model: no protocol; give at least one");
  for (const ProtocolCost& p : model.protocols) {
    if (!std::isfinite(p.alpha_ns) || p.alpha_ns < 0) {
      return invalid(fmt::format("cost model: protocol {}: alpha is {} ns", p.name, p.alpha_ns));
    }
    if (!(p.efficiency > 0 && p.efficiency <= 1)) {
      return invalid(
          fmt::format("cost model: protocol {}: efficiency is {}, it must be above 0 and "
                      "at most 1",
                      p.name, p.efficiency));
    }
  }
  for (double ns : {model.reduce_ns_per_byte, model.copy_ns_per_byte}) {
    if (!std::isfinite(ns) || ns < 0) {
      return invalid(fmt::format("cost model: {} ns per byte reduced or copied", ns));
    }
  }
  return Status();
}

}  // namespace topocoll
