// Every collective x type x op on 1 to 8 ranks, with random counts, roots and elements: reductions
// bit for bit against the scalar reference, which holds itself against wider arithmetic; moves byte
// for byte. A failure names the seed; --gtest_random_seed=N repeats it, and with --gtest_repeat
// every round has another.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.h"
#include "support/reduce_reference.h"
#include "support/sanitized.h"

namespace topocoll {
namespace {

using testing::kSanitized;
using testing::run_ranks;
using ::testing::StartsWith;

/// Messages repeat the elements of one period, so that the reference is evaluated for that alone.
/// It is a prime: a piece from elsewhere in the message, which lies a multiple of 64 bytes away,
/// shows.
constexpr std::size_t kPeriod = kSanitized ? 251 : 4093;

/// `count` elements at an odd address, between bytes that must not change.
class Buffer {
 public:
  Buffer(DataType type, std::size_t count)
      : count_(count), element_(size_of(type)), bytes_(2 * kGuard + count * element_, kUntouched) {}
  /// The elements [first, first + count) of the sequence that repeats `period`.
  Buffer(DataType type, std::size_t count, const Bytes& period, std::size_t first = 0)
      : Buffer(type, count) {
    const std::size_t bytes = count * element_;
    std::size_t from = first * element_ % period.size();
    for (std::size_t at = 0; at < bytes; from = 0) {
      const std::size_t here = std::min(bytes - at, period.size() - from);
      std::memcpy(bytes_.data() + kGuard + at, period.data() + from, here);
      at += here;
    }
  }
  void* data() { return bytes_.data() + kGuard; }
  [[nodiscard]] const void* data() const { return bytes_.data() + kGuard; }
  [[nodiscard]] std::size_t count() const { return count_; }
  Block block() { return {data(), count_}; }
  [[nodiscard]] ConstBlock block() const { return {data(), count_}; }

  /// "" if all bytes are the other's, those around the elements too; else the first element that
  /// differs.
  [[nodiscard]] std::string difference(const Buffer& want) const {
    if (bytes_ == want.bytes_) return "";
    const auto [mine, other] = std::mismatch(bytes_.begin(), bytes_.end(), want.bytes_.begin());
    const auto at = static_cast<std::size_t>(mine - bytes_.begin());
    if (at < kGuard || at >= kGuard + count_ * element_)
      return "a byte beside the elements was written";
    return "element " + std::to_string((at - kGuard) / element_) + " of " + std::to_string(count_) +
           " differs";
  }

 private:
  static constexpr std::size_t kGuard = 67;
  static constexpr unsigned char kUntouched = 0xA5;
  std::size_t count_;
  std::size_t element_;
  Bytes bytes_;
};

using Rng = std::mt19937_64;

/// From 0 to 1023, every power of two as likely as the others.
std::size_t small_count(Rng& rng) {
  return static_cast<std::size_t>(std::exp2(std::uniform_real_distribution<double>(0, 10)(rng))) -
         1;
}

std::size_t uniform(Rng& rng, std::size_t least, std::size_t most) {
  return std::uniform_int_distribution<std::size_t>(least, most)(rng);
}

/// `total` elements cut at random places; some parts are empty.
std::vector<std::size_t> cut(Rng& rng, std::size_t total, std::size_t parts) {
  std::vector<std::size_t> ends(parts, total);
  for (std::size_t i = 0; i + 1 < parts; ++i)
    ends[i] = rng() % 4 == 0 && i > 0 ? ends[i - 1] : uniform(rng, 0, total);
  std::sort(ends.begin(), ends.end());
  std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
  return ends;
}

class Collective : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { ++round; }
  Collective() : rng_(static_cast<Rng::result_type>(seed_)) {}

  int n() const { return GetParam(); }
  std::size_t ranks() const { return static_cast<std::size_t>(GetParam()); }
  int any_rank() { return static_cast<int>(uniform(rng_, 0, ranks() - 1)); }
  CommitMode any_mode() { return rng_() % 2 == 0 ? CommitMode::kStrict : CommitMode::kChained; }
  /// Elements of 100 to 400 KiB in all: what is pipelined.
  std::size_t large_count(DataType type) {
    return uniform(rng_, 100 << 10, 400 << 10) / size_of(type);
  }

 private:
  static inline int round = -1;
  const int seed_ = GTEST_FLAG_GET(random_seed) + round;

