#include "coll_perf/shape.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace topocoll::perf {
namespace {

TEST(PerfShape, BusFactorsOfFourRanks) {
  const auto factor = [](Collective test) { return shape_of(test, 4096, 4, 4).bus_factor; };
  EXPECT_DOUBLE_EQ(factor(Collective::kAllReduce), 1.5);
  for (const Collective test :
       {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
        Collective::kAllToAllV, Collective::kGather, Collective::kScatter}) {
    EXPECT_DOUBLE_EQ(factor(test), 0.75) << name(test);
  }
  for (const Collective test : {Collective::kBroadcast, Collective::kReduce, Collective::kSendRecv,
                                Collective::kHypercube}) {
    EXPECT_DOUBLE_EQ(factor(test), 1) << name(test);
  }
}

TEST(PerfShape, OneRankMovesNothingOverTheBus) {
  EXPECT_DOUBLE_EQ(shape_of(Collective::kAllReduce, 1024, 4, 1).bus_factor, 0);
  EXPECT_DOUBLE_EQ(shape_of(Collective::kAllGather, 1024, 4, 1).bus_factor, 0);
}

TEST(PerfShape, SplittingTestsRoundEachPartTo16Bytes) {
  const Shape s = shape_of(Collective::kAllGather, 1000, 4, 3);
  EXPECT_EQ(s.count, 80U);  // 250 elements / 3 = 83, rounded down to a multiple of 4
  EXPECT_EQ(s.send, 80U);
  EXPECT_EQ(s.recv, 240U);
  EXPECT_EQ(s.row_bytes, 960U);
  EXPECT_DOUBLE_EQ(s.traffic_bytes, 960);
  const Shape r = shape_of(Collective::kReduceScatter, 1000, 4, 3);
  EXPECT_EQ(r.send, 240U);
  EXPECT_EQ(r.recv, 80U);
  EXPECT_EQ(r.row_bytes, 960U);
  EXPECT_EQ(shape_of(Collective::kAllToAll, 8, 4, 8).row_bytes, 0U);
  EXPECT_EQ(shape_of(Collective::kAllGather, 320, 16, 4).count, 5U)
      << "an element of 16 bytes is not rounded";
}

TEST(PerfShape, WholeTestsKeepTheirSize) {
  const Shape s = shape_of(Collective::kAllReduce, 1003, 4, 3);
  EXPECT_EQ(s.count, 250U);
  EXPECT_EQ(s.row_bytes, 1000U);
  EXPECT_DOUBLE_EQ(s.traffic_bytes, 1000);
}

TEST(PerfShape, HypercubeCountsWhatIsReceived) {
  const Shape s = shape_of(Collective::kHypercube, 4096, 4, 4);
  EXPECT_EQ(s.recv, 1024U);
  EXPECT_DOUBLE_EQ(s.traffic_bytes, 256 * 4 * 3);
}

TEST(PerfShape, UnevenPartsFitTheirBuffersAndAgreeOnBothSides) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Shape s = shape_of(Collective::kAllToAllV, 100000, 4, ranks);
    std::size_t most = 0;
    bool uneven = false;
    for (int a = 0; a < ranks; ++a) {
      std::size_t sent = 0;
      std::size_t received = 0;
      for (int b = 0; b < ranks; ++b) {
        EXPECT_LE(uneven_part(s.count, a, b), s.count);
        uneven = uneven || uneven_part(s.count, a, b) != s.count;
        sent += uneven_part(s.count, a, b);
        received += uneven_part(s.count, b, a);
      }
      EXPECT_LE(sent, s.send);
      EXPECT_LE(received, s.recv);
      most = std::max({most, sent, received});
    }
    EXPECT_EQ(most * 4, s.row_bytes);
    EXPECT_TRUE(uneven);
  }
}

}  // namespace
}  // namespace topocoll::perf
