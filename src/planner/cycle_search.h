// Cheap Hamiltonian cycles of graphs that are too large for dynamic programming: local search on a
// matrix of costs. It prices rings (ring_columns.h); nothing is proved about the cycle it finds.
// Deterministic. Thread rule: a free function on values. Failure rule: none; see the result.
#pragma once

#include <vector>

namespace topocoll {

/// A cycle from vertex 0 that no move makes cheaper, where a move takes up to three vertices
/// elsewhere, either way round (Or 1976), or reverses a segment. cost[v * n + w] is that of w after
/// v; infinity: w cannot follow v. The search starts at each of `starts` (permutations of 0..n-1,
/// n >= 3) and at a greedy order; the cheapest end is returned, empty if all cost infinity.
std::vector<int> cheap_cycle(const std::vector<double>& cost, int n,
                             const std::vector<std::vector<int>>& starts);

/// What the closed order costs.
double cycle_cost(const std::vector<double>& cost, const std::vector<int>& order);

}  // namespace topocoll
