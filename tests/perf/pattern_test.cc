#include "coll_perf/pattern.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "coll_perf/vocabulary.h"

namespace topocoll::perf {
namespace {

constexpr std::size_t kCount = 3 * Pattern::kPeriod + 17;

TEST(PerfPattern, FillIsFoundRightAndEveryChangeWrong) {
  for (const DataType type : all_types()) {
    const std::size_t element = size_of(type);
    std::vector<std::byte> data(kCount * element);
    const Pattern p = Pattern::message(type, 3, 7);
    p.fill(data.data(), kCount, 100);
    EXPECT_EQ(p.wrong(data.data(), kCount, 100), 0U);
    EXPECT_GT(p.wrong(data.data(), kCount, 101), kCount / 4) << "a shift is seen";
    EXPECT_GT(Pattern::message(type, 4, 7).wrong(data.data(), kCount, 100), kCount / 4)
        << "another message";
    EXPECT_GT(Pattern::message(type, 3, 8).wrong(data.data(), kCount, 100), kCount / 4)
        << "old data";
    data[(Pattern::kPeriod + 5) * element] ^= std::byte{1};
    data[data.size() - 1] ^= std::byte{1};
    EXPECT_EQ(p.wrong(data.data(), kCount, 100), 2U);
  }
}

TEST(PerfPattern, SmallFloatsEncodeAndDecode) {
  const struct {
    DataType type;
    double value;
    std::uint32_t bits;
  } cases[] = {
      {DataType::kF16, 1, 0x3c00},        {DataType::kF16, -2.5, 0xc100},
      {DataType::kF16, 0x1p-24, 1},       {DataType::kF16, 1 + 0x1p-11, 0x3c00},
      {DataType::kF16, 2047.7, 0x6800},   {DataType::kBF16, 1, 0x3f80},
      {DataType::kBF16, 1.0 / 3, 0x3eab}, {DataType::kF8E4M3, 16, 0x58},
      {DataType::kF8E4M3, -0.4375, 0xae}, {DataType::kF8E4M3, 0x1p-9, 1},
      {DataType::kF8E5M2, 7, 0x47},       {DataType::kF8E5M2, 0, 0},
  };
  for (const auto& c : cases) {
    std::uint32_t bits = 0;
    encode(c.type, c.value, reinterpret_cast<std::byte*>(&bits));
    EXPECT_EQ(bits, c.bits) << type_name(c.type) << " " << c.value;
  }
  for (const DataType type :
       {DataType::kF16, DataType::kBF16, DataType::kF8E4M3, DataType::kF8E5M2}) {
    for (const double value : {0.0, 1.0, -1.0, 3.0, 8.0, 0.25}) {
      std::byte element[2];
      encode(type, value, element);
      EXPECT_EQ(decode(type, element), value) << type_name(type);
    }
  }
}

/// The sum of all contributions to element i as plain arithmetic in the element type gives it.
double plain_sum(DataType type, ReduceOp op, int ranks, std::size_t i, bool backwards) {
  const std::size_t element = size_of(type);
  std::vector<std::byte> data((i + 1) * element);
  std::byte partial[16] = {};
  for (int k = 0; k < ranks; ++k) {
    const int rank = backwards ? ranks - 1 - k : k;
    Pattern::contribution(type, op, rank, ranks, 5).fill(data.data(), i + 1);
    double value = decode(type, data.data() + i * element);
    if (op == ReduceOp::kPremulSum) value *= premul_factor(rank);
    if (k == 0) {
      encode(type, value, partial);
      continue;
    }
    const double so_far = decode(type, partial);
    const double next = op == ReduceOp::kProd ? so_far * value : so_far + value;
    encode(type, next, partial);
    EXPECT_EQ(decode(type, partial), next) << "a partial result was rounded";
  }
  return decode(type, partial);
}

TEST(PerfPattern, PartialResultsOfFloatsAreExactInEveryOrder) {
  for (const DataType type :
       {DataType::kF8E4M3, DataType::kF8E5M2, DataType::kF16, DataType::kBF16, DataType::kF32}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kPremulSum}) {
      for (const int ranks : {1, 2, 3, 8, 17, 64}) {
        bool nonzero = false;
        for (std::size_t i = 0; i < 20; ++i) {
          const double forwards = plain_sum(type, op, ranks, i, false);
          EXPECT_EQ(forwards, plain_sum(type, op, ranks, i, true));
          nonzero = nonzero || forwards != 0;
          std::byte element[16];
          encode(type, forwards, element);
          EXPECT_EQ(Pattern::reduced(type, op, ranks, 5).wrong(element, 1, i), 0U)
              << type_name(type) << " " << op_name(op) << " " << ranks;
          encode(type, forwards == 0 ? 1 : -forwards, element);
          EXPECT_EQ(Pattern::reduced(type, op, ranks, 5).wrong(element, 1, i), 1U);
        }
        EXPECT_TRUE(nonzero);
      }
    }
  }
}

