#include "control/outcome.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace topocoll {
namespace {

using State = Outcome::State;
using Fate = Outcome::Fate;
using Ranks = std::vector<int>;
using Progress = std::vector<StoppedProgress>;

TEST(Outcome, WhileRunningOnlyProofCounts) {
  Outcome o(3);
  EXPECT_EQ(o.state(), State::kRunning);
  EXPECT_EQ(o.fate(1), Fate::kPending);
  EXPECT_FALSE(o.may_report(1));
  o.on_proof(2);
  EXPECT_EQ(o.fate(1), Fate::kCommitted);
  EXPECT_EQ(o.fate(2), Fate::kCommitted);
  EXPECT_EQ(o.fate(3), Fate::kPending);
  EXPECT_TRUE(o.may_report(2));
  EXPECT_FALSE(o.may_report(3));
  o.on_proof(1);
  EXPECT_EQ(o.committed(), 2u) << "an older proof takes nothing back";
}

TEST(Outcome, WhileStoppingNothingNewIsReported) {
  Outcome o(2);
  o.on_proof(4);
  EXPECT_TRUE(o.on_fault({Cause::kPeerDied, 1, 5}));
  EXPECT_EQ(o.state(), State::kStopping);
  EXPECT_FALSE(o.may_report(4));
  EXPECT_EQ(o.fate(5), Fate::kPending);
  EXPECT_EQ(o.fate(4), Fate::kCommitted);
}

TEST(Outcome, TheDecisionSplitsTheSequence) {
  Outcome o(2);
  o.on_fault({Cause::kPeerDied, 1, 8});
  const Verdict& v = o.on_stopped(Progress{{8, 7}, {7, 6}});
  EXPECT_EQ(o.state(), State::kDecided);
  EXPECT_EQ(v.last_committed, 6u);
  EXPECT_EQ(v.first_aborted(), 7u);
  EXPECT_EQ(v.cause, Cause::kPeerDied);
  EXPECT_EQ(v.culprits, Ranks{1});
  EXPECT_EQ(o.fate(6), Fate::kCommitted);
  EXPECT_EQ(o.fate(7), Fate::kAborted);
  EXPECT_EQ(o.fate(1000), Fate::kAborted);
  EXPECT_TRUE(o.may_report(6));
  EXPECT_FALSE(o.may_report(7));
}

TEST(Outcome, TheFirstFaultAndTheFirstDecisionStand) {
  Outcome o(2);
  EXPECT_TRUE(o.on_fault({Cause::kAborted, 0, 3}));
  EXPECT_FALSE(o.on_fault({Cause::kPeerDied, 1, 3}));
  o.on_stopped(Progress{{3, 2}, {3, 2}});
  EXPECT_FALSE(o.on_fault({Cause::kTimeout, -1, 9}));
  EXPECT_EQ(o.on_stopped(Progress{{9, 9}, {9, 9}}).last_committed, 2u);
  EXPECT_EQ(o.verdict().cause, Cause::kAborted);
  EXPECT_EQ(o.verdict().culprits, Ranks{0});
}

struct Culprits {
  std::string what;
  FaultEvent fault;
  Progress progress;
  Ranks expected;
};

TEST(Outcome, WhoIsToBlame) {
  const std::vector<Culprits> table{
      {"a fault that names a rank", {Cause::kMismatch, 2, 1}, {{1, 0}, {1, 0}, {1, 0}}, {2}},
      {"a fault that names none", {Cause::kInternal, -1, 1}, {{1, 0}, {1, 0}}, {}},
      {"the named rank need not lag", {Cause::kPeerDied, 0, 4}, {{4, 3}, {3, 3}, {3, 2}}, {0}},
      {"timeout: who did not come",
       {Cause::kTimeout, -1, 5},
       {{5, 4}, {4, 4}, {5, 4}, {4, 3}},
       {1, 3}},
      {"timeout: one far ahead", {Cause::kTimeout, -1, 5}, {{4, 4}, {5, 4}, {4, 4}}, {0, 2}},
      {"timeout: all came, who did not finish",
       {Cause::kTimeout, -1, 5},
       {{5, 5}, {5, 4}, {5, 5}},
       {1}},
      {"timeout: nobody lags", {Cause::kTimeout, -1, 5}, {{5, 4}, {5, 4}}, {}},
      {"timeout: nobody lags, but one was waited for",
       {Cause::kTimeout, 1, 5},
       {{5, 4}, {5, 4}},
       {1}},
  };
  for (const Culprits& c : table) {
    Outcome o(static_cast<int>(c.progress.size()));
    o.on_fault(c.fault);
    EXPECT_EQ(o.on_stopped(c.progress).culprits, c.expected) << c.what;
    EXPECT_EQ(o.verdict().cause, c.fault.cause) << c.what;
  }
}

TEST(Outcome, AProofThatArrivesLateStands) {
  Outcome o(1);
  o.on_fault({Cause::kAborted, 0, 1});
  o.on_stopped({});
  EXPECT_EQ(o.verdict().last_committed, 0u);
  Outcome p(2);
  p.on_proof(3);
  p.on_fault({Cause::kAborted, 0, 4});
  p.on_stopped(Progress{{4, 3}, {3, 3}});
  p.on_proof(3);
  EXPECT_EQ(p.fate(4), Fate::kAborted);
  EXPECT_EQ(p.committed(), 3u);
}

/// n ranks walk through strict operations in a random order; the faults come at a random moment.
/// Each rank feeds its own machine with what it would see.
class Walk {
 public:
  explicit Walk(unsigned seed) : rng_(seed), n_(2 + rng_() % 4), progress_(n_), reported_(n_, 0) {
    for (std::size_t r = 0; r < n_; ++r) machines_.emplace_back(static_cast<int>(n_));
  }

