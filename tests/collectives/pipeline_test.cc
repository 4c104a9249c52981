// CpuCollectives, with threads as ranks, against a reference that is evaluated in the order that
// the executed plan prescribes: bit for bit, around every threshold between the ways to execute.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/cpu/collectives.h"
#include "support/evaluate.h"
#include "support/fault_os.h"
#include "support/group.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::evaluate;
using testing::FaultOs;
using testing::run_ranks;
using testing::ShmGroup;
using Kind = CollectiveKind;

/// Thresholds small enough that a few kilobytes pass all of them.
shm::Tuning small_tuning() {
  shm::Tuning t;
  t.eager_bytes = 1024;
  t.exchange_bytes = 512;
  t.window_bytes = 4096;
  t.two_shot_bytes = 4096;
  t.small_copy_bytes = 256;
  t.stream_bytes = 60000;
  t.ring_bytes = 60000;
  t.slot_copy = static_cast<std::uint8_t>(CopyKind::kSimd);
  return t;
}

struct Shape {
  Kind kind = Kind::kAllReduce;
  std::size_t count = 0;
  int root = 0;
  bool uneven = false;
  bool in_place = false;
};

template <class T>
constexpr DataType type_of() {
  return sizeof(T) == 1 ? DataType::kU8 : DataType::kF32;
}

/// One call on all ranks: its buffers, and what must be in them at the end.
template <class T>
class Case {
 public:
  Case(const Shape& shape, int ranks, unsigned seed)
      : s_(shape), n_(ranks), blocks_(*make_plan("one_shot")), rng_(seed) {
    for (int r = 0; r < n_; ++r) {
      Side& side = sides_.emplace_back();
      for (int b = 0; b < input_chunks(blocks_, r); ++b) side.in.push_back(random(count_in(r, b)));
      for (int b = 0; b < output_chunks(blocks_, r); ++b)
        side.out.push_back(std::vector<T>(count_out(r, b)));
      // One byte off, so that nothing is aligned; a guard at the end.
      side.in_memory.resize(1 + total(side.in) * sizeof(T));
      side.out_memory.assign(1 + total(side.out) * sizeof(T) + kGuard, std::byte{0xee});
    }
  }

  Operation operation(int r) {
    Side& side = sides_[static_cast<std::size_t>(r)];
    std::byte* in = side.in_memory.data() + 1;
    std::byte* out = side.out_memory.data() + 1;
    if (s_.in_place && !side.in.empty() && !side.out.empty()) {
      const std::size_t own = static_cast<std::size_t>(r) * s_.count * sizeof(T);
      if (side.in.size() > side.out.size()) {
        out = side.in_memory.data() + 1 + own;
      } else {
        in = side.out_memory.data() + 1 + (side.out.size() > side.in.size() ? own : 0);
      }
    }
    side.out_at = out;
    Operation op;
    op.kind = s_.kind;
    op.type = type_of<T>();
    op.root = s_.root;
    op.count = own_count(r);
    if (!side.in.empty()) op.in = in;
    if (!side.out.empty()) op.out = out;
    for (const auto& block : side.in) {
      if (s_.uneven && side.in.size() > 1) op.in_blocks.push_back({in, block.size()});
      if (!block.empty()) std::memcpy(in, block.data(), block.size() * sizeof(T));
      in += block.size() * sizeof(T);
    }
    for (const auto& block : side.out) {
      if (s_.uneven && side.out.size() > 1) op.out_blocks.push_back({out, block.size()});
      out += block.size() * sizeof(T);
    }
    return op;
  }