template <class T>
std::vector<T> values(const Pattern& pattern, std::size_t count) {
  std::vector<T> v(count);
  pattern.fill(v.data(), count);
  return v;
}

TEST(PerfPattern, IntegersWrapAndAveragesTruncate) {
  constexpr int kRanks = 5;
  constexpr std::size_t kSome = 500;
  std::vector<std::vector<std::int8_t>> in;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax,
                            ReduceOp::kBand, ReduceOp::kBxor, ReduceOp::kAvg}) {
    const auto reduced = values<std::int8_t>(Pattern::reduced(DataType::kI8, op, kRanks, 9), kSome);
    in.clear();
    for (int r = 0; r < kRanks; ++r) {
      in.push_back(
          values<std::int8_t>(Pattern::contribution(DataType::kI8, op, r, kRanks, 9), kSome));
    }
    for (std::size_t i = 0; i < kSome; ++i) {
      int want = in[0][i];
      for (std::size_t r = 1; r < kRanks; ++r) {
        const int x = in[r][i];
        if (op == ReduceOp::kSum || op == ReduceOp::kAvg) want += x;
        if (op == ReduceOp::kProd) want = static_cast<std::int8_t>(want * x);
        if (op == ReduceOp::kMin) want = std::min(want, x);
        if (op == ReduceOp::kMax) want = std::max(want, x);
        if (op == ReduceOp::kBand) want &= x;
        if (op == ReduceOp::kBxor) want ^= x;
      }
      if (op == ReduceOp::kAvg) {
        ASSERT_LE(std::abs(want), 127) << "an average must not depend on overflow";
        want /= kRanks;
      }
      EXPECT_EQ(reduced[i], static_cast<std::int8_t>(want)) << op_name(op) << " element " << i;
    }
  }
}

TEST(PerfPattern, BooleansTakeBothValues) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kBand, ReduceOp::kBor,
                            ReduceOp::kBxor, ReduceOp::kMin, ReduceOp::kMax}) {
    const auto v = values<std::uint8_t>(Pattern::reduced(DataType::kBool, op, 8, 1), 1000);
    EXPECT_EQ(*std::min_element(v.begin(), v.end()), 0) << op_name(op);
    EXPECT_EQ(*std::max_element(v.begin(), v.end()), 1) << op_name(op);
  }
}

TEST(PerfPattern, AveragesOfFloatsAllowTwoRoundingsAndNoMore) {
  const Pattern p = Pattern::reduced(DataType::kF32, ReduceOp::kAvg, 3, 1);
  std::vector<float> v = values<float>(p, 100);
  for (float& x : v) x = std::nextafterf(x, 1e9F);
  EXPECT_EQ(p.wrong(v.data(), v.size()),
            0U + static_cast<std::size_t>(std::count_if(
                     v.begin(), v.end(), [](float x) { return std::fabs(x) < 1e-30F; })));
  for (float& x : v) x = x * 1.00001F + 1e-5F;
  EXPECT_EQ(p.wrong(v.data(), v.size()), v.size());
  std::vector<float> nan(100, std::nanf(""));
  EXPECT_EQ(p.wrong(nan.data(), nan.size()), nan.size());
}

}  // namespace
}  // namespace topocoll::perf
