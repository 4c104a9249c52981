// Every type and operation against scalar references written from the definitions: floats bit for bit
// against the left fold in the accumulator (and within the rounding bound of a wider evaluation),
// integers exactly; on every SIMD target that this machine runs.
#include "collectives/cpu/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "collectives/cpu/reduce_targets.h"
#include "collectives/reduce_trial.h"
#include "hwy/highway.h"

namespace topocoll {
namespace {

TEST(Reduce, IsNullExactlyWhereUndefined) {
  for (int type = 0; type < kNumDataTypes; ++type) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      EXPECT_EQ(reduce_function(type_at(type), op_at(op)) != nullptr,
                is_defined(op_at(op), type_at(type)))
          << name(type_at(type)) << " " << name(op_at(op));
    }
  }
}

TEST(Reduce, EverySmallCount) {
  for_each_target([] {
    std::mt19937_64 rng(1);
    for_each_type_and_op([&](DataType type, ReduceOp op) {
      for (std::size_t count = 0; count <= 80 && !testing::Test::HasFatalFailure(); ++count) {
        Trial t{.type = type, .op = op, .count = count};
        t.num_sources = 1 + static_cast<int>(rng() % 3);
        t.divisor = t.num_sources;
        t.misaligned = rng() % 4 == 0;
        run(t, rng);
      }
    });
  });
}

TEST(Reduce, RandomCalls) {
  for_each_target([] {
    std::mt19937_64 rng(2);
    for_each_type_and_op([&](DataType type, ReduceOp op) {
      for (int round = 0; round < 24 && !testing::Test::HasFatalFailure(); ++round) {
        Trial t{.type = type, .op = op, .count = rng() % 700};
        t.num_sources = 1 + static_cast<int>(rng() % 8);
        if (rng() % 8 == 0) t.num_sources = 9 + static_cast<int>(rng() % 60);
        if (rng() % 2 == 0) t.aliased = static_cast<int>(rng() % t.num_sources);
        t.mirror = rng() % 3 == 0;
        t.stream = rng() % 3 == 0;
        t.wild = rng() % 3 == 0;
        t.misaligned = rng() % 3 == 0;
        t.divisor = t.num_sources + static_cast<int>(rng() % 3);
        run(t, rng);
      }
    });
  });
}

// Larger than a mirror's block, so that blocks and streamed stretches join.
TEST(Reduce, LargeCalls) {
  for_each_target([] {
    std::mt19937_64 rng(3);
    for_each_type_and_op([&](DataType type, ReduceOp op) {
      for (int round = 0; round < 2 && !testing::Test::HasFatalFailure(); ++round) {
        Trial t{.type = type, .op = op};
        t.count = (9000 + rng() % 12000) / size_of(type);
        t.num_sources = 2 + static_cast<int>(rng() % 2);
        if (rng() % 2 == 0) t.aliased = static_cast<int>(rng() % t.num_sources);
        t.stream = round == 0;
        t.mirror = rng() % 2 == 0;
        t.divisor = t.num_sources;
        run(t, rng);
      }
    });
  });
}

// Every pair of codes of an 8-bit type, every code of a 16-bit type: conversions in and out.
TEST(Reduce, EveryCodeOfTheNarrowTypes) {
  const auto check = [](DataType type, const Format& f, auto code) {
    using S = decltype(code);
    const std::size_t codes = std::size_t{1} << f.width;
    const std::size_t others = f.width == 8 ? codes : 8;
    std::vector<S> a, b, sum(codes * others), max(codes * others);
    for (std::size_t i = 0; i < codes * others; ++i) {
      a.push_back(static_cast<S>(i % codes));
      b.push_back(static_cast<S>(f.width == 8 ? i / codes : i / codes * 9377 + i % 7));
    }
    const void* sources[] = {a.data(), b.data()};
    ReduceCall call{.target = sum.data(), .sources = sources, .num_sources = 2, .count = a.size()};
    reduce_function(type, ReduceOp::kSum)(call);
    call.target = max.data();
    call.num_sources = 1;
    reduce_function(type, ReduceOp::kMax)(call);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<float>(decode(f, a[i]));
      const auto y = static_cast<float>(decode(f, b[i]));
      ASSERT_EQ(sum[i], encode(f, x + y)) << name(type) << " " << +a[i] << " " << +b[i];
      ASSERT_EQ(max[i], encode(f, x)) << name(type) << " " << +a[i];
    }
  };
  for_each_target([&] {
    check(DataType::kF8E4M3, kE4M3, std::uint8_t{});
    check(DataType::kF8E5M2, kE5M2, std::uint8_t{});
    check(DataType::kF16, kHalf, std::uint16_t{});
    check(DataType::kBF16, kBrain, std::uint16_t{});
  });
}

