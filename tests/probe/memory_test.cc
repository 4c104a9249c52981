#include "probe/memory.h"

#include <gtest/gtest.h>

#include "support/cpus.h"
#include "support/fault_os.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::FaultOs;
using testing::two_cpus;

constexpr std::size_t kMiB = std::size_t{1} << 20;

MemoryRequest request(std::vector<int> cpus) {
  return {.node = 0, .cpus = std::move(cpus), .local = true, .bytes = 16 * kMiB, .time = 50ms};
}

TEST(Memory, OneCpuAndAllOfThemRead) {
  for (const auto& cpus : {std::vector{two_cpus()[0]}, Os::real().usable_cpus()}) {
    const auto figure = measure_memory(Os::real(), request(cpus));
    ASSERT_TRUE(figure.ok()) << figure.status().to_string();
    EXPECT_GT(figure->measured.value_or(0), 0);
    EXPECT_LT(figure->measured.value_or(0), 1e4) << "ten terabytes per second: nothing was read";
    EXPECT_GE(figure->spread->best, *figure->measured);
  }
}

TEST(Memory, WhatCannotBeBoundIsReadWhereItIsNearOnly) {
  FaultOs os;
  os.fail("bind_memory", Status(Cause::kSystem, "mbind: forbidden"));
  MemoryRequest r = request({two_cpus()[0]});
  EXPECT_TRUE(measure_memory(os, r).ok());
  r.local = false;
  EXPECT_EQ(measure_memory(os, r).status().text(), "mbind: forbidden");
  EXPECT_EQ(os.calls("bind_memory"), 2);
}

TEST(Memory, ACpuThatCannotBeHadIsNamed) {
  MemoryRequest r = request({two_cpus()[0], 1 << 19});
  EXPECT_EQ(measure_memory(Os::real(), r).status().text(),
            "CPU 524288: no thread may run there any more");
}

TEST(Memory, ANodeThatIsNotThereIsAnError) {
  MemoryRequest r = request({two_cpus()[0]});
  r.local = false;
  r.node = 1 << 12;
  const Status s = measure_memory(Os::real(), r).status();
  EXPECT_NE(s.text().find("NUMA node 4096"), std::string::npos) << s.text();
}

TEST(Memory, BytesFollowCachesAndWhatIsThere) {
  constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;
  EXPECT_EQ(memory_read_bytes(0, kPlenty), 64 * kMiB);
  EXPECT_EQ(memory_read_bytes(32 * kMiB, kPlenty), 128 * kMiB);
  EXPECT_EQ(memory_read_bytes(std::uint64_t{1} << 62, kPlenty), 512 * kMiB);
  EXPECT_EQ(memory_read_bytes(32 * kMiB, 512 * kMiB), 64 * kMiB);
  EXPECT_EQ(memory_read_bytes(32 * kMiB, 100 * kMiB), 0u);
}

}  // namespace
}  // namespace topocoll
