#include "topology/numa_nodes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "support/temporary_directory.h"
#include "topology/sysfs.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;

class NumaNodesTest : public ::testing::Test {
 protected:
  void node(const std::string& name, const char* cpus) {
    const fs::path below = root_ + "/sys/devices/system/node/" + name;
    fs::create_directories(below);
    std::ofstream(below / "cpulist") << cpus << '\n';
  }
  [[nodiscard]] std::optional<int> of(const std::vector<int>& cpus) const {
    return NumaNodes(root_).of(cpus);
  }
  testing::TemporaryDirectory directory_;
  const std::string& root_ = directory_.path();
};

TEST_F(NumaNodesTest, ARankIsAtTheNodeThatHasAllOfItsCpus) {
  node("node0", "0-3,8-11");
  node("node7", "4-7,12");
  node("node9", "");  // memory without CPUs
  EXPECT_EQ(of({0}), 0);
  EXPECT_EQ(of({3, 8, 11}), 0);
  EXPECT_EQ(of({12, 4}), 7);
  EXPECT_EQ(of({3, 4}), std::nullopt) << "CPUs of two nodes";
  EXPECT_EQ(of({13}), std::nullopt) << "no node has it";
  EXPECT_EQ(of({}), std::nullopt);
}

TEST_F(NumaNodesTest, WhatIsNoNodeIsNotLookedAt) {
  EXPECT_EQ(of({0}), std::nullopt);
  for (const char* name : {"node", "node-1", "node1x", "nod1", "node99999999999999999999"})
    node(name, "0-3");
  EXPECT_EQ(of({0}), std::nullopt);
}

TEST(CpuList, HasWhatLiesInItsRanges) {
  for (const int cpu : {0, 2, 3, 8, 10}) EXPECT_TRUE(cpu_list_contains("0,2-3,8-10", cpu)) << cpu;
  for (const int cpu : {1, 4, 7, 11, -1}) EXPECT_FALSE(cpu_list_contains("0,2-3,8-10", cpu)) << cpu;
  for (const char* list : {"", "x", "-", ",", "1-", "a-3"})
    EXPECT_FALSE(cpu_list_contains(list, 2)) << list;
}

}  // namespace
}  // namespace topocoll