 protected:
  void TearDown() override {
    if (HasFailure()) std::printf("repeat this with --gtest_random_seed=%d\n", seed_);
  }
  Rng rng_;
};

/// One reduction: a period of what each rank brings and of what comes out, and the messages to try
/// it on.
struct Reducing {
  struct Message {
    std::size_t count;
    int root;
    std::vector<std::size_t> parts;  ///< reduce_scatter_v
    bool in_place;
  };
  DataType type;
  ReduceOp op;
  std::vector<double> factors;
  std::vector<Bytes> in;
  Bytes out;
  std::vector<Message> messages;

  [[nodiscard]] Reduction reduction(int rank) const {
    return op == ReduceOp::kPremulSum
               ? Reduction::premul_sum(factors[static_cast<std::size_t>(rank)])
               : Reduction(op);
  }
};

Reducing make_reducing(DataType type, ReduceOp op, std::size_t ranks, Rng& rng) {
  const std::size_t element = size_of(type);
  Reducing r{.type = type, .op = op, .out = Bytes(kPeriod * element)};
  for (std::size_t k = 0; k < ranks; ++k) {
    r.factors.push_back(std::uniform_real_distribution<double>(-2, 2)(rng));
    fill(type, r.in.emplace_back(kPeriod * element), 0, kPeriod, false, rng);
  }
  Element e{.factors = r.factors.data(), .divisor = static_cast<int>(ranks), .tame = true};
  for (std::size_t i = 0; i < kPeriod; ++i) {
    e.sources.clear();
    for (const Bytes& in : r.in) e.sources.push_back(in.data() + i * element);
    reference(type, op, e, r.out.data() + i * element);
  }
  return r;
}

/// Runs the four reducing collectives on one message.
void expect_reduced(Communicator& comm, const Reducing& r, const Reducing::Message& m) {
  const auto me = static_cast<std::size_t>(comm.rank());
  const auto ranks = static_cast<std::size_t>(comm.size());
  SCOPED_TRACE(::testing::Message()
               << "rank " << me << " of " << ranks << ": " << name(r.type) << " " << name(r.op)
               << ", " << m.count << " elements, root " << m.root << ", in place " << m.in_place);
  const Reduction reduction = r.reduction(comm.rank());
  const Buffer in(r.type, m.count, r.in[me]);
  const auto expect = [&](const char* what, const Status& s, const Buffer& out, std::size_t first) {
    ASSERT_TRUE(s.ok()) << what << ": " << s.to_string();
    ASSERT_EQ(out.difference(Buffer(r.type, out.count(), r.out, first)), "") << what;
  };
  for (const int root : {-1, m.root}) {  // -1: all_reduce
    Buffer out = m.in_place ? in : Buffer(r.type, m.count);
    const void* from = m.in_place ? out.data() : in.data();
    if (root < 0) {
      expect("all_reduce", comm.all_reduce(from, out.data(), m.count, r.type, reduction), out, 0);
    } else if (comm.rank() == root) {
      expect("reduce", comm.reduce(from, out.data(), m.count, r.type, reduction, root), out, 0);
    } else {
      const Status s = comm.reduce(from, nullptr, m.count, r.type, reduction, root);
      ASSERT_TRUE(s.ok()) << s.to_string();
    }
  }
  const std::size_t each = m.count / ranks;
  Buffer part(r.type, each);
  expect("reduce_scatter", comm.reduce_scatter(in.data(), part.data(), each, r.type, reduction),
         part, me * each);

  std::vector<Buffer> blocks;
  std::vector<ConstBlock> list;
  std::size_t first = 0;
  std::size_t mine = 0;
  for (std::size_t k = 0; k < ranks; ++k) {
    if (k == me) mine = first;
    blocks.emplace_back(r.type, m.parts[k], r.in[me], first);
    first += m.parts[k];
  }
  for (const Buffer& b : blocks) list.push_back(b.block());
  Buffer own(r.type, m.parts[me]);
  expect("reduce_scatter_v", comm.reduce_scatter_v(list, own.block(), r.type, reduction), own,
         mine);
}

TEST_P(Collective, ReductionsGiveTheReferencesBits) {
  std::vector<Reducing> all;
  for_each_type_and_op([&](DataType type, ReduceOp op) {
    Reducing& r = all.emplace_back(make_reducing(type, op, ranks(), rng_));
    std::vector<std::size_t> counts{small_count(rng_)};
    // A sanitizer is too slow for all; several windows of the pipeline are for one op of each type.
    if (!kSanitized || op == ReduceOp::kSum) counts.push_back(large_count(type));
    if (!kSanitized && op == ReduceOp::kMax)
      counts.push_back(uniform(rng_, 2 << 20, 3 << 20) / size_of(type));
    for (const std::size_t count : counts) {
      r.messages.push_back({count, any_rank(), cut(rng_, count, ranks()), rng_() % 2 == 0});
    }
  });
  ASSERT_FALSE(HasFailure()) << "the reference is wrong";
  run_ranks(
      n(),
      [&](Communicator& comm) {
        for (const Reducing& r : all) {
          for (const Reducing::Message& m : r.messages) {
            expect_reduced(comm, r, m);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      },
      any_mode());
}

/// Blocks of one type that ranks send each other: block (from, to) begins at its place in what
/// `from` repeats.
struct Moving {
  DataType type;
  int root;
  std::size_t count;                             ///< of every block where they are equal
  std::vector<std::vector<std::size_t>> counts;  ///< [from][to] where they are not
  std::vector<Bytes> in;

  [[nodiscard]] Buffer block(int from, int to, std::size_t elements) const {
    const auto f = static_cast<std::size_t>(from);
    return {type, elements, in[f], static_cast<std::size_t>(to) * elements};
  }
  [[nodiscard]] Buffer uneven(int from, int to) const {
    return block(from, to, counts[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)]);
  }
  /// All blocks of `from`, one behind the other.
  [[nodiscard]] Buffer row(int from) const {
    return {type, count * in.size(), in[static_cast<std::size_t>(from)]};
  }
};

void expect_moved_evenly(Communicator& comm, const Moving& m) {
  const int me = comm.rank();
  const std::size_t total = m.count * m.in.size();
  const auto expect = [&](const char* what, const Status& s, const Buffer& out,
                          const Buffer& want) {
    ASSERT_TRUE(s.ok()) << what << ": " << s.to_string();
    ASSERT_EQ(out.difference(want), "") << what;
  };
  const auto at_root = [&](void* p) { return me == m.root ? p : nullptr; };
  // What is to be in a buffer of blocks that come from everybody.
  const auto joined = [&](int to) {
    Buffer want(m.type, total);
    auto* at = static_cast<unsigned char*>(want.data());
    for (int from = 0; from < comm.size(); ++from) {
      const Buffer part = m.block(from, to, m.count);
      const std::size_t bytes = m.count * size_of(m.type);
      if (bytes != 0) std::memcpy(std::exchange(at, at + bytes), part.data(), bytes);
    }
    return want;
  };
  Buffer row = m.row(me);
  Buffer own = m.block(me, 0, m.count);

  Buffer whole(m.type, total);
  Status s = comm.broadcast(at_root(row.data()), whole.data(), total, m.type, m.root);
  expect("broadcast", s, whole, m.row(m.root));
  Buffer all(m.type, total);
  s = comm.all_gather(own.data(), all.data(), m.count, m.type);
  expect("all_gather", s, all, joined(0));
  Buffer gathered(m.type, total);
  s = comm.gather(own.data(), at_root(gathered.data()), m.count, m.type, m.root);
  expect("gather", s, gathered, me == m.root ? joined(0) : Buffer(m.type, total));
  Buffer part(m.type, m.count);
  s = comm.scatter(at_root(row.data()), part.data(), m.count, m.type, m.root);
  expect("scatter", s, part, m.block(m.root, me, m.count));
  Buffer exchanged(m.type, total);
  s = comm.all_to_all(row.data(), exchanged.data(), m.count, m.type);
  expect("all_to_all", s, exchanged, joined(me));
}

void expect_moved_unevenly(Communicator& comm, const Moving& m) {
  const int me = comm.rank();
  const bool root = me == m.root;
  std::vector<Buffer> row;     // what this rank sends to each
  std::vector<Buffer> column;  // what each sends to this rank
  std::vector<Buffer> firsts;  // what each sends to rank 0, which all want in all_gather_v
  std::vector<ConstBlock> to;
  for (int r = 0; r < comm.size(); ++r) {
    row.push_back(m.uneven(me, r));
    column.push_back(m.uneven(r, me));
    firsts.push_back(m.uneven(r, 0));
  }
  for (const Buffer& b : row) to.push_back(b.block());
  const auto expect = [&](const char* what, const std::vector<Buffer>& want, const auto& call) {
    std::vector<Buffer> out;
    std::vector<Block> blocks;
    for (const Buffer& b : want) out.emplace_back(m.type, b.count());
    for (Buffer& b : out) blocks.push_back(b.block());
    const Status s = call(blocks);
    ASSERT_TRUE(s.ok()) << what << ": " << s.to_string();
    for (std::size_t r = 0; r < want.size(); ++r) {
      ASSERT_EQ(out[r].difference(want[r]), "") << what << ", block " << r;
    }
  };
  using List = std::vector<Block>;
  expect("all_gather_v", firsts,
         [&](const List& out) { return comm.all_gather_v(to[0], out, m.type); });
  expect("gather_v", root ? column : std::vector<Buffer>(), [&](const List& out) {
    return comm.gather_v(to[static_cast<std::size_t>(m.root)], out, m.type, m.root);
  });
  expect("scatter_v", {m.uneven(m.root, me)}, [&](const List& out) {
    return comm.scatter_v(root ? std::span<const ConstBlock>(to) : std::span<const ConstBlock>(),
                          out[0], m.type, m.root);
  });
  expect("all_to_all_v", column,
         [&](const List& out) { return comm.all_to_all_v(to, out, m.type); });
}

TEST_P(Collective, MovesKeepEveryByte) {
  std::vector<Moving> all;
  for (int t = 0; t < kNumDataTypes; ++t) {
    for (const bool large : {false, true}) {
      Moving& m = all.emplace_back(Moving{.type = type_at(t), .root = any_rank()});
      const std::size_t row = large ? large_count(m.type) : small_count(rng_) * ranks();
      m.count = row / ranks();
      for (int r = 0; r < n(); ++r) {
        m.counts.push_back(cut(rng_, row, ranks()));
        Bytes& in = m.in.emplace_back(kPeriod * size_of(m.type));
        std::generate(in.begin(), in.end(), [&] { return static_cast<unsigned char>(rng_()); });
      }
    }
  }
  run_ranks(
      n(),
      [&](Communicator& comm) {
        for (const Moving& m : all) {
          SCOPED_TRACE(::testing::Message()
                       << "rank " << comm.rank() << " of " << comm.size() << ": " << name(m.type)
                       << ", " << m.count << " elements, root " << m.root);
          expect_moved_evenly(comm, m);
          expect_moved_unevenly(comm, m);
          if (::testing::Test::HasFatalFailure()) return;
        }
      },
      any_mode());
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
    EXPECT_EQ(s.operation(), fmt::format("all_to_all_v(i32 x {})", 2 * comm.size()));
    EXPECT_THAT(s.text(),
                StartsWith(fmt::format("rank {} has 2 elements for rank 0, which expects 3",
                                       comm.size() - 1)));
  });
}

