// The linear program of ring packings: the largest sum of rates such that no resource carries more
// than its capacity, by column generation over a pool of rings. Dual prices make the next ring the
// cheapest Hamiltonian cycle (Held-Karp). Exact for n <= kMaxExactRing: `upper_bound` (Lagrange:
// the value of the program over the price of the cheapest ring) meets `rate` to 1e-6. Beyond, rings
// are priced by local search (cycle_search.h).
//
// Thread rule: one thread at a time. Failure rule: errors of the solver pass through.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "planner/hamilton.h"
#include "planner/routes.h"
#include "planner/simplex.h"
#include "topocoll/status.h"

namespace topocoll {

class RingColumns {
 public:
  explicit RingColumns(const Routes& routes);

  struct Optimum {
    double rate = 0;
    double upper_bound = 0;
    std::vector<double> x;  ///< per ring of pool()
    int iterations = 0;
  };
  /// The best fractional packing into `capacity`, which is by resource as Routes::capacities():
  /// over all rings for n <= kMaxExactRing, else over those that local search finds (then
  /// `upper_bound` is infinite). The pool must not be empty.
  Result<Optimum> solve(const std::vector<double>& capacity);

  /// Adds a ring unless it is there; all its hops must have routes.
  void add(const std::vector<int>& order);
  /// Adds the ring the other way round, if its hops have routes.
  void add_reverse(const std::vector<int>& order);
  [[nodiscard]] const std::vector<std::vector<int>>& pool() const { return pool_; }
  /// What ring `k` loads on each resource.
  [[nodiscard]] const std::vector<double>& loads(std::size_t k) const { return loads_[k]; }

 private:
  [[nodiscard]] std::vector<LpEntry> entries(std::size_t k) const;
  [[nodiscard]] CheapestCycle<double> price(const std::vector<double>& dual,
                                            const std::vector<double>& capacity) const;

  const Routes& routes_;
  std::vector<std::vector<int>> pool_;
  std::vector<std::vector<double>> loads_;
  std::map<std::vector<int>, std::size_t> known_;
};

}  // namespace topocoll
