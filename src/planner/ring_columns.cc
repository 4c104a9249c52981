#include "planner/ring_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/index.h"
#include "planner/cycle_search.h"

namespace topocoll {
namespace {

constexpr double kPriceTolerance = 1e-7;
constexpr int kMaxIterations = 5000;
/// Pricing by local search takes about n^3 steps; large graphs get fewer rings, not more time.
constexpr double kMaxHeuristicSteps = 6.5e6;
constexpr double kMaxHeuristicIterations = 200;

}  // namespace

RingColumns::RingColumns(const Routes& routes) : routes_(routes) {}

void RingColumns::add(const std::vector<int>& order) {
  if (!known_.try_emplace(order, pool_.size()).second) return;
  pool_.push_back(order);
  loads_.push_back(routes_.ring_loads(order));
}

void RingColumns::add_reverse(const std::vector<int>& order) {
  std::vector<int> back(order.rbegin(), order.rend());
  std::rotate(back.begin(), std::find(back.begin(), back.end(), 0), back.end());
  if (routes_.rate(back) > 0) add(back);
}

std::vector<LpEntry> RingColumns::entries(std::size_t k) const {
  std::vector<LpEntry> result;
  for (std::size_t r = 0; r < loads_[k].size(); ++r) {
    if (loads_[k][r] > 0) result.push_back({static_cast<int>(r), loads_[k][r]});
  }
  return result;
}

CheapestCycle<double> RingColumns::price(const std::vector<double>& dual,
                                         const std::vector<double>& capacity) const {
  const int n = routes_.ranks();
  constexpr double kAbsent = std::numeric_limits<double>::infinity();
  std::vector<double> cost(at(n) * at(n), kAbsent);
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      const RankRoute* route = routes_.find(a, b);
      if (route == nullptr) continue;
      double sum = 0;
      for (const Load& l : route->loads) {
        sum += capacity[at(l.resource)] > 0 ? dual[at(l.resource)] * l.load : kAbsent;
      }
      cost[at(a) * at(n) + at(b)] = sum;
    }
  }
  if (n <= kMaxExactRing) return cheapest_cycle(cost, n, kAbsent);
  CheapestCycle<double> cycle;
  cycle.order = cheap_cycle(cost, n, {pool_.back()});
  cycle.cost = cycle.order.empty() ? kAbsent : cycle_cost(cost, cycle.order);
  return cycle;
}

Result<RingColumns::Optimum> RingColumns::solve(const std::vector<double>& capacity) {
  Optimum optimum;
  LinearProgram lp(capacity);
  for (std::size_t k = 0; k < pool_.size(); ++k) lp.add_column(1, entries(k));
  const bool exact = routes_.ranks() <= kMaxExactRing;
  const double limit =
      exact ? kMaxIterations
            : std::min(kMaxHeuristicIterations, kMaxHeuristicSteps / std::pow(routes_.ranks(), 3));
  double bound = std::numeric_limits<double>::infinity();
  for (;;) {
    Result<LpSolution> solution = lp.solve();
    if (!solution.ok()) return solution.status();
    optimum.rate = solution->objective;
    optimum.x = std::move(solution->x);
    ++optimum.iterations;
    const CheapestCycle<double> ring = price(solution->dual, capacity);
    if (!exact) {
      // A ring that was not found may still be cheaper.
    } else if (ring.order.empty()) {
      bound = solution->objective;  // no ring fits at all, or only those of the pool
    } else if (ring.cost > 0) {
      // Prices divided by the cheapest ring's are feasible for the dual program.
      bound = std::min(bound, solution->objective / std::min(ring.cost, 1.0));
    }
    const std::size_t before = pool_.size();
    if (!ring.order.empty() && ring.cost < 1 - kPriceTolerance) {
      add(ring.order);
      // Links mostly come in pairs: the way back is likely to be wanted too.
      add_reverse(ring.order);
    }
    if (pool_.size() == before || optimum.iterations >= limit) break;
    for (std::size_t k = before; k < pool_.size(); ++k) lp.add_column(1, entries(k));
  }
  optimum.upper_bound = std::max(bound, optimum.rate);
  return optimum;
}

}  // namespace topocoll
