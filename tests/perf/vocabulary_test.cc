#include "coll_perf/vocabulary.h"

#include <gtest/gtest.h>

namespace topocoll::perf {
namespace {

TEST(PerfVocabulary, EveryNameReadsBack) {
  EXPECT_EQ(all_collectives().size(), 11U);
  for (const Collective t : all_collectives()) {
    EXPECT_EQ(parse_collective(name(t)), t);
    EXPECT_EQ(parse_collective(std::string(name(t)) + "_perf"), t);
  }
  EXPECT_EQ(parse_collective("all_to_all"), Collective::kAllToAll);
  EXPECT_FALSE(parse_collective("all").has_value());
  EXPECT_FALSE(parse_collective("coll_perf").has_value());
  EXPECT_EQ(all_types().size(), static_cast<std::size_t>(kNumDataTypes));
  for (const DataType t : all_types()) {
    EXPECT_EQ(parse_type(type_name(t)), t);
    EXPECT_EQ(parse_type(topocoll::name(t)), t);
  }
  EXPECT_EQ(all_ops().size(), static_cast<std::size_t>(kNumReduceOps));
  for (const ReduceOp op : all_ops()) EXPECT_EQ(parse_op(op_name(op)), op);
  EXPECT_EQ(op_name(ReduceOp::kPremulSum), "mulsum");
}

TEST(PerfVocabulary, TypesHaveTheNamesOfNcclTests) {
  for (const char* known : {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float",
                            "double", "bfloat16", "f8e4m3", "f8e5m2"}) {
    const auto type = parse_type(known);
    ASSERT_TRUE(type.has_value()) << known;
    EXPECT_EQ(type_name(*type), known);
  }
}

}  // namespace
}  // namespace topocoll::perf
