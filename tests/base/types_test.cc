#include "topocoll/types.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace topocoll {
namespace {

TEST(Types, NamesAreDistinctAndParseBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_TRUE(names.insert(name(type)).second) << name(type);
    EXPECT_EQ(parse_data_type(name(type)), type);
  }
  for (int i = 0; i < kNumReduceOps; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_TRUE(names.insert(name(op)).second) << name(op);
    EXPECT_EQ(parse_reduce_op(name(op)), op);
  }
  for (int i = 0; i < kNumCollectiveKinds; ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    EXPECT_TRUE(names.insert(name(kind)).second) << name(kind);
    EXPECT_EQ(parse_collective_kind(name(kind)), kind);
  }
  EXPECT_EQ(parse_data_type("float"), std::nullopt);
  EXPECT_EQ(parse_reduce_op(""), std::nullopt);
  EXPECT_EQ(parse_collective_kind("all_reduce "), std::nullopt);
}

TEST(Types, SizesAreThoseOfTheMachineTypes) {
  EXPECT_EQ(size_of(DataType::kBool), 1u);
  EXPECT_EQ(size_of(DataType::kI8), 1u);
  EXPECT_EQ(size_of(DataType::kU16), 2u);
  EXPECT_EQ(size_of(DataType::kI32), 4u);
  EXPECT_EQ(size_of(DataType::kU64), 8u);
  EXPECT_EQ(size_of(DataType::kF16), 2u);
  EXPECT_EQ(size_of(DataType::kBF16), 2u);
  EXPECT_EQ(size_of(DataType::kF32), 4u);
  EXPECT_EQ(size_of(DataType::kF64), 8u);
  EXPECT_EQ(size_of(DataType::kC64), 8u);
  EXPECT_EQ(size_of(DataType::kC128), 16u);
  EXPECT_EQ(size_of(DataType::kF8E4M3), 1u);
  EXPECT_EQ(size_of(DataType::kF8E5M2), 1u);
}

// One row per type, one column per operation, in the order of the enumerations.
TEST(Types, OperationsAreDefinedWhereTheyMeanSomething) {
  const std::string integer = "sum avg prod min max band bor bxor ";
  const std::string floating = "sum avg prod min max premul_sum ";
  const std::string complex = "sum avg prod premul_sum ";
  const std::pair<DataType, std::string> table[] = {
      {DataType::kBool, "sum prod min max band bor bxor "},
      {DataType::kU8, integer},
      {DataType::kI8, integer},
      {DataType::kU16, integer},
      {DataType::kI16, integer},
      {DataType::kU32, integer},
      {DataType::kI32, integer},
      {DataType::kU64, integer},
      {DataType::kI64, integer},
      {DataType::kF16, floating},
      {DataType::kBF16, floating},
      {DataType::kF32, floating},
      {DataType::kF64, floating},
      {DataType::kC64, complex},
      {DataType::kC128, complex},
      {DataType::kF8E4M3, floating},
      {DataType::kF8E5M2, floating},
  };
  static_assert(std::size(table) == kNumDataTypes);
  for (const auto& [type, expected] : table) {
    std::string defined;
    for (int i = 0; i < kNumReduceOps; ++i) {
      const auto op = static_cast<ReduceOp>(i);
      if (is_defined(op, type)) defined += std::string(name(op)) + " ";
    }
    EXPECT_EQ(defined, expected) << name(type);
  }
}

TEST(Types, KindsSayWhetherTheyReduceAndHaveARoot) {
  std::string reducing, rooted;
  for (int i = 0; i < kNumCollectiveKinds; ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    if (reduces(kind)) reducing += std::string(name(kind)) + " ";
    if (has_root(kind)) rooted += std::string(name(kind)) + " ";
  }
  EXPECT_EQ(reducing, "all_reduce reduce reduce_scatter ");
  EXPECT_EQ(rooted, "broadcast reduce gather scatter ");
}

TEST(Types, ValuesFromOutsideTheEnumerationsAreHarmless) {
  EXPECT_EQ(name(static_cast<DataType>(77)), "unknown");
  EXPECT_EQ(name(static_cast<ReduceOp>(77)), "unknown");
  EXPECT_EQ(name(static_cast<CollectiveKind>(77)), "unknown");
  EXPECT_EQ(size_of(static_cast<DataType>(77)), 0u);
  EXPECT_FALSE(is_defined(ReduceOp::kSum, static_cast<DataType>(77)));
  EXPECT_FALSE(is_defined(static_cast<ReduceOp>(77), DataType::kF32));
  EXPECT_FALSE(has_root(static_cast<CollectiveKind>(77)));
}

TEST(Types, ReductionsCarryTheirFactor) {
  constexpr Reduction plain = ReduceOp::kMax;
  static_assert(plain.factor == 1.0);
  constexpr Reduction scaled = Reduction::premul_sum(0.25);
  static_assert(scaled.op == ReduceOp::kPremulSum && scaled.factor == 0.25);
}

}  // namespace
}  // namespace topocoll
