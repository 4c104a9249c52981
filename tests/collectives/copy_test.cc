#include "collectives/cpu/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "collectives/cpu/reduce_targets.h"
#include "hwy/highway.h"

namespace topocoll {
namespace {

constexpr std::size_t kGuard = 128;

CopyKind kind_at(int i) { return static_cast<CopyKind>(i); }

void expect_copied(CopyKind kind, std::size_t bytes, std::size_t to, std::size_t from) {
  std::mt19937 rng(static_cast<unsigned>(bytes + to * 131 + from));
  std::vector<unsigned char> source(from + bytes + kGuard);
  for (auto& byte : source) byte = static_cast<unsigned char>(rng());
  std::vector<unsigned char> target(kGuard + to + bytes + kGuard, 0xA5);
  std::vector<unsigned char> expected = target;
  std::copy_n(source.begin() + from, bytes, expected.begin() + kGuard + to);
  copy_function(kind)(target.data() + kGuard + to, source.data() + from, bytes);
  ASSERT_EQ(target, expected) << name(kind) << " " << bytes << " to " << to << " from " << from;
}

template <class Body>
void for_each_target_and_kind(const Body& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for (int i = 0; i < kNumCopyKinds && !testing::Test::HasFatalFailure(); ++i) body(kind_at(i));
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(Copy, EverySmallSizeAndAlignment) {
  for_each_target_and_kind([](CopyKind kind) {
    for (std::size_t bytes = 0; bytes <= 300 && !testing::Test::HasFatalFailure(); ++bytes) {
      expect_copied(kind, bytes, bytes * 7 % 64, bytes * 13 % 64);
      expect_copied(kind, bytes, 0, 0);
    }
  });
}

TEST(Copy, LargeSizes) {
  for_each_target_and_kind([](CopyKind kind) {
    std::mt19937 rng(1);
    for (int round = 0; round < 8 && !testing::Test::HasFatalFailure(); ++round) {
      expect_copied(kind, 4096 + rng() % 300000, rng() % 64, rng() % 64);
    }
  });
}

TEST(Copy, NothingMayBeNull) {
  for_each_target_and_kind([](CopyKind kind) { copy_function(kind)(nullptr, nullptr, 0); });
}

TEST(Copy, KindsHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kNumCopyKinds; ++i) names.insert(name(kind_at(i)));
  EXPECT_EQ(names, (std::set<std::string_view>{"memcpy", "simd", "string", "stream"}));
}

}  // namespace
}  // namespace topocoll
