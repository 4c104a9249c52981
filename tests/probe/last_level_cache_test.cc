#include "probe/last_level_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;

/// CPU 4 of a machine that does not exist.
class LastLevelCacheTest : public ::testing::Test {
 protected:
  void cache(int index, const char* level, const char* size, const char* sharers) {
    const fs::path below =
        root_ + "/sys/devices/system/cpu/cpu4/cache/index" + std::to_string(index);
    fs::create_directories(below);
    std::ofstream(below / "level") << level << '\n';
    std::ofstream(below / "size") << size << '\n';
    std::ofstream(below / "shared_cpu_list") << sharers << '\n';
  }
  [[nodiscard]] std::optional<LastLevelCache> found() const {
    const std::vector<int> cpus{4, 5, 6, 12, 13};
    return last_level_cache(cpus, root_);
  }
  testing::TemporaryDirectory directory_;
  const std::string& root_ = directory_.path();
};

TEST_F(LastLevelCacheTest, IsThatOfTheHighestLevel) {
  cache(0, "1", "32K", "4");
  cache(1, "3", "32768K", "4-5,8,12-15");
  cache(2, "2", "1024K", "4");
  ASSERT_TRUE(found().has_value());
  EXPECT_EQ(found()->bytes, std::uint64_t(32) << 20);
  EXPECT_EQ(found()->cpus, 4) << "CPUs 4, 5, 12 and 13";
}

TEST_F(LastLevelCacheTest, WhatIsNoSizeIsNoCache) {
  EXPECT_FALSE(found().has_value());
  cache(3, "3", "-1K", "4");
  cache(4, "4", "99999999999999999999K", "4");
  cache(5, "5", "32M", "4");
  cache(6, "six", "32K", "4");
  EXPECT_FALSE(found().has_value());
  cache(2, "2", "512K", "nonsense");
  ASSERT_TRUE(found().has_value());
  EXPECT_EQ(found()->bytes, std::uint64_t(512) << 10);
  EXPECT_EQ(found()->cpus, 0);
  EXPECT_FALSE(last_level_cache({}, root_).has_value());
}

TEST(UncachedBytes, RanksThatShareACacheFillItTogether) {
  constexpr std::uint64_t kMiB = std::uint64_t(1) << 20;
  const LastLevelCache all_share{32 * kMiB, 2};
  EXPECT_EQ(uncached_bytes(all_share, 2, 2), 8 * kMiB);
  EXPECT_EQ(uncached_bytes(all_share, 2, 8), 2 * kMiB) << "more ranks than CPUs";
  const LastLevelCache eight_of_64{32 * kMiB, 8};
  EXPECT_EQ(uncached_bytes(eight_of_64, 64, 64), 2 * kMiB);
  EXPECT_EQ(uncached_bytes(eight_of_64, 64, 4), 16 * kMiB) << "one rank on each";
  EXPECT_EQ(uncached_bytes(std::nullopt, 64, 4), 4 * kMiB);
}

}  // namespace
}  // namespace topocoll
