#include "base/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;

class MemoryLimit : public ::testing::Test {
 protected:
  void file(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(root_ + name).parent_path());
    std::ofstream(root_ + name) << text;
  }
  [[nodiscard]] std::uint64_t available() const { return available_memory_bytes(root_); }
  testing::TemporaryDirectory directory_;
  const std::string& root_ = directory_.path();
};

TEST_F(MemoryLimit, IsWhatTheSystemHas) {
  EXPECT_EQ(available(), kNoMemoryLimit);
  file("/proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    1000 kB\n");
  EXPECT_EQ(available(), 1000u << 10);
}

TEST_F(MemoryLimit, IsLessInAGroupOfVersionTwo) {
  file("/proc/meminfo", "MemAvailable:    1000 kB\n");
  file("/proc/self/cgroup", "0::/job/step\n");
  file("/sys/fs/cgroup/job/step/memory.max", "max\n");
  file("/sys/fs/cgroup/job/memory.max", "5000\n");
  EXPECT_EQ(available(), 5000u);
  file("/sys/fs/cgroup/job/memory.current", "4000\n");
  EXPECT_EQ(available(), 1000u);
  file("/sys/fs/cgroup/job/memory.current", "6000\n");
  EXPECT_EQ(available(), 0u);
  file("/sys/fs/cgroup/job/memory.stat", "anon 9\nactive_file 1500\ninactive_file 500\nslab 7\n");
  EXPECT_EQ(available(), 1000u) << "cached pages are given back";
}

TEST_F(MemoryLimit, IsLessInAGroupOfVersionOne) {
  file("/proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job\n");
  file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7000\n");
  file("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(available(), 6000u);
  file("/sys/fs/cgroup/memory/job/memory.stat",
       "inactive_file 7\ntotal_active_file 300\ntotal_inactive_file 200\n");
  EXPECT_EQ(available(), 6500u);
}

TEST_F(MemoryLimit, NonsenseLimitsNothing) {
  file("/proc/meminfo", "MemAvailable:\n");
  file("/proc/self/cgroup", "\n:::\n0:\n");
  file("/sys/fs/cgroup/memory.max", "-\n");
  EXPECT_EQ(available(), kNoMemoryLimit);
}

TEST(MemoryLimitHere, SomethingIsAvailable) { EXPECT_GT(available_memory_bytes(), 0u); }

}  // namespace
}  // namespace topocoll
