#include "planner/rings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/hamilton.h"
#include "planner/ring_search.h"

namespace topocoll {
namespace {

/// -1: a is less by more than rounding; 1: greater; 0: equal.
int compare(double a, double b) {
  if (std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b))) return 0;
  return a < b ? -1 : 1;
}

/// The least over all ranks of the fastest way out, and of the fastest way in.
double degree_bound(const Routes& routes) {
  double bound = std::numeric_limits<double>::infinity();
  for (int a = 0; a < routes.ranks(); ++a) {
    double out = 0;
    double in = 0;
    for (int b = 0; b < routes.ranks(); ++b) {
      if (const RankRoute* route = routes.find(a, b)) out = std::max(out, route->rate);
      if (const RankRoute* route = routes.find(b, a)) in = std::max(in, route->rate);
    }
    bound = std::min({bound, out, in});
  }
  return bound;
}

Status no_ring(const Routes& routes, bool proved) {
  for (int a = 0; a < routes.ranks(); ++a) {
    int out = 0;
    int in = 0;
    for (int b = 0; b < routes.ranks(); ++b) {
      out += routes.find(a, b) != nullptr ? 1 : 0;
      in += routes.find(b, a) != nullptr ? 1 : 0;
    }
    if (out == 0 || in == 0) {
      return Status(
          Cause::kUnsupported,
          fmt::format("no ring exists: rank {} has no way {} that avoids other ranks; use "
                      "a tree",
                      a, out == 0 ? "out" : "in"));
    }
  }
  return Status(Cause::kUnsupported,
                fmt::format("{}: use a tree", proved ? "no order of the ranks closes a ring"
                                                     : "no ring was found by local search"));
}

}  // namespace

bool better(const RingCost& a, const RingCost& b) {
  if (const int c = compare(a.rate, b.rate); c != 0) return c > 0;
  if (const int c = compare(a.max_latency_ns, b.max_latency_ns); c != 0) return c < 0;
  if (const int c = compare(a.sum_latency_ns, b.sum_latency_ns); c != 0) return c < 0;
  // A variance is a difference of near equals where hops are alike: compare it against the mean.
  const double noise = 1e-9 * std::pow(std::max(a.max_latency_ns, b.max_latency_ns), 2);
  return a.latency_variance < b.latency_variance - noise &&
         compare(a.latency_variance, b.latency_variance) < 0;
}

RingCost ring_cost(const Routes& routes, std::span<const int> order) {
  RingCost cost;
  cost.rate = routes.rate(order);
  if (cost.rate <= 0) return cost;
  const std::size_t n = order.size();
  for (std::size_t i = 0; i < n; ++i) {
    const double latency = routes.latency_or_worst(order[i], order[(i + 1) % n]);
    cost.max_latency_ns = std::max(cost.max_latency_ns, latency);
    cost.sum_latency_ns += latency;
  }
  const double mean = cost.sum_latency_ns / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double off = routes.latency_or_worst(order[i], order[(i + 1) % n]) - mean;
    cost.latency_variance += off * off / static_cast<double>(n);
  }
  return cost;
}

Result<RingResult> best_ring(const Routes& routes, std::int64_t max_nodes) {
  RingResult result;
  if (routes.ranks() > kMaxExactRing) {
    result.upper_bound = degree_bound(routes);
    if (result.upper_bound <= 0) return no_ring(routes, true);
    result.order = local_search_ring(routes, max_nodes);
    if (result.order.empty()) return no_ring(routes, false);
    result.cost = ring_cost(routes, result.order);
    if (compare(result.cost.rate, result.upper_bound) == 0) result.proof = RingProof::kRateExact;
    return result;
  }
  result.upper_bound = solo_rate_bound(routes);
  if (result.upper_bound <= 0) return no_ring(routes, true);
  if (routes.hops_are_independent()) {
    result.order = least_skew_ring(routes, result.upper_bound);
    result.proof = RingProof::kExact;
  } else {
    BranchResult found = branch_and_bound_ring(routes, local_search_ring(routes, max_nodes / 16),
                                               result.upper_bound, max_nodes);
    if (found.order.empty()) return no_ring(routes, found.rate_is_proved);
    result.order = std::move(found.order);
    result.proof = found.skew_is_proved   ? RingProof::kExact
                   : found.rate_is_proved ? RingProof::kRateExact
                                          : RingProof::kHeuristic;
  }
  result.cost = ring_cost(routes, result.order);
  if (result.proof != RingProof::kHeuristic) result.upper_bound = result.cost.rate;
  return result;
}

}  // namespace topocoll
