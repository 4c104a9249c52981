#include "planner/double_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/plans.h"

namespace topocoll {
namespace {

TEST(DoubleTree, VerifiesForAnyNumberOfRanks) {
  for (int n = 1; n <= 70; ++n) {
    const Result<Plan> plan = make_double_tree_plan(n);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(verify(*plan).ok()) << n << ": " << verify(*plan).to_string();
    if (n > 20) continue;
    ASSERT_TRUE(testing::computes_right(*plan)) << n;
  }
  EXPECT_FALSE(make_double_tree_plan(0).ok());
  EXPECT_FALSE(make_double_tree_plan(1 << 20).ok());
}

TEST(DoubleTree, IsShallowAndNobodyIsInnerTwice) {
  for (int n = 2; n <= 200; ++n) {
    std::vector<int> inner(static_cast<std::size_t>(n), 0);
    for (const int shift : {0, n - 1}) {
      const Tree tree = binary_tree(n, shift, false);
      ASSERT_EQ(tree.hops.size(), static_cast<std::size_t>(n - 1));
      std::vector<int> children(static_cast<std::size_t>(n), 0);
      std::vector<int> depth(static_cast<std::size_t>(n), 0);
      for (const Hop& hop : tree.hops) {
        ++children[static_cast<std::size_t>(hop.from)];
        depth[static_cast<std::size_t>(hop.to)] = depth[static_cast<std::size_t>(hop.from)] + 1;
      }
      int log = 0;
      while ((1 << log) <= n) ++log;
      ASSERT_LE(*std::max_element(depth.begin(), depth.end()), log) << n;
      for (int r = 0; r < n; ++r) {
        ASSERT_LE(children[static_cast<std::size_t>(r)], 2);
        inner[static_cast<std::size_t>(r)] += children[static_cast<std::size_t>(r)] > 0 ? 1 : 0;
      }
    }
    ASSERT_LE(*std::max_element(inner.begin(), inner.end()), 1) << n;
  }
}

}  // namespace
}  // namespace topocoll
