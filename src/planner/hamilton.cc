#include "planner/hamilton.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/index.h"

namespace topocoll {

// ends[S], S a set of vertices other than 0 (bit v - 1 for vertex v): the vertices at which a path
// from 0 through exactly S can end.
std::vector<int> hamiltonian_cycle(const std::vector<std::uint32_t>& successors) {
  const int n = static_cast<int>(successors.size());
  if (n == 1) return {0};
  std::vector<std::uint32_t> predecessors(at(n), 0);
  for (int v = 0; v < n; ++v) {
    for (int w = 0; w < n; ++w) {
      if (v != w && (successors[at(v)] >> w & 1U) != 0) predecessors[at(w)] |= 1U << v;
    }
  }
  const std::uint32_t all = (1U << (n - 1)) - 1;
  std::vector<std::uint32_t> ends(std::size_t{all} + 1, 0);
  for (std::uint32_t set = 1; set <= all; ++set) {
    std::uint32_t result = 0;
    for (std::uint32_t rest = set; rest != 0; rest &= rest - 1) {
      const int v = std::countr_zero(rest) + 1;
      const std::uint32_t before = set & ~(1U << (v - 1));
      const std::uint32_t from = before == 0 ? 1U : ends[before] << 1;
      if ((from & predecessors[at(v)]) != 0) result |= 1U << (v - 1);
    }
    ends[set] = result;
  }
  std::uint32_t last = (ends[all] << 1) & predecessors[0];
  if (last == 0) return {};
  std::vector<int> order;
  std::uint32_t set = all;
  while (set != 0) {
    const int v = std::countr_zero(last);
    order.push_back(v);
    set &= ~(1U << (v - 1));
    last = (ends[set] << 1) & predecessors[at(v)];
  }
  order.push_back(0);
  std::reverse(order.begin(), order.end());
  return order;
}

template <class Cost>
CheapestCycle<Cost> cheapest_cycle(const std::vector<Cost>& cost, int n, Cost absent) {
  if (n == 1) return {{0}, Cost{}};
  const auto between = [&](int v, int w) { return cost[at(v) * at(n) + at(w)]; };
  const std::size_t m = at(n - 1);
  const std::uint32_t all = (1U << (n - 1)) - 1;
  // into[(w - 1) * m + v - 1]: the cost of w after v, so that the inner loop reads two rows.
  std::vector<Cost> into(m * m, absent);
  for (int v = 1; v < n; ++v) {
    for (int w = 1; w < n; ++w) {
      if (v != w) into[at(w - 1) * m + at(v - 1)] = between(v, w);
    }
  }
  // best[S * m + v - 1]: the cheapest path from 0 through S that ends at v; sums of two absent
  // costs must not wrap around.
  std::vector<Cost> best((std::size_t{all} + 1) * m, absent);
  for (std::uint32_t set = 1; set <= all; ++set) {
    for (std::uint32_t in = set; in != 0; in &= in - 1) {
      const int last = std::countr_zero(in);
      const std::uint32_t before = set & ~(1U << last);
      Cost least = absent;
      if (before == 0) {
        least = std::min(absent, between(0, last + 1));
      } else {
        const Cost* path = best.data() + std::size_t{before} * m;
        const Cost* step = into.data() + at(last) * m;
        for (std::size_t v = 0; v < m; ++v) least = std::min(least, path[v] + step[v]);
      }
      best[std::size_t{set} * m + at(last)] = least;
    }
  }
  // Walk back: at each vertex the predecessor whose sum is the one kept, the lowest of equals.
  CheapestCycle<Cost> result{{}, absent};
  std::uint32_t set = all;
  int next = 0;
  Cost wanted{};
  for (bool first = true; set != 0; first = false) {
    int chosen = 0;
    Cost least = absent;
    for (std::uint32_t in = set; in != 0; in &= in - 1) {
      const int v = std::countr_zero(in) + 1;
      const Cost path = best[std::size_t{set} * m + at(v - 1)];
      if (path >= absent || between(v, next) >= absent) continue;
      const Cost total = path + between(v, next);
      if (first ? total < least : total == wanted && chosen == 0) {
        least = total;
        chosen = v;
      }
    }
    if (chosen == 0) return {{}, absent};
    if (first) result.cost = least;
    result.order.push_back(chosen);
    wanted = best[std::size_t{set} * m + at(chosen - 1)];
    set &= ~(1U << (chosen - 1));
    next = chosen;
  }
  result.order.push_back(0);
  std::reverse(result.order.begin(), result.order.end());
  return result;
}

template CheapestCycle<double> cheapest_cycle(const std::vector<double>&, int, double);
template CheapestCycle<std::uint64_t> cheapest_cycle(const std::vector<std::uint64_t>&, int,
                                                     std::uint64_t);

}  // namespace topocoll
