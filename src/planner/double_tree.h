// Double binary trees: the plan for middle sizes, where steps cost more than bytes.
//
//   Result<Plan> plan = make_double_tree_plan(16);
//
// Each half of the message is reduced up a binary tree and comes down again: 2 log2 n steps instead
// of the 2(n-1) of a ring. The second tree is the first with all ranks shifted by one, so a rank
// that passes data on in one tree is a leaf in the other, and no rank sends or receives more than
// the message about twice (P. Sanders, J. Speck and J. Traff, "Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", 2009). Knows nothing of the machine. Thread rule: free
// functions on values. Failure rule: a number of ranks that cannot be served is an error.
#pragma once

#include "planner/trees.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"

namespace topocoll {

/// In-order numbering from 1 to n: a number's height is its trailing zeros. The parent is the
/// neighbour 2^height away that is one higher; where that lies beyond n, the one below takes its
/// place. 0: none, the root.
int binary_parent(int label, int n);

/// The binary tree over 0..n-1 in which even numbers are leaves, toward or away from the root; then
/// every number has `shift` added, modulo n. Hops have no path.
Tree binary_tree(int ranks, int shift, bool toward_root);

/// An all_reduce of two chunks, one for each tree.
Result<Plan> make_double_tree_plan(int ranks);

}  // namespace topocoll