  void check(const std::string& algorithm) {
    const Plan plan = *make_plan(algorithm);
    for (int r = 0; r < n_; ++r) {
      Side& side = sides_[static_cast<std::size_t>(r)];
      const std::byte* at = side.out_at;
      for (int b = 0; b < static_cast<int>(side.out.size()); ++b) {
        const std::vector<T> expected = reference(plan, r, b);
        if (expected.empty()) continue;
        ASSERT_EQ(std::memcmp(at, expected.data(), expected.size() * sizeof(T)), 0)
            << name(s_.kind) << " of " << s_.count << " by " << algorithm << ", rank " << r
            << " of " << n_ << ", block " << b << (s_.uneven ? ", uneven" : "")
            << (s_.in_place ? ", in place" : "");
        at += expected.size() * sizeof(T);
      }
      EXPECT_TRUE(std::all_of(side.out_memory.end() - kGuard, side.out_memory.end(),
                              [](std::byte x) { return x == std::byte{0xee}; }))
          << "written beyond the end";
    }
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 64;
  struct Side {
    std::vector<std::vector<T>> in, out;
    std::vector<std::byte> in_memory, out_memory;
    const std::byte* out_at = nullptr;
  };

  [[nodiscard]] Result<Plan> make_plan(const std::string& algorithm) const {
    return make_direct_plan(s_.kind, algorithm, n_, s_.root);
  }
  [[nodiscard]] bool striped() const {
    return s_.kind == Kind::kAllReduce || s_.kind == Kind::kBroadcast || s_.kind == Kind::kReduce;
  }
  [[nodiscard]] std::size_t count_between(int from, int to) const {
    if (striped() || !s_.uneven) return s_.count;
    const bool gathers = s_.kind == Kind::kAllGather || s_.kind == Kind::kGather;
    const int block = s_.kind == Kind::kAllToAll ? from * n_ + to : gathers ? from : to;
    return s_.count + static_cast<std::size_t>(block * 5 % 7);
  }
  [[nodiscard]] std::size_t count_in(int r, int block) const { return count_between(r, block); }
  [[nodiscard]] std::size_t count_out(int r, int block) const { return count_between(block, r); }
  [[nodiscard]] std::size_t own_count(int r) const {
    return s_.kind == Kind::kAllToAll && s_.uneven ? 0 : count_between(r, r);
  }
  static std::size_t total(const std::vector<std::vector<T>>& blocks) {
    std::size_t sum = 0;
    for (const auto& b : blocks) sum += b.size();
    return sum;
  }
  std::vector<T> random(std::size_t count) {
    std::vector<T> v(count);
    for (T& x : v) {
      // Magnitudes that differ widely: another order of evaluation gives other bits.
      const auto bits = rng_();
      x = sizeof(T) == 1 ? static_cast<T>(bits & 0xff)
                         : static_cast<T>(std::ldexp(static_cast<double>(bits % 65537) - 32768,
                                                     static_cast<int>(bits >> 20 & 15)));
    }
    return v;
  }
  [[nodiscard]] std::vector<T> reference(const Plan& plan, int r, int block) const {
    const std::string order = evaluation_order(plan, r, striped() ? 0 : block).value();
    for (int c = 1; striped() && c < plan.chunks; ++c) {
      EXPECT_EQ(evaluation_order(plan, r, c).value(), order) << "one order for the whole message";
    }
    const std::size_t source =
        sides_[0].in.size() > 1 || s_.kind == Kind::kScatter ? static_cast<std::size_t>(r) : 0;
    std::vector<T> expected(
        sides_[static_cast<std::size_t>(r)].out[static_cast<std::size_t>(block)].size());
    for (std::size_t e = 0; e < expected.size(); ++e) {
      std::size_t at = 0;
      expected[e] = evaluate<T>(
          order, at, [&](int p) { return sides_[static_cast<std::size_t>(p)].in[source][e]; });
    }
    return expected;
  }

  Shape s_;
  int n_;
  Plan blocks_;  ///< tells how many blocks each rank has
  std::mt19937 rng_;
  std::vector<Side> sides_;
};

/// Runs all cases one after the other over one segment, and compares each. `tuning_of`: a rank's;
/// `learnt`: what rank 0 has published for all sizes.
template <class T>
void run_cases(int ranks, const std::function<shm::Tuning(int)>& tuning_of,
               const std::vector<Shape>& shapes, std::optional<Method> learnt = std::nullopt) {
  ShmGroup group(ranks);
  if (learnt) {
    for (auto& method : group[0].header().methods) method.store(learnt->packed());
  }
  std::vector<std::unique_ptr<Case<T>>> cases;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    cases.push_back(std::make_unique<Case<T>>(shapes[i], ranks, static_cast<unsigned>(i)));
  }
  std::vector<std::string> algorithms(shapes.size());
  run_ranks(ranks, [&](int r) {
    Context context(Os::real(), group[r], r);
    context.tuning = tuning_of(r);
    // Sleeping early: on a busy machine every yield costs a time slice of somebody else.
    context.waiter.set_policy({.spin = 200, .yields = 2});
    CpuCollectives collectives(context);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Operation op = cases[i]->operation(r);
      shm::Deadline deadline(30s);
      const ExecResult result = collectives.execute(op, i + 1, deadline);
      ASSERT_TRUE(result.ok()) << op.to_string() << ": stop " << static_cast<int>(result.stop);
      if (i % 3 == 0) {
        ASSERT_TRUE(collectives.confirm(i + 1, deadline).ok());
      }
      if (r == 0) algorithms[i] = collectives.choice(op).algorithm;
    }
  });
  for (std::size_t i = 0; i < cases.size() && !::testing::Test::HasFailure(); ++i) {
    cases[i]->check(algorithms[i]);
  }
}

