#include "collectives/cpu/request.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "support/group.h"

namespace topocoll {
namespace {

using testing::ShmGroup;

using Kind = CollectiveKind;
using Counts = std::vector<std::size_t>;

/// Operations of n ranks, announced as the executor does, without running them.
class Announced {
 public:
  explicit Announced(int ranks) : group_(ranks), ops_(static_cast<std::size_t>(ranks)) {}

  Operation& op(int rank) { return ops_[static_cast<std::size_t>(rank)]; }
  void for_all(const std::function<void(Operation&, int)>& f) {
    for (int r = 0; r < group_.ranks(); ++r) f(op(r), r);
  }
  /// The rank to blame, as every rank sees it.
  int blame() {
    ++seq_;
    const int parity = static_cast<int>(seq_ & 1);
    for (int r = 0; r < group_.ranks(); ++r) {
      const Request request = Request::of(op(r), r, group_.ranks());
      group_[r].entry(parity, r).descriptor = request.descriptor;
      std::uint64_t flag = seq_;
      if (request.lists_counts) {
        write_counts(request, group_.ranks(), group_[r].slot(parity, r));
        flag |= shm::kCounts;
      }
      EXPECT_TRUE(shm::Gate(group_[r]).enter(r, seq_, flag));
    }
    int first = 0;
    for (int r = 0; r < group_.ranks(); ++r) {
      const Context context(Os::real(), group_[r], r);
      const int found = find_mismatch(context, seq_);
      if (r == 0) first = found;
      EXPECT_EQ(found, first) << "rank " << r << " differs in its verdict";
    }
    return first;
  }

 private:
  ShmGroup group_;
  std::vector<Operation> ops_;
  std::uint64_t seq_ = 0;
};

Operation all_reduce(std::size_t count) {
  Operation op;
  op.kind = Kind::kAllReduce;
  op.type = DataType::kF32;
  op.count = count;
  return op;
}

TEST(Mismatch, EveryFieldIsCompared) {
  struct Case {
    const char* what;
    std::function<void(Operation&)> change;
  };
  const std::vector<Case> cases{
      {"kind", [](Operation& o) { o.kind = Kind::kReduce; }},
      {"type", [](Operation& o) { o.type = DataType::kI32; }},
      {"op", [](Operation& o) { o.reduction = ReduceOp::kMax; }},
      {"count", [](Operation& o) { o.count = 11; }},
  };
  for (int culprit : {0, 1, 2}) {
    for (const Case& c : cases) {
      Announced a(3);
      a.for_all([](Operation& o, int) { o = all_reduce(10); });
      EXPECT_EQ(a.blame(), -1);
      c.change(a.op(culprit));
      EXPECT_EQ(a.blame(), culprit) << c.what;
    }
  }
}

TEST(Mismatch, RootsAreComparedWhereTheyMatter) {
  for (const Kind kind : {Kind::kBroadcast, Kind::kReduce, Kind::kGather, Kind::kScatter}) {
    Announced a(3);
    a.for_all([&](Operation& o, int) {
      o = all_reduce(10);
      o.kind = kind;
    });
    EXPECT_EQ(a.blame(), -1);
    a.op(2).root = 1;
    EXPECT_EQ(a.blame(), 2) << name(kind);
  }
  Announced b(2);
  b.for_all([](Operation& o, int r) {
    o = all_reduce(10);
    o.root = r;
    o.reduction.factor = r;
  });
  EXPECT_EQ(b.blame(), -1) << "all_reduce has no root, and factors are each rank's own";
}

TEST(Mismatch, TheReductionMattersOnlyWhereThereIsOne) {
  Announced a(2);
  a.for_all([](Operation& o, int r) {
    o = all_reduce(10);
    o.kind = Kind::kAllGather;
    o.reduction = r == 0 ? ReduceOp::kSum : ReduceOp::kMin;
  });
  EXPECT_EQ(a.blame(), -1);
}

std::vector<Block> out_list(const Counts& counts) {
  std::vector<Block> list;
  for (std::size_t c : counts) list.push_back({nullptr, c});
  return list;
}
std::vector<ConstBlock> in_list(const Counts& counts) {
  std::vector<ConstBlock> list;
  for (std::size_t c : counts) list.push_back({nullptr, c});
  return list;
}

TEST(Mismatch, ListsThatAllRanksKnowMustBeEqual) {
  for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter}) {
    const Counts counts{3, 5, 4};
    Announced a(3);
    const auto give = [&](int r, const Counts& list) {
      Operation& o = a.op(r);
      o = all_reduce(list[static_cast<std::size_t>(r)]);
      o.kind = kind;
      (kind == Kind::kAllGather ? void(o.out_blocks = out_list(list))
                                : void(o.in_blocks = in_list(list)));
    };
    for (int r = 0; r < 3; ++r) give(r, counts);
    EXPECT_EQ(a.blame(), -1) << name(kind);
    give(1, {4, 5, 3});
    EXPECT_EQ(a.blame(), 1) << name(kind) << ": the same total in another order";
    give(1, {4, 5, 4});
    EXPECT_EQ(a.blame(), 1) << name(kind);
  }
}

