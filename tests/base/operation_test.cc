#include "topocoll/operation.h"

#include <gtest/gtest.h>

namespace topocoll {
namespace {

TEST(Operation, PrintsWhatItsKindNeeds) {
  Operation o;
  EXPECT_EQ(o.to_string(), "barrier()");
  o = {.kind = CollectiveKind::kAllReduce, .type = DataType::kF32, .count = 1024};
  EXPECT_EQ(o.to_string(), "all_reduce(f32 x 1024, sum)");
  o.reduction = Reduction::premul_sum(0.5);
  EXPECT_EQ(o.to_string(), "all_reduce(f32 x 1024, premul_sum 0.5)");
  o = {.kind = CollectiveKind::kBroadcast, .root = 2, .count = 7};
  EXPECT_EQ(o.to_string(), "broadcast(u8 x 7, root 2)");
  o = {.kind = CollectiveKind::kReduce, .type = DataType::kBF16, .root = 1, .count = 3};
  EXPECT_EQ(o.to_string(), "reduce(bf16 x 3, sum, root 1)");
  o = {.kind = CollectiveKind::kAllGather, .type = DataType::kI64, .count = 0};
  EXPECT_EQ(o.to_string(), "all_gather(i64 x 0)");
}

TEST(Operation, PrintsPeersAndTags) {
  Operation o{
      .kind = CollectiveKind::kRecv, .type = DataType::kI32, .peer = 1, .tag = 9, .count = 4};
  EXPECT_EQ(o.to_string(), "recv(i32 x 4, rank 1, tag 9)");
  o.peer = kAnySource;
  o.tag = kAnyTag;
  EXPECT_EQ(o.to_string(), "recv(i32 x 4, any rank, any tag)");
  o = {.kind = CollectiveKind::kSend, .peer = 3, .count = 1};
  EXPECT_EQ(o.to_string(), "send(u8 x 1, rank 3, tag 0)");
}

TEST(Operation, NamesTheFormWithBlocks) {
  Operation o{.kind = CollectiveKind::kAllGather, .type = DataType::kF32, .count = 5};
  o.out_blocks.resize(2);
  EXPECT_EQ(o.to_string(), "all_gather_v(f32 x 5)");
  o.kind = CollectiveKind::kAllToAll;
  o.count = 0;
  o.in_blocks = {{nullptr, 3}, {nullptr, 4}};
  EXPECT_EQ(o.to_string(), "all_to_all_v(f32 x 7)") << "the sum of what goes out";
}

}  // namespace
}  // namespace topocoll