TEST_P(Collective, ARootWithOtherCountsIsAMismatch) {
  if (n() < 2) GTEST_SKIP() << "one rank has nobody to disagree with";
  for (const CollectiveKind kind : {CollectiveKind::kGather, CollectiveKind::kScatter}) {
    const bool gathers = kind == CollectiveKind::kGather;
    run_ranks(n(), [&](Communicator& comm) {
      std::vector<std::int32_t> own(2), all(64);
      std::vector<ConstBlock> to;
      std::vector<Block> from;
      for (int r = 0; comm.rank() == 0 && r < comm.size(); ++r) {
        const std::size_t count = r == comm.size() - 1 ? 3 : 2;
        to.push_back({all.data() + 4 * r, count});
        from.push_back({all.data() + 4 * r, count});
      }
      const Status s = gathers ? comm.gather_v({own.data(), 2}, from, DataType::kI32, 0)
                               : comm.scatter_v(to, {own.data(), 2}, DataType::kI32, 0);
      EXPECT_EQ(s.cause(), Cause::kMismatch) << s.to_string();
      EXPECT_EQ(s.culprit(), comm.size() - 1);
      EXPECT_THAT(
          s.text(),
          StartsWith(gathers ? fmt::format("rank {} has 2 elements for rank 0, which expects 3",
                                           comm.size() - 1)
                             : fmt::format("rank 0 has 3 elements for rank {}, which expects 2",
                                           comm.size() - 1)));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collective, ::testing::Range(1, 9));

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
    if (comm.rank() == 0) data[std::size_t(1) << 31] = data.back() = 200;
    const Status moved = comm.broadcast(data.data(), data.data(), count, DataType::kU8, 0);
    ASSERT_TRUE(moved.ok()) << moved.to_string();
    EXPECT_EQ(data[(std::size_t(1) << 31) - 1], 3);
    EXPECT_EQ(data[std::size_t(1) << 31], 200);
    EXPECT_EQ(data.back(), 200);
  });
}

}  // namespace
}  // namespace topocoll
