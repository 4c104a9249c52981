#include "planner/double_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/stages.h"
#include "planner/steps.h"

namespace topocoll {

int binary_parent(int label, int n) {
  const int low = label & -label;
  const int up = label + low;
  if ((up & -up) == 2 * low && up <= n) return up;
  return label - low;
}

Tree binary_tree(int ranks, int shift, bool toward_root) {
  Tree tree;
  tree.weight = 1;
  const auto rank_of = [&](int label) { return (label - 1 + shift) % ranks; };
  std::vector<std::vector<int>> children(static_cast<std::size_t>(ranks) + 1);
  for (int label = 1; label <= ranks; ++label) {
    children[static_cast<std::size_t>(binary_parent(label, ranks))].push_back(label);
  }
  std::vector<int> open = children[0];
  tree.root = rank_of(open[0]);
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (const int child : children[static_cast<std::size_t>(open[i])]) {
      tree.hops.push_back({rank_of(open[i]), rank_of(child), {}});
      open.push_back(child);
    }
  }
  if (!toward_root) return tree;
  std::reverse(tree.hops.begin(), tree.hops.end());
  for (Hop& hop : tree.hops) std::swap(hop.from, hop.to);
  return tree;
}

Result<Plan> make_double_tree_plan(int ranks) {
  if (ranks < 1 || ranks > kMaxPlanRanks) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("a plan has 1 to {} ranks, not {}", kMaxPlanRanks, ranks));
  }
  Plan plan;
  plan.kind = CollectiveKind::kAllReduce;
  plan.algorithm = "double_tree";
  plan.ranks = ranks;
  plan.chunks = 2;
  std::vector<Tree> trees;
  for (const int shift : {0, ranks - 1}) {
    for (const bool toward_root : {true, false}) {
      trees.push_back(binary_tree(ranks, shift, toward_root));
    }
  }
  const std::vector<ChunkTrees> chunks = {{&trees[0], &trees[1], 0, 0, 0},
                                          {&trees[2], &trees[3], 1, 1, 1}};
  StageWriter(plan, chunks).write();
  return plan;
}

}  // namespace topocoll
