// Exchange: the ways that the blocks of an all_to_all take, and what no way of sending can exceed.
//
//   Result<Exchange> e = pack_exchange(graph);
//   e->bound, e->algbw()                          // GB/s of the message: all blocks of one rank
//   plan_from_exchange(graph, *e)                 // emit.h
//
// Every rank has a block for every other. Blocks may be cut and pass other ranks, as on machines
// where not all GPUs have a link with each other. The rate is a maximum concurrent flow, solved by
// column generation: a column is how one rank reaches all others, along the cheapest ways for the
// program's prices. What is proved: for any lengths of links, the sum of capacity times length over
// the sum of all distances is at least the rate of each pair (linear duality). Lengths are made
// whole numbers, so that the bound is a fraction and rests on no rounding; a cut is the case of
// lengths 0 and 1. Thread rule: free functions on values. Failure rule: what 64-bit numbers cannot
// hold is kUnsupported; errors of the solver pass through.
#pragma once

#include <vector>

#include "planner/graph.h"
#include "planner/rational.h"
#include "planner/trees.h"
#include "topocoll/status.h"

namespace topocoll {

/// A part of the block from Tree::root to the end of its last hop; the hops follow each other.
struct ExchangeWay {
  Tree way;
  int to = 0;
  double share = 0;  ///< of the block; those of a pair add up to 1
};

struct Exchange {
  std::vector<ExchangeWay> ways;  ///< by pair
  double algbw = 0;               ///< GB/s with these ways and shares
  Rational bound;                 ///< GB/s
  bool reached = false;           ///< algbw is the bound, to 1e-6
  std::vector<int> cut;  ///< nodes whose outgoing links set the bound; empty: no single cut does
};

Result<Exchange> pack_exchange(const Graph& graph);

}  // namespace topocoll
