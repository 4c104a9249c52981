// Hamiltonian cycles of small directed graphs, by dynamic programming over subsets of vertices.
//
//   std::vector<std::uint32_t> successors = ...;       // bit w of successors[v]: v may precede w
//   auto cycle = hamiltonian_cycle(successors);        // from vertex 0; empty if there is none
//
// Costs for n vertices (Held and Karp 1962): existence 2^(n-1) n steps and 2^(n+1) bytes; the
// cheapest cycle 2^(n-1) n^2 steps and 2^(n+2) n bytes, which is 84 MB for 20 vertices. Thread
// rule: free functions on values. Failure rule: none; `n` must be 1 to kMaxExactRing.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace topocoll {

inline constexpr int kMaxExactRing = 20;

/// Any cycle through all vertices, from vertex 0, the same for the same graph.
std::vector<int> hamiltonian_cycle(const std::vector<std::uint32_t>& successors);

template <class Cost>
struct CheapestCycle {
  std::vector<int> order;  ///< from vertex 0; empty if there is none
  Cost cost{};
};

/// The cheapest cycle; cost[v * n + w] is that of w after v, at least 0. `absent` means that w
/// cannot follow v. Cost is an additive number type; sums of n costs must stay below `absent`,
/// and twice `absent` must be a number.
template <class Cost>
CheapestCycle<Cost> cheapest_cycle(const std::vector<Cost>& cost, int n, Cost absent);

extern template CheapestCycle<double> cheapest_cycle(const std::vector<double>&, int, double);
extern template CheapestCycle<std::uint64_t> cheapest_cycle(const std::vector<std::uint64_t>&, int,
                                                            std::uint64_t);

}  // namespace topocoll
