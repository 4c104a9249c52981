// Every collective x type x op against a reference, over random sizes and 1 to 8 ranks.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <random>

#include "communicator/elements.h"
#include "support/ranks.h"

namespace topocoll {
namespace {

using testing::Elements;
using testing::run_ranks;

/// Sizes around every threshold: nothing, one line, the eager limit, several windows.
const std::vector<std::size_t> kSizes{0, 1, 7, 1021, 40'003, 300'007};

std::vector<std::size_t> sizes_for(int ranks) {
  return ranks <= 3 ? kSizes : std::vector<std::size_t>{0, 3, 1021, 40'003};
}

class Collective : public ::testing::TestWithParam<int> {
 protected:
  int n() const { return GetParam(); }
};

TEST_P(Collective, AllReduceOfEveryTypeAndOp) {
  run_ranks(n(), [&](Communicator& comm) {
    for (int t = 0; t < kNumDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      for (int o = 0; o < kNumReduceOps; ++o) {
        const auto op = static_cast<ReduceOp>(o);
        if (!is_defined(op, type)) continue;
        for (std::size_t count : {std::size_t(5), std::size_t(3001), std::size_t(o == 0 ? 70'001 : 333)}) {
          const Reduction reduction = op == ReduceOp::kPremulSum
                                          ? Reduction::premul_sum(0.5 * (comm.rank() + 1))
                                          : Reduction(op);
          Elements in(type, count, comm.rank());
          Elements out(type, count, 99);
          const Status s = comm.all_reduce(in.data(), out.data(), count, type, reduction);
          ASSERT_TRUE(s.ok()) << s.to_string();
          EXPECT_EQ(out.compare_reduced(comm.size(), op), "") << name(type) << " " << name(op) << " " << count;
          // In place gives the same bits.
          ASSERT_TRUE(comm.all_reduce(in.data(), in.data(), count, type, reduction).ok());
          EXPECT_TRUE(in.same_bits(out)) << name(type) << " " << name(op) << " in place";
        }
      }
    }
  }, CommitMode::kChained);
}

TEST_P(Collective, ReduceAndReduceScatter) {
  run_ranks(n(), [&](Communicator& comm) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    for (DataType type : {DataType::kF32, DataType::kBF16, DataType::kI64, DataType::kC64}) {
      for (std::size_t count : sizes_for(n())) {
        for (int root : {0, comm.size() - 1}) {
          Elements in(type, count, comm.rank());
          Elements out(type, count, 99);
          ASSERT_TRUE(comm.reduce(in.data(), out.data(), count, type, ReduceOp::kSum, root).ok());
          if (comm.rank() == root) {
            EXPECT_EQ(out.compare_reduced(comm.size(), ReduceOp::kSum), "");
          }
        }
        Elements whole(type, count * ranks, comm.rank());
        Elements part(type, count, 99);
        ASSERT_TRUE(comm.reduce_scatter(whole.data(), part.data(), count, type, ReduceOp::kAvg).ok());
        EXPECT_EQ(part.compare_reduced(comm.size(), ReduceOp::kAvg, count * static_cast<std::size_t>(comm.rank())), "")
            << name(type) << " " << count;
      }
    }
  });
}

TEST_P(Collective, MovesOfEveryType) {
  run_ranks(n(), [&](Communicator& comm) {
    const int me = comm.rank();
    const auto ranks = static_cast<std::size_t>(comm.size());
    for (int t = 0; t < kNumDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      for (std::size_t count : t % 5 == 0 ? sizes_for(n()) : std::vector<std::size_t>{9, 5003}) {
        const std::size_t part = count * size_of(type);
        Elements own(type, count, me);
        Elements all(type, count * ranks, 99);
        Elements copy(type, count, 99);
        for (int root : {0, comm.size() - 1}) {
          ASSERT_TRUE(comm.broadcast(own.data(), copy.data(), count, type, root).ok());
          EXPECT_TRUE(copy.same_bits(Elements(type, count, root)));
          ASSERT_TRUE(comm.gather(own.data(), all.data(), count, type, root).ok());
          if (me == root) {
            for (int r = 0; r < comm.size(); ++r) {
              EXPECT_TRUE(Elements(type, count, r).same_bits(all.data() + static_cast<std::size_t>(r) * part));
            }
          }
          Elements source(type, count * ranks, root);
          ASSERT_TRUE(comm.scatter(source.data(), copy.data(), count, type, root).ok());
          EXPECT_TRUE(copy.same_bits(source.data() + static_cast<std::size_t>(me) * part));
        }
        ASSERT_TRUE(comm.all_gather(own.data(), all.data(), count, type).ok());
        for (int r = 0; r < comm.size(); ++r) {
          EXPECT_TRUE(Elements(type, count, r).same_bits(all.data() + static_cast<std::size_t>(r) * part));
        }
        Elements sent(type, count * ranks, me);
        ASSERT_TRUE(comm.all_to_all(sent.data(), all.data(), count, type).ok());
        for (int r = 0; r < comm.size(); ++r) {
          const Elements theirs(type, count * ranks, r);
          EXPECT_EQ(std::memcmp(all.data() + static_cast<std::size_t>(r) * part,
                                theirs.data() + static_cast<std::size_t>(me) * part, part), 0);
        }
      }
    }
  }, CommitMode::kChained);
}

/// Counts that differ between ranks, with zeros among them.
std::size_t uneven(int from, int to, std::size_t scale) {
  return (from * 7 + to * 3) % 4 == 0 ? 0 : static_cast<std::size_t>((from * 5 + to * 11) % 9) * scale;
}

TEST_P(Collective, UnevenCounts) {
  for (std::size_t scale : {1, 700, 90'000 / n()}) {
    run_ranks(n(), [&](Communicator& comm) {
      const int me = comm.rank();
      const int size = comm.size();
      const DataType type = DataType::kI32;
      std::vector<Elements> parts;
      std::vector<Block> out;
      for (int r = 0; r < size; ++r) parts.emplace_back(type, uneven(r, 0, scale), 99);
      for (Elements& p : parts) out.push_back({p.data(), p.count()});
      const Elements own(type, uneven(me, 0, scale), me);
      const auto check_parts = [&] {
        for (int r = 0; r < size; ++r) {
          EXPECT_TRUE(parts[static_cast<std::size_t>(r)].same_bits(Elements(type, uneven(r, 0, scale), r)));
        }
      };
      Status s = comm.all_gather_v({own.data(), own.count()}, out, type);
      ASSERT_TRUE(s.ok()) << s.to_string();
      check_parts();
      const int root = size - 1;
      s = comm.gather_v({own.data(), own.count()}, me == root ? std::span<const Block>(out) : std::span<const Block>(), type, root);
      ASSERT_TRUE(s.ok()) << s.to_string();
      if (me == root) check_parts();

      std::vector<Elements> pieces, got;
      std::vector<ConstBlock> to;
      std::vector<Block> from;
      for (int r = 0; r < size; ++r) pieces.emplace_back(type, uneven(me, r, scale), me * 10 + r);
      for (int r = 0; r < size; ++r) got.emplace_back(type, uneven(r, me, scale), 99);
      for (Elements& p : pieces) to.push_back({p.data(), p.count()});
      for (Elements& g : got) from.push_back({g.data(), g.count()});
      s = comm.all_to_all_v(to, from, type);
      ASSERT_TRUE(s.ok()) << s.to_string();
      for (int r = 0; r < size; ++r) {
        EXPECT_TRUE(got[static_cast<std::size_t>(r)].same_bits(Elements(type, uneven(r, me, scale), r * 10 + me)));
      }
      Elements mine(type, uneven(root, me, scale), 99);
      s = comm.scatter_v(me == root ? std::span<const ConstBlock>(to) : std::span<const ConstBlock>(),
                         {mine.data(), mine.count()}, type, root);
      ASSERT_TRUE(s.ok()) << s.to_string();
      EXPECT_TRUE(mine.same_bits(Elements(type, uneven(root, me, scale), root * 10 + me)));

      std::vector<Elements> shares;
      std::vector<ConstBlock> in;
      for (int r = 0; r < size; ++r) shares.emplace_back(type, uneven(r, 1, scale), me);
      for (Elements& p : shares) in.push_back({p.data(), p.count()});
      Elements sum(type, uneven(me, 1, scale), 99);
      s = comm.reduce_scatter_v(in, {sum.data(), sum.count()}, type, ReduceOp::kSum);
      ASSERT_TRUE(s.ok()) << s.to_string();
      EXPECT_EQ(sum.compare_reduced(size, ReduceOp::kSum), "");
    });
  }
}

TEST_P(Collective, UnevenCountsThatDisagreeAreAMismatch) {
  if (n() < 2) GTEST_SKIP() << "one rank has nobody to disagree with";
  run_ranks(n(), [&](Communicator& comm) {
    std::vector<std::int32_t> in(64), out(64);
    std::vector<ConstBlock> to;
    std::vector<Block> from;
    for (int r = 0; r < comm.size(); ++r) {
      to.push_back({in.data(), 2});
      // Rank 0 expects three elements of the last rank, which sends two.
      from.push_back({out.data() + 4 * r, comm.rank() == 0 && r == comm.size() - 1 ? 3u : 2u});
    }
    const Status s = comm.all_to_all_v(to, from, DataType::kI32);
    EXPECT_EQ(s.cause(), Cause::kMismatch) << s.to_string();
    EXPECT_EQ(s.culprit(), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collective, ::testing::Values(1, 2, 3, 4, 8));

TEST(Numerics, DirectPlansGiveTheSameBitsAtEverySizeAndOnEveryRank) {
  // The sum in rank order of values that do not commute in f32, at a small and a large offset.
  constexpr int kRanks = 5;
  const std::size_t large = 400'001;
  std::vector<std::vector<float>> results(2 * kRanks);
  run_ranks(kRanks, [&](Communicator& comm) {
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::vector<float> in(large);
    for (float& x : in) x = std::ldexp(static_cast<float>(random() % 1000) - 500.0f, static_cast<int>(random() % 40) - 20);
    std::vector<float> all(large), some(1000);
    ASSERT_TRUE(comm.all_reduce(in.data(), all.data(), large, DataType::kF32, ReduceOp::kSum).ok());
    ASSERT_TRUE(comm.all_reduce(in.data() + 77, some.data(), some.size(), DataType::kF32, ReduceOp::kSum).ok());
    results[static_cast<std::size_t>(comm.rank())] = all;
    results[static_cast<std::size_t>(kRanks + comm.rank())] = some;
  });
  for (std::size_t r = 0; r < kRanks; ++r) {
    EXPECT_EQ(std::memcmp(results[r].data(), results[0].data(), large * 4), 0) << "rank " << r;
    EXPECT_EQ(std::memcmp(results[kRanks + r].data(), results[0].data() + 77, 4000), 0) << "rank " << r;
  }
}

TEST(Size, MoreThanTwoToThe31Elements) {
  const std::size_t count = (std::size_t(1) << 31) + 12'345;
  if (sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) < (long(7) << 30)) {
    GTEST_SKIP() << "needs 7 GiB of free memory";
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow of 4 GiB does not fit a small machine";
#endif
  run_ranks(2, [&](Communicator& comm) {
    std::vector<std::uint8_t> data(count, static_cast<std::uint8_t>(comm.rank() + 1));
    data.back() = static_cast<std::uint8_t>(comm.rank() + 40);
    const Status s = comm.all_reduce(data.data(), data.data(), count, DataType::kU8, ReduceOp::kSum);
    ASSERT_TRUE(s.ok()) << s.to_string();
    EXPECT_EQ(data.front(), 3);
    EXPECT_EQ(data[std::size_t(1) << 31], 3);
    EXPECT_EQ(data.back(), 81);
  });
}

}  // namespace
}  // namespace topocoll