  void run() {
    const std::size_t steps = rng_() % 200;
    for (std::size_t i = 0; i < steps; ++i) step(rng_() % n_);
    const FaultEvent fault{rng_() % 2 ? Cause::kPeerDied : Cause::kTimeout,
                           static_cast<int>(rng_() % n_), 0};
    for (Outcome& o : machines_) {
      ASSERT_TRUE(o.on_fault(fault));
      o.on_stopped(progress_);
    }
    check();
  }

 private:
  std::uint64_t least(std::uint64_t StoppedProgress::*field) const {
    std::uint64_t m = ~std::uint64_t(0);
    for (const StoppedProgress& p : progress_) m = std::min(m, p.*field);
    return m;
  }
  void step(std::size_t r) {
    StoppedProgress& p = progress_[r];
    Outcome& o = machines_[r];
    if (p.completed == p.entered && o.committed() == p.completed) {
      ++p.entered;
    } else if (p.completed < p.entered && least(&StoppedProgress::entered) >= p.entered) {
      ++p.completed;
    } else if (least(&StoppedProgress::completed) >= p.completed) {
      o.on_proof(p.completed);
      if (o.may_report(p.completed)) reported_[r] = p.completed;
    }
  }
  void check() const {
    const Verdict& first = machines_[0].verdict();
    for (std::size_t r = 0; r < n_; ++r) {
      const Verdict& v = machines_[r].verdict();
      ASSERT_EQ(v.last_committed, first.last_committed);
      ASSERT_EQ(v.culprits, first.culprits);
      ASSERT_TRUE(std::is_sorted(v.culprits.begin(), v.culprits.end()));
      ASSERT_LE(reported_[r], v.last_committed) << "success was reported of what is now aborted";
      for (std::uint64_t k = 1; k <= v.last_committed + 3; ++k) {
        ASSERT_EQ(machines_[r].fate(k), k <= v.last_committed ? Fate::kCommitted : Fate::kAborted);
        ASSERT_EQ(machines_[r].may_report(k), k <= v.last_committed);
      }
    }
  }

  std::mt19937 rng_;
  std::size_t n_;
  Progress progress_;
  std::vector<std::uint64_t> reported_;
  std::vector<Outcome> machines_;
};

TEST(Outcome, WhateverIsReportedIsCommittedEverywhere) {
  for (unsigned seed = 0; seed < 3000 && !HasFatalFailure(); ++seed) Walk(seed).run();
}

}  // namespace
}  // namespace topocoll
