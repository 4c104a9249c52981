#include "topocoll/status.h"

#include <gtest/gtest.h>

namespace topocoll {
namespace {

TEST(Status, DefaultIsOkAndCarriesNothing) {
  const Status s;
  EXPECT_TRUE(s.ok());
  EXPECT_EQ(s.cause(), Cause::kOk);
  EXPECT_TRUE(s.culprits().empty());
  EXPECT_EQ(s.culprit(), -1);
  EXPECT_EQ(s.seq(), 0u);
  EXPECT_EQ(s.text(), "");
  EXPECT_EQ(s.to_string(), "ok");
  EXPECT_EQ(sizeof(Status), sizeof(std::shared_ptr<int>));
}

TEST(Status, OkCauseMakesOkWhateverTheText) {
  EXPECT_TRUE(Status(Cause::kOk, "ignored").ok());
  EXPECT_TRUE(Status::operation(Cause::kOk, {1}, 1, 2, "barrier()", "ignored").ok());
}

TEST(Status, CallErrorPrintsCauseAndText) {
  const Status s(Cause::kInvalidArgument, "count is 7, the group has 4 ranks");
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(s.to_string(), "invalid_argument: count is 7, the group has 4 ranks");
  EXPECT_EQ(s.operation(), "");
}

TEST(Status, OperationErrorPrintsTheWholeRecord) {
  const Status s =
      Status::operation(Cause::kPeerDied, {3}, 1, 7, "all_reduce(f32 x 1024, sum)", "rank 3 died");
  EXPECT_EQ(s.to_string(),
            "peer_died: all_reduce(f32 x 1024, sum) number 7 of epoch 1: rank 3 died");
  EXPECT_EQ(s.culprit(), 3);
  EXPECT_EQ(s.epoch(), 1u);
  EXPECT_EQ(s.seq(), 7u);
}

TEST(Status, OperationErrorWithoutNameOrNumber) {
  EXPECT_EQ(Status::operation(Cause::kAborted, {}, 2, 9, "", "stop").to_string(),
            "aborted: before operation number 9 of epoch 2: stop");
  EXPECT_EQ(Status::operation(Cause::kTimeout, {1}, 1, 0, "send(u8 x 1, rank 1, tag 0)", "late")
                .to_string(),
            "timeout: send(u8 x 1, rank 1, tag 0): late");
}

TEST(Status, NamesFromElsewhereCannotSteerATerminal) {
  const std::string hostile = "rank\x1b[2J\x07 \xc3\xa9\nnext";  // e with an acute accent stays
  EXPECT_EQ(Status(Cause::kSystem, hostile).text(), "rank?[2J? \xc3\xa9\nnext");
  EXPECT_EQ(Status::operation(Cause::kAborted, {}, 1, 1, "", hostile).text(),
            "rank?[2J? \xc3\xa9\nnext");
  EXPECT_EQ(Status(Cause::kSystem,
                   "a\xe2\x80\xae"
                   "b \xe2\x81\xa9 \xe2\x80\xa6 \xe2\x80")
                .text(),
            "a?b ? \xe2\x80\xa6 \xe2\x80")
      << "marks of direction, but not the ellipsis";
  EXPECT_EQ(Status(Cause::kSystem, "x").annotated("\x1b[1m").text(), "?[1m: x");
}

TEST(Status, CulpritsAreOrderedAndUnique) {
  const Status s = Status::operation(Cause::kTimeout, {5, 2, 5, 3}, 1, 1, "barrier()", "absent");
  EXPECT_EQ(s.culprits(), (std::vector<int>{2, 3, 5}));
  EXPECT_EQ(s.culprit(), 2);
}

TEST(Status, AnnotatedKeepsTheRecordAndLeavesTheOriginal) {
  const Status s = Status::operation(Cause::kPeerDied, {3}, 1, 7, "barrier()", "rank 3 died");
  const Status t = s.annotated("while closing");
  EXPECT_EQ(t.text(), "while closing: rank 3 died");
  EXPECT_EQ(t.culprits(), s.culprits());
  EXPECT_EQ(t.seq(), 7u);
  EXPECT_EQ(s.text(), "rank 3 died");
  EXPECT_TRUE(Status().annotated("x").ok());
  EXPECT_EQ(Status(Cause::kSystem, "").annotated("open").text(), "open");
}

TEST(Status, EveryCauseHasItsOwnName) {
  std::vector<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(Cause::kInternal); ++i) {
    const auto n = name(static_cast<Cause>(i));
    EXPECT_NE(n, "unknown") << i;
    for (const auto& other : names) EXPECT_NE(n, other);
    names.push_back(n);
  }
  EXPECT_EQ(name(Cause::kPeerDied), "peer_died");
  EXPECT_EQ(name(Cause::kUnsupported), "unsupported");
  EXPECT_EQ(name(Cause::kExcluded), "excluded");
  EXPECT_EQ(name(static_cast<Cause>(200)), "unknown");
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::string> good = std::string("x");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, "x");
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(good->size(), 1u);
  const Result<std::string> bad = Status(Cause::kSystem, "no");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().cause(), Cause::kSystem);
}

}  // namespace
}  // namespace topocoll