template <class T>
void run_cases(int ranks, const shm::Tuning& tuning, const std::vector<Shape>& shapes) {
  run_cases<T>(ranks, [&tuning](int) { return tuning; }, shapes);
}

std::vector<Shape> all_shapes(int ranks, const std::vector<std::size_t>& counts) {
  std::vector<Shape> shapes;
  for (const std::size_t count : counts) {
    for (int k = 0; k <= static_cast<int>(Kind::kScatter); ++k) {
      for (const bool uneven : {false, true}) {
        for (const bool in_place : {false, true}) {
          if (uneven && (in_place || ranks == 1)) continue;
          Shape s{static_cast<Kind>(k), count, 0, uneven, in_place};
          if (has_root(s.kind)) s.root = static_cast<int>(count) % ranks;
          shapes.push_back(s);
        }
      }
    }
  }
  return shapes;
}

// Inline payloads end at 24 bytes, eager ones at 1024, windows are cut at 512 and 4096.
const std::vector<std::size_t> kFloatCounts{0,   1,   6,    7,    100,  128,  129,
                                            256, 257, 1024, 1025, 6000, 20011};
const std::vector<std::size_t> kByteCounts{0, 1, 24, 25, 513, 1024, 1025, 4097, 17003};

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 5));

TEST_P(Collectives, FloatsHaveTheBitsOfTheirPlan) {
  run_cases<float>(GetParam(), small_tuning(), all_shapes(GetParam(), kFloatCounts));
}

TEST_P(Collectives, BytesOfAnySize) {
  run_cases<std::uint8_t>(GetParam(), small_tuning(), all_shapes(GetParam(), kByteCounts));
}

TEST_P(Collectives, EveryAllReduceGivesTheSameBits) {
  std::vector<Shape> shapes;
  for (const std::size_t count : kFloatCounts)
    shapes.push_back({Kind::kAllReduce, count, 0, false, count % 2 == 1});
  for (const AllReduceAlgorithm a : {AllReduceAlgorithm::kOneShot, AllReduceAlgorithm::kExchange,
                                     AllReduceAlgorithm::kTwoShot}) {
    shm::Tuning t = small_tuning();
    t.all_reduce = static_cast<std::uint8_t>(a);
    t.slot_copy = static_cast<std::uint8_t>(CopyKind::kString);
    run_cases<float>(GetParam(), t, shapes);
  }
  shm::Tuning meeting = small_tuning();
  meeting.meet = 1;
  run_cases<float>(GetParam(), meeting, all_shapes(GetParam(), {0, 1, 6, 7, 200, 256, 257, 6000}));
}

