// Plans that TOPOCOLL_PLAN names: which are taken, and which error refuses the others.
#include "communicator/given_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "topocoll/planning.h"
#include "topocoll/probe.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;

constexpr AllReduceAlgorithm kFree = AllReduceAlgorithm::kAuto;

class GivenPlanFiles : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string save(const std::string& name, Plan plan, std::string fingerprint = "") {
    plan.topology_fingerprint = std::move(fingerprint);
    const auto path = folder_ / name;
    std::ofstream(path) << to_json(plan);
    return path.string();
  }
  static Plan direct(CollectiveKind kind, int ranks) { return make_direct_plan(kind, "one_shot", ranks, 0).value(); }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("topocoll_given." + std::to_string(getpid()));
};

TEST_F(GivenPlanFiles, OneForThisMachineOrAnyIsTaken) {
  const auto here = discover_topology();
  ASSERT_TRUE(here.ok()) << here.status().to_string();
  const auto known = known_topology();  // differs where a probe has found links of GPUs
  ASSERT_TRUE(known.ok()) << known.status().to_string();
  const std::string files =
      save("here", direct(CollectiveKind::kAllReduce, 2), plan_fingerprint(*here)) + "," +
      save("known", direct(CollectiveKind::kAllReduce, 2), plan_fingerprint(*known)) + "," +
      save("any", direct(CollectiveKind::kAllGather, 2));
  const auto given = read_given_plans(files, 2, false, kFree);
  ASSERT_TRUE(given.ok()) << given.status().to_string();
  EXPECT_EQ(given->plans.size(), 3u);
}

TEST_F(GivenPlanFiles, OneForAnotherMachineIsRefusedWithBothNames) {
  const std::string other = "00000000deadbeef";
  const std::string file = save("other", direct(CollectiveKind::kAllReduce, 2), other);
  const Status refused = read_given_plans(file, 2, false, kFree).status();
  EXPECT_EQ(refused.cause(), Cause::kInvalidArgument);
  EXPECT_THAT(refused.text(), HasSubstr("TOPOCOLL_PLAN: " + file));
  EXPECT_THAT(refused.text(), HasSubstr(other));
  EXPECT_THAT(refused.text(), HasSubstr(plan_fingerprint(*known_topology())));
  EXPECT_THAT(refused.text(), HasSubstr("topology_fingerprint"));
  // A group of another size does not use it, so it is not in the way there.
  const auto unused = read_given_plans(file, 3, false, kFree);
  ASSERT_TRUE(unused.ok()) << unused.status().to_string();
  EXPECT_THAT(unused->others, ::testing::ElementsAre(file + " (2 ranks)"));
}

TEST_F(GivenPlanFiles, OneThatWouldNeverRunIsRefused) {
  for (const CollectiveKind kind : {CollectiveKind::kGather, CollectiveKind::kScatter, CollectiveKind::kBarrier}) {
    const Status refused = read_given_plans(save("never", direct(kind, 2)), 2, false, kFree).status();
    EXPECT_EQ(refused.cause(), Cause::kInvalidArgument);
    EXPECT_THAT(refused.text(), HasSubstr(std::string(name(kind)) + " always runs its direct plan"));
  }
  const std::string file = save("all_reduce", direct(CollectiveKind::kAllReduce, 2));
  EXPECT_TRUE(read_given_plans(file, 2, false, kFree).ok());
  const Status refused = read_given_plans(file, 2, false, AllReduceAlgorithm::kTwoShot).status();
  EXPECT_THAT(refused.text(), HasSubstr("TOPOCOLL_ALL_REDUCE_ALGORITHM=two_shot"));
}

}  // namespace
}  // namespace topocoll
