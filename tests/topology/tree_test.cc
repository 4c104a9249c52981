#include "topology/tree.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace topocoll {
namespace {

constexpr std::size_t kNone = TopologyTree::kNone;

Topology topology_of(const std::vector<std::pair<const char*, NodeKind>>& nodes,
                     const std::vector<std::pair<const char*, const char*>>& edges) {
  Topology t;
  for (const auto& [id, kind] : nodes) {
    t.nodes.emplace_back().id = id;
    t.nodes.back().kind = kind;
  }
  for (const auto& [above, below] : edges) t.edges.push_back({above, below, "contains", {}, {}});
  return t;
}

TEST(TopologyTree, ADeviceIsLocalToTheNumaNodeAboveOrTheOnlyOneBesideIt) {
  const Topology t = topology_of({{"host", NodeKind::kHost},
                                  {"package:0", NodeKind::kPackage},
                                  {"numa:0", NodeKind::kNumaNode},
                                  {"package:1", NodeKind::kPackage},
                                  {"numa:1", NodeKind::kNumaNode},
                                  {"numa:2", NodeKind::kNumaNode},
                                  {"below", NodeKind::kGpu},
                                  {"beside one", NodeKind::kGpu},
                                  {"beside two", NodeKind::kGpu},
                                  {"beside three", NodeKind::kGpu}},
                                 {{"host", "package:0"},
                                  {"package:0", "numa:0"},
                                  {"host", "package:1"},
                                  {"package:1", "numa:1"},
                                  {"package:1", "numa:2"},
                                  {"numa:1", "below"},
                                  {"package:0", "beside one"},
                                  {"package:1", "beside two"},
                                  {"host", "beside three"}});
  const TopologyTree tree(t);
  EXPECT_EQ(tree.numa_of(tree.index("below")), tree.index("numa:1"));
  EXPECT_EQ(tree.numa_of(tree.index("beside one")), tree.index("numa:0"));
  EXPECT_EQ(tree.numa_of(tree.index("beside two")), kNone);
  EXPECT_EQ(tree.numa_of(tree.index("beside three")), kNone);
}

TEST(TopologyTree, CyclesEnd) {
  const Topology t = topology_of({{"a", NodeKind::kHost},
                                  {"b", NodeKind::kPackage},
                                  {"numa:0", NodeKind::kNumaNode},
                                  {"gpu", NodeKind::kGpu}},
                                 {{"a", "b"}, {"b", "numa:0"}, {"numa:0", "a"}, {"b", "gpu"}});
  const TopologyTree tree(t);
  EXPECT_EQ(tree.numa_of(tree.index("gpu")), tree.index("numa:0"));
  EXPECT_EQ(tree.path_up(tree.index("gpu")).size(), 5u);
}

/// A machine of so many parts is read in less time than one look at all of them for each would
/// take.
TEST(TopologyTree, ManyDevicesBesideOneNumaNode) {
  Topology t = topology_of({{"host", NodeKind::kHost}, {"numa:0", NodeKind::kNumaNode}},
                           {{"host", "numa:0"}});
  constexpr std::size_t kGpus = 100'000;
  for (std::size_t i = 0; i < kGpus; ++i) {
    t.nodes.emplace_back().id = "gpu:" + std::to_string(i);
    t.nodes.back().kind = NodeKind::kGpu;
    t.edges.push_back({"host", t.nodes.back().id, "contains", {}, {}});
  }
  const TopologyTree tree(t);
  for (std::size_t i = 2; i < kGpus + 2; ++i) ASSERT_EQ(tree.numa_of(i), 1u);
}

}  // namespace
}  // namespace topocoll