/// While the group changes its mind, one rank may put into its slot what another sends through the ring.
TEST_P(Collectives, SlotAndRingGiveTheSameBits) {
  const int ranks = GetParam();
  const std::vector<Shape> shapes = all_shapes(ranks, {0, 6, 127, 128, 250, 256, 257});
  for (const int other : {0, ranks - 1}) {
    const auto tuning_of = [&](int r) {
      shm::Tuning t = small_tuning();
      if (r == other) t.eager_bytes = 500;
      return t;
    };
    run_cases<float>(ranks, tuning_of, shapes);
  }
  const auto tuning_of = [](int) { return small_tuning(); };
  run_cases<float>(ranks, tuning_of, shapes, Method{CopyKind::kString, false, true});
}

TEST(Collectives, BlocksLargerThanACellPassInWindows) {
  for (const int n : {2, 3}) {
    std::vector<Shape> shapes = all_shapes(n, {70001});
    std::erase_if(shapes, [](const Shape& s) { return !s.uneven; });
    run_cases<float>(n, small_tuning(), shapes);
  }
}

/// What slots hold needs no ring, so a ring that cannot be had is no reason to fail.
TEST(Collectives, WithoutMemoryForTheRingSlotsGoOn) {
  ShmGroup group(2);
  run_ranks(2, [&](int r) {
    FaultOs os;
    os.fail("allocate", Status(Cause::kResource, "full"));
    Context context(os, group[r], r);
    context.tuning = small_tuning();
    context.tuning.eager_bytes = 32768;
    context.tuning.ring_from_bytes = 16384;
    context.waiter.set_policy({.spin = 200, .yields = 2});
    CpuCollectives collectives(context);
    if (r == 0) collectives.learn({CopyKind::kMemcpy, CopyKind::kString});
    const std::vector<float> in(8192, 2.0f);
    std::vector<float> out(in.size());
    Operation op;
    op.kind = Kind::kAllReduce;
    op.type = DataType::kF32;
    op.in = in.data();
    op.out = out.data();
    for (std::uint64_t seq = 1; seq <= 400; ++seq) {
      op.count = seq % 2 == 0 ? 2048 : 8192;
      shm::Deadline deadline(30s);
      const ExecResult result = collectives.execute(op, seq, deadline);
      ASSERT_TRUE(result.ok()) << seq << ": " << result.status.text();
      ASSERT_EQ(out[op.count - 1], 4.0f);
    }
  });
}

TEST(Collectives, ManyRanks) {
  run_cases<float>(12, small_tuning(), all_shapes(12, {0, 6, 100, 300, 5000}));
}

TEST(Collectives, ASingleRankScalesToo) {
  for (const std::size_t count : {std::size_t(5), std::size_t(100000)}) {
    ShmGroup group(1);
    Context context(Os::real(), group[0], 0);
    context.tuning = small_tuning();
    CpuCollectives collectives(context);
    const std::vector<float> in(count, 3.0f);
    std::vector<float> out(count);
    Operation op;
    op.kind = Kind::kAllReduce;
    op.type = DataType::kF32;
    op.reduction = Reduction::premul_sum(0.5);
    op.in = in.data();
    op.out = out.data();
    op.count = count;
    shm::Deadline deadline(10s);
    ASSERT_TRUE(collectives.execute(op, 1, deadline).ok());
    EXPECT_EQ(out, std::vector<float>(count, 1.5f)) << count;
  }
}

// ---- How operations stop
// --------------------------------------------------------------------------------