// f8 as torch converts it, in numbers from its documentation of the formats.
TEST(Reduce, Float8Corners) {
  const auto sum = [](DataType type, std::uint8_t a, std::uint8_t b) {
    std::uint8_t out = 0;
    const void* sources[] = {&a, &b};
    reduce_function(type, ReduceOp::kSum)(
        {.target = &out, .sources = sources, .num_sources = 2, .count = 1});
    return int{out};
  };
  for_each_target([&] {
    EXPECT_EQ(sum(DataType::kF8E4M3, 0x7E, 0x58), 0x7E);  // 448 + 16 = 464: ties to 448
    EXPECT_EQ(sum(DataType::kF8E4M3, 0x7E, 0x59), 0x7F);  // 448 + 18: no infinity, so NaN
    EXPECT_EQ(sum(DataType::kF8E4M3, 0xFE, 0xFE), 0xFF);  // -896: NaN with the sign of the overflow
    EXPECT_EQ(sum(DataType::kF8E4M3, 0x01, 0x01), 0x02);  // denormals
    EXPECT_EQ(sum(DataType::kF8E5M2, 0x7B, 0x7B), 0x7C);  // 57344 + 57344 = infinity
    EXPECT_EQ(sum(DataType::kF8E5M2, 0x7C, 0xFC), 0x7E);  // infinity - infinity
    EXPECT_EQ(sum(DataType::kF8E5M2, 0x80, 0x80), 0x80);  // -0
  });
}

TEST(Reduce, ZerosAndNaNOfMinAndMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto apply = [](ReduceOp op, std::vector<float> x) {
    std::vector<const void*> sources;
    for (const float& v : x) sources.push_back(&v);
    float out = 0;
    reduce_function(DataType::kF32, op)({.target = &out,
                                         .sources = sources.data(),
                                         .num_sources = static_cast<int>(x.size()),
                                         .count = 1});
    return out;
  };
  for_each_target([&] {
    EXPECT_TRUE(std::signbit(apply(ReduceOp::kMin, {0.0f, -0.0f})));
    EXPECT_TRUE(std::signbit(apply(ReduceOp::kMin, {-0.0f, 0.0f})));
    EXPECT_FALSE(std::signbit(apply(ReduceOp::kMax, {0.0f, -0.0f})));
    EXPECT_FALSE(std::signbit(apply(ReduceOp::kMax, {-0.0f, 0.0f})));
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      for (std::size_t at = 0; at < 3; ++at) {
        std::vector<float> x{1.0f, -2.0f, 3.0f};
        x[at] = nan;
        EXPECT_EQ(std::bit_cast<std::uint32_t>(apply(op, x)), 0x7FC00000u);
      }
    }
  });
}

// Averages whose sums leave the type, its accumulators, and 64 bits.
TEST(Reduce, IntegerAveragesDoNotOverflow) {
  for_each_target([] {
    std::mt19937_64 rng(4);
    for (int type = static_cast<int>(DataType::kU8); type <= static_cast<int>(DataType::kI64);
         ++type) {
      for (const int sources : {255, 256, 257, 1000}) {
        const std::size_t count = 9;
        const std::size_t size = size_of(type_at(type));
        for (const unsigned char fill_byte : Bytes{0xFF, 0x7F, 0x80}) {
          // The largest and the smallest value of either signedness, or nearly.
          Bytes x(count * size, fill_byte == 0x80 ? 0 : 0xFF);
          for (std::size_t i = 0; i < count; ++i) x[(i + 1) * size - 1] = fill_byte;
          std::vector<const void*> pointers(static_cast<std::size_t>(sources), x.data());
          Bytes out(count * size);
          reduce_function(type_at(type), ReduceOp::kAvg)({.target = out.data(),
                                                          .sources = pointers.data(),
                                                          .num_sources = sources,
                                                          .count = count,
                                                          .divisor = sources});
          ASSERT_EQ(out, x) << name(type_at(type)) << " " << sources << " " << int{fill_byte};
        }
        Trial t{.type = type_at(type), .op = ReduceOp::kAvg, .count = 33, .num_sources = sources};
        t.divisor = sources - 7;
        t.mirror = true;
        run(t, rng);
      }
    }
  });
}

TEST(Reduce, HugeDivisors) {
  for_each_target([] {
    std::mt19937_64 rng(5);
    for_each_type_and_op([&](DataType type, ReduceOp op) {
      if (op != ReduceOp::kAvg) return;
      for (const int divisor : {1, 3, (1 << 24) + 1, std::numeric_limits<int>::max()}) {
        Trial t{.type = type, .op = op, .count = 100, .num_sources = divisor == 1 ? 1 : 2};
        t.divisor = divisor;
        run(t, rng);
      }
    });
  });
}

// The split of a span into vectors must not show: any window of a result equals the window reduced
// on its own.
TEST(Reduce, BitsDoNotDependOnThePositionInTheSpan) {
  std::mt19937_64 rng(6);
  for_each_type_and_op([&](DataType type, ReduceOp op) {
    const std::size_t size = size_of(type);
    const std::size_t count = 300;
    std::vector<Bytes> x(3, Bytes(count * size));
    for (auto& bytes : x) fill(type, bytes, 0, count, true, rng);
    const double factors[] = {0.3, 1.7, -2.2};
    const auto apply = [&](std::size_t begin, std::size_t n) {
      const void* sources[] = {x[0].data() + begin * size, x[1].data() + begin * size,
                               x[2].data() + begin * size};
      Bytes out(n * size);
      reduce_function(type, op)({.target = out.data(),
                                 .sources = sources,
                                 .num_sources = 3,
                                 .count = n,
                                 .factors = factors,
                                 .divisor = 3});
      return out;
    };
    const Bytes whole = apply(0, count);
    for (int round = 0; round < 20; ++round) {
      const std::size_t begin = rng() % count;
      const std::size_t n = rng() % (count - begin + 1);
      const Bytes part = apply(begin, n);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin * size))
          << name(type) << " " << name(op) << " " << begin << " " << n;
    }
  });
}

}  // namespace
}  // namespace topocoll
