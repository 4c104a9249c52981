// Exact rings where hops are independent: thresholds and subset dynamic programming.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "base/index.h"
#include "planner/hamilton.h"
#include "planner/ring_search.h"

namespace topocoll {
namespace {

using Allowed = std::function<bool(int, int, const RankRoute&)>;

std::vector<std::uint32_t> successors(const Routes& routes, const Allowed& allowed) {
  std::vector<std::uint32_t> result(at(routes.ranks()), 0);
  for (int a = 0; a < routes.ranks(); ++a) {
    for (int b = 0; b < routes.ranks(); ++b) {
      const RankRoute* route = routes.find(a, b);
      if (route != nullptr && allowed(a, b, *route)) result[at(a)] |= 1U << b;
    }
  }
  return result;
}

std::vector<double> distinct(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

/// Index of the first of `count` candidates, ordered from strict to lenient, that admits a cycle;
/// `count` if none does.
std::size_t first_feasible(std::size_t count,
                           const std::function<std::vector<std::uint32_t>(std::size_t)>& graph) {
  std::size_t low = 0;
  std::size_t high = count;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (hamiltonian_cycle(graph(middle)).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

double solo_rate_bound(const Routes& routes) {
  std::vector<double> rates;
  for (int a = 0; a < routes.ranks(); ++a) {
    for (int b = 0; b < routes.ranks(); ++b) {
      if (const RankRoute* route = routes.find(a, b)) rates.push_back(route->rate);
    }
  }
  rates = distinct(std::move(rates));
  std::reverse(rates.begin(), rates.end());
  const std::size_t best = first_feasible(rates.size(), [&](std::size_t i) {
    return successors(routes, [&](int, int, const RankRoute& r) { return r.rate >= rates[i]; });
  });
  return best < rates.size() ? rates[best] : 0;
}

std::vector<int> least_skew_ring(const Routes& routes, double rate) {
  const int n = routes.ranks();
  std::vector<double> latencies;
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      const RankRoute* route = routes.find(a, b);
      if (route != nullptr && route->rate >= rate) {
        latencies.push_back(routes.latency_or_worst(a, b));
      }
    }
  }
  latencies = distinct(std::move(latencies));
  const auto within = [&](double limit) {
    return successors(routes, [&, limit](int a, int b, const RankRoute& r) {
      return r.rate >= rate && routes.latency_or_worst(a, b) <= limit;
    });
  };
  const std::size_t best =
      first_feasible(latencies.size(), [&](std::size_t i) { return within(latencies[i]); });
  const double limit = latencies[best];
  const std::vector<std::uint32_t> allowed = within(limit);
  if (latencies.front() == limit) return hamiltonian_cycle(allowed);
  // The sum counts first, then the sum of squares, which for equal sums orders the variances. On a
  // grid of at most 65535 steps, 20 squares stay below 2^37 and 20 sums below 2^21, so both fit one
  // number. The step is a power of ten: latencies are decimal numbers, and equal sums must stay
  // equal.
  constexpr std::uint64_t kGrid = 65535;
  const int digits = static_cast<int>(std::floor(std::log10(static_cast<double>(kGrid) / limit)));
  const double steps_per_ns = std::pow(10.0, digits);
  constexpr std::uint64_t kAbsent = std::uint64_t{1} << 62;
  std::vector<std::uint64_t> cost(at(n) * at(n), kAbsent);
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      if ((allowed[at(a)] >> b & 1U) == 0) continue;
      const auto q =
          static_cast<std::uint64_t>(std::llround(routes.latency_or_worst(a, b) * steps_per_ns));
      cost[at(a) * at(n) + at(b)] = (q << 37) + q * q;
    }
  }
  return cheapest_cycle(cost, n, kAbsent).order;
}

}  // namespace topocoll