struct Rank {
  Rank(ShmGroup& group, int rank, Os& os = Os::real())
      : context(os, group[rank], rank), collectives(context) {
    context.tuning = small_tuning();
    context.waiter.set_policy({.spin = 10, .yields = 10});
  }
  ExecResult all_reduce(std::size_t count, std::uint64_t seq,
                        std::chrono::milliseconds timeout = 20s) {
    in.assign(count, 1.0f);
    out.assign(count, -1.0f);
    Operation op;
    op.kind = Kind::kAllReduce;
    op.type = DataType::kF32;
    op.in = in.data();
    op.out = out.data();
    op.count = count;
    shm::Deadline deadline(timeout);
    return collectives.execute(op, seq, deadline);
  }
  [[nodiscard]] bool untouched() const {
    return std::all_of(out.begin(), out.end(), [](float x) { return x == -1.0f; });
  }
  Context context;
  CpuCollectives collectives;
  std::vector<float> in, out;
};

TEST(Collectives, WhoReducesForAllAndDoesNotGoOnIsNamed) {
  ShmGroup group(2);
  Rank rank(group, 0);
  rank.context.tuning.meet = 1;
  std::thread other([&group] {
    shm::MeetingBlock& meeting = group[1].meeting();
    while (meeting.arrivals[1].load() == 0) std::this_thread::yield();
    meeting.reducer.store(1);
    meeting.arrivals[1].store(0);
  });
  const ExecResult result = rank.all_reduce(100, 1, 50ms);
  other.join();
  EXPECT_EQ(result.stop, Stop::kTimeout);
  EXPECT_EQ(result.rank, 1);
}

/// Lines that a peer has just read are dear to write again.
TEST(Collectives, AnOperationGoesOnInTheRingWhereTheLastHasEnded) {
  ShmGroup group(2);
  constexpr std::size_t kCount = 1024;  // 4 KiB: 8 windows of 512 bytes
  const auto floats = [&](int rank, std::size_t byte) {
    float x = 0;
    std::memcpy(&x, group[0].ring(rank) + byte, sizeof x);
    return x;
  };
  run_ranks(2, [&](int r) {
    Rank rank(group, r);
    rank.context.tuning.two_shot_bytes = 1 << 20;
    // 60,000 bytes are to be used: 117 windows.
    for (std::uint64_t seq = 1; seq <= 15; ++seq) ASSERT_TRUE(rank.all_reduce(kCount, seq).ok());
  });
  EXPECT_EQ(floats(1, 14 * 4096), 1.0f) << "the fifteenth operation";
  EXPECT_EQ(floats(1, 117 * 512), 0.0f) << "no more than is to be used";
}

TEST(RingGeometry, HasPlacesToGoRoundThrough) {
  Program program;
  program.values = 2;
  program.phases = 2;
  const auto geometry = [&](std::size_t share, std::size_t round) {
    const RingGeometry g = ring_geometry(program, 512, share, round);
    return std::vector<std::size_t>{g.slots, g.places, g.goes_on ? 1u : 0u};
  };
  using Geometry = std::vector<std::size_t>;
  EXPECT_EQ(geometry(64 << 10, 1 << 20), (Geometry{32, 64, 1}));
  EXPECT_EQ(geometry(64 << 10, 48 << 10), (Geometry{32, 48, 1}));
  EXPECT_EQ(geometry(64 << 10, 31 << 10), (Geometry{32, 32, 0})) << "slots need more";
  EXPECT_EQ(geometry(64 << 10, 0), (Geometry{32, 32, 0}));
  EXPECT_EQ(geometry(16 << 10, 1 << 20), (Geometry{16, 16, 1}));
  EXPECT_EQ(geometry(1 << 10, 1 << 20), (Geometry{0, 0, 0}));
  program.phases = 40;
  EXPECT_EQ(geometry(64 << 10, 0), (Geometry{40, 40, 0})) << "one for each phase";
  EXPECT_EQ(geometry(39 << 10, 0), (Geometry{0, 0, 0}));
}