TEST(Mismatch, AListOfEqualCountsIsAsNoList) {
  Announced a(3);
  a.for_all([](Operation& o, int r) {
    o = all_reduce(7);
    o.kind = Kind::kAllGather;
    if (r != 1) o.out_blocks = out_list({7, 7, 7});
  });
  EXPECT_EQ(a.blame(), -1);
  a.op(0).out_blocks = out_list({8, 8, 8});
  EXPECT_NE(a.blame(), -1);
}

TEST(Mismatch, GatherComparesTheRootsListWithEachRanksCount) {
  for (const Kind kind : {Kind::kGather, Kind::kScatter}) {
    for (const int root : {0, 2}) {
      Announced a(3);
      const Counts counts{2, 0, 9};
      a.for_all([&](Operation& o, int r) {
        o = all_reduce(counts[static_cast<std::size_t>(r)]);
        o.kind = kind;
        o.root = root;
        if (r != root) return;
        (kind == Kind::kGather ? void(o.out_blocks = out_list(counts))
                               : void(o.in_blocks = in_list(counts)));
      });
      EXPECT_EQ(a.blame(), -1) << name(kind) << " to " << root;
      a.op(1).count = 1;
      EXPECT_EQ(a.blame(), 1) << name(kind) << " to " << root;
    }
    Announced even(3);
    even.for_all([&](Operation& o, int) {
      o = all_reduce(4);
      o.kind = kind;
    });
    EXPECT_EQ(even.blame(), -1);
    even.op(2).count = 5;
    EXPECT_EQ(even.blame(), 2) << name(kind);
  }
}

TEST(Mismatch, AllToAllComparesEveryPair) {
  // counts[i][j]: from i to j
  const std::vector<Counts> counts{{1, 2, 3}, {0, 5, 6}, {7, 8, 0}};
  const auto fill = [&](Announced& a) {
    a.for_all([&](Operation& o, int r) {
      o = all_reduce(0);
      o.kind = Kind::kAllToAll;
      const auto me = static_cast<std::size_t>(r);
      o.in_blocks = in_list(counts[me]);
      o.out_blocks = out_list({counts[0][me], counts[1][me], counts[2][me]});
    });
  };
  Announced good(3);
  fill(good);
  EXPECT_EQ(good.blame(), -1);
  for (int receiver = 0; receiver < 3; ++receiver) {
    for (std::size_t sender = 0; sender < 3; ++sender) {
      Announced a(3);
      fill(a);
      ++a.op(receiver).out_blocks[sender].count;
      EXPECT_EQ(a.blame(), receiver) << "what it expects from " << sender;
    }
  }
}

TEST(Mismatch, AllToAllMayMixListsAndEvenCounts) {
  Announced a(2);
  a.for_all([](Operation& o, int r) {
    o = all_reduce(4);
    o.kind = Kind::kAllToAll;
    if (r == 0) {
      o.in_blocks = in_list({4, 4});
      o.out_blocks = out_list({4, 4});
    }
  });
  EXPECT_EQ(a.blame(), -1);
  a.op(1).count = 3;
  EXPECT_NE(a.blame(), -1);
  Announced even(2);
  even.for_all([](Operation& o, int r) {
    o = all_reduce(r == 0 ? 4 : 5);
    o.kind = Kind::kAllToAll;
  });
  EXPECT_EQ(even.blame(), 1);
}

TEST(Request, PayloadsAreWhatARankPutsIntoItsSlot) {
  Operation op = all_reduce(10);
  const auto payload = [&](Kind kind, int rank) {
    op.kind = kind;
    op.root = 1;
    return Request::of(op, rank, 3).payload_bytes;
  };
  EXPECT_EQ(payload(Kind::kAllReduce, 0), 40u);
  EXPECT_EQ(payload(Kind::kReduce, 0), 40u);
  EXPECT_EQ(payload(Kind::kGather, 0), 40u);
  EXPECT_EQ(payload(Kind::kAllGather, 0), 40u);
  EXPECT_EQ(payload(Kind::kReduceScatter, 0), 120u);
  EXPECT_EQ(payload(Kind::kAllToAll, 0), 120u);
  EXPECT_EQ(payload(Kind::kScatter, 1), 120u);
  EXPECT_EQ(payload(Kind::kScatter, 0), 0u);
  EXPECT_EQ(payload(Kind::kBroadcast, 0), payload(Kind::kBroadcast, 1)) << "all choose one path";
  EXPECT_EQ(payload(Kind::kBarrier, 0), 0u);
}

TEST(Request, CountsLeadTheSlotInWholeLines) {
  Operation op = all_reduce(0);
  op.kind = Kind::kAllToAll;
  op.in_blocks = in_list({1, 2, 3, 4, 5});
  op.out_blocks = out_list({6, 7, 8, 9, 10});
  const Request r = Request::of(op, 0, 5);
  EXPECT_TRUE(r.lists_counts);
  EXPECT_EQ(r.counts_bytes, 128u) << "ten counts";
  EXPECT_EQ(r.payload_bytes, 60u);
  std::array<std::uint64_t, 16> slot{};
  write_counts(r, 5, reinterpret_cast<std::byte*>(slot.data()));
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(slot[i], i + 1);
}

}  // namespace
}  // namespace topocoll
