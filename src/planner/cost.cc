#include "planner/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace topocoll {
namespace {

constexpr std::size_t kMaxPoints = 2000;
constexpr std::size_t kMinSizes = 3;
constexpr double kDeclaredError = 0.1;

Status invalid(std::string text) { return Status(Cause::kInvalidArgument, std::move(text)); }

/// Of at least one value.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Status check_points(std::span<const ProbePoint> points) {
  if (points.size() > kMaxPoints) {
    return invalid(fmt::format("cost fit: {} points, {} are allowed", points.size(), kMaxPoints));
  }
  std::vector<double> sizes;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto [bytes, ns] = points[i];
    if (!std::isfinite(bytes) || bytes < 0 || !std::isfinite(ns) || ns <= 0) {
      return invalid(fmt::format(
          "cost fit: point {} is {} bytes in {} ns; sizes are 0 or more and times above 0", i,
          bytes, ns));
    }
    sizes.push_back(bytes);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (sizes.size() < kMinSizes) {
    return invalid(
        fmt::format("cost fit: {} different sizes; measure at least {}", sizes.size(), kMinSizes));
  }
  return Status();
}

}  // namespace

Result<LineFit> fit_line(std::span<const ProbePoint> points) {
  if (Status s = check_points(points); !s.ok()) return s;
  std::vector<double> slopes;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = i + 1; j < points.size(); ++j) {
      const double run = points[j].bytes - points[i].bytes;
      if (run != 0) slopes.push_back((points[j].ns - points[i].ns) / run);
    }
  }
  LineFit fit;
  fit.ns_per_byte = std::max(0.0, median(std::move(slopes)));
  std::vector<double> rest;
  for (const auto& [bytes, ns] : points) rest.push_back(ns - fit.ns_per_byte * bytes);
  fit.alpha_ns = std::max(0.0, median(std::move(rest)));
  std::vector<double> errors;
  for (const auto& [bytes, ns] : points) {
    fit.residuals_ns.push_back(ns - fit.alpha_ns - fit.ns_per_byte * bytes);
    errors.push_back(std::abs(fit.residuals_ns.back()) / ns);
  }
  fit.median_error = median(std::move(errors));
  return fit;
}

Result<ProtocolCost> measured_protocol(std::string name, LineFit fit, double route_gbps) {
  if (!std::isfinite(route_gbps) || route_gbps <= 0) {
    return invalid(fmt::format("protocol {}: the probed route has {} GB/s; give its bandwidth",
                               name, route_gbps));
  }
  ProtocolCost cost;
  cost.name = std::move(name);
  cost.alpha_ns = fit.alpha_ns;
  cost.efficiency = fit.ns_per_byte > 0 ? std::min(1.0, 1 / (fit.ns_per_byte * route_gbps)) : 1.0;
  cost.measured = true;
  cost.fit = std::move(fit);
  return cost;
}

CostModel CostModel::declared() {
  CostModel model;
  model.protocols = {{"word_flags", 600, 0.5, false, {}},
                     {"line_flags", 1900, 15.0 / 16, false, {}},
                     {"bulk", 3400, 1, false, {}}};
  model.reduce_ns_per_byte = 1.0 / 400;
  model.copy_ns_per_byte = 1.0 / 800;
  return model;
}

CostModel CostModel::uniform(double alpha_ns, double reduce_ns_per_byte) {
  CostModel model;
  model.protocols = {{"uniform", alpha_ns, 1, false, {}}};
  model.reduce_ns_per_byte = reduce_ns_per_byte;
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

double CostModel::relative_error() const {
  double error = 0;
  for (const ProtocolCost& p : protocols) {
    error = std::max(error, p.measured ? p.fit.median_error : kDeclaredError);
  }
  return error;
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