TEST(Stop, AMismatchIsSeenBeforeAnyOutputIsWritten) {
  for (const auto& [count, other, meet] :
       std::vector<std::tuple<std::size_t, std::size_t, bool>>{{10, 11, false},
                                                               {10, 5000, false},
                                                               {5000, 5001, false},
                                                               {10, 11, true},
                                                               {10, 5000, true}}) {
    ShmGroup group(3);
    run_ranks(3, [&, c = count, o = other, m = meet](int r) {
      Rank rank(group, r);
      rank.context.tuning.meet = m ? 1 : 0;
      const ExecResult result = rank.all_reduce(r == 2 ? o : c, 1);
      EXPECT_TRUE(result.stop == Stop::kMismatch || result.stop == Stop::kFrozen) << r;
      if (result.stop == Stop::kMismatch) {
        EXPECT_EQ(result.rank, 2) << r;
      }
      EXPECT_TRUE(rank.untouched()) << r;
      rank.context.gate.raise({Cause::kMismatch, result.rank, 1});
      rank.context.gate.freeze(Os::real());
    });
  }
}

TEST(Stop, AnAbsentRankEndsInATimeout) {
  for (const std::size_t count : {10, 5000}) {
    ShmGroup group(2);
    Rank rank(group, 0);
    EXPECT_EQ(rank.all_reduce(count, 1, 30ms).stop, Stop::kTimeout);
    EXPECT_TRUE(rank.untouched());
  }
  ShmGroup group(2);
  run_ranks(2, [&](int r) {
    Rank rank(group, r);
    EXPECT_TRUE(rank.all_reduce(10, 1).ok());
    shm::Deadline deadline(30ms);
    if (r == 0) {
      EXPECT_EQ(rank.collectives.confirm(1, deadline).stop, Stop::kTimeout);
    }
  });
}

TEST(Stop, AFrozenEpochIsEnteredByNobody) {
  ShmGroup group(2);
  Rank rank(group, 0);
  rank.context.gate.raise({Cause::kAborted, 1, 0});
  rank.context.gate.freeze(Os::real());
  EXPECT_EQ(rank.all_reduce(10, 1).stop, Stop::kFrozen);
  shm::Deadline deadline(1s);
  EXPECT_EQ(rank.collectives.confirm(1, deadline).stop, Stop::kFrozen);
}

TEST(Stop, ARankThatDiedOrLeftIsNamed) {
  ShmGroup group(3);
  {
    testing::Child child([&] {
      if (!shm::hold_alive_lock(group[2].block(2)).ok()) ::_exit(1);
    });
  }
  Rank rank(group, 0);
  ExecResult result = rank.all_reduce(10, 1);
  EXPECT_EQ(result.stop, Stop::kDead);
  EXPECT_EQ(result.rank, 2);
  ShmGroup another(2);
  another[1].block(1).state.store(shm::RankState::kLeft);
  Rank left_behind(another, 0);
  result = left_behind.all_reduce(10, 1);
  EXPECT_EQ(result.stop, Stop::kLeft);
  EXPECT_EQ(result.rank, 1);
}

TEST(Stop, NoRoomForTheRingIsAResourceError) {
  ShmGroup group(2);
  FaultOs full;
  full.fail("allocate",
            Status(Cause::kResource, "a group's pipeline needs 8.0 MiB of shared memory"));
  run_ranks(2, [&](int r) {
    Rank rank(group, r, full);
    EXPECT_TRUE(rank.all_reduce(10, 1).ok()) << "small operations need no ring";
    const ExecResult result = rank.all_reduce(5000, 2);
    EXPECT_EQ(result.stop, Stop::kResource);
    EXPECT_EQ(result.rank, r);
    EXPECT_NE(result.status.text().find("8.0 MiB"), std::string::npos);
    EXPECT_TRUE(rank.untouched());
  });
}

}  // namespace
}  // namespace topocoll
