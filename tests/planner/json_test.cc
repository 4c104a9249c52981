#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "planner/plans.h"
#include "topocoll/plan.h"

namespace topocoll::testing {
namespace {

using ::testing::HasSubstr;

std::vector<Plan> some_plans() {
  std::vector<Plan> plans;
  for (int k = 0; k < kNumCollectiveKinds; ++k) {
    for (const char* algorithm : {"one_shot", "two_shot"}) {
      auto plan = make_direct_plan(static_cast<CollectiveKind>(k), algorithm, 3, 2);
      if (plan.ok()) plans.push_back(*plan);
    }
  }
  plans.push_back(ring_all_reduce(4));
  plans.back().min_bytes = 65536;
  plans.back().max_bytes = 1U << 30;
  plans.back().topology_fingerprint = "0123456789abcdef";
  plans.back().algorithm = "ring \"two ways\"\n";
  plans.push_back(tree_all_reduce(5));
  return plans;
}

TEST(PlanJson, RoundTripKeepsEverything) {
  for (const Plan& plan : some_plans()) {
    const std::string text = to_json(plan);
    const auto back = plan_from_json(text);
    ASSERT_TRUE(back.ok()) << back.status().to_string() << "\n" << text;
    EXPECT_EQ(*back, plan);
    EXPECT_EQ(to_json(*back), text);
  }
}

TEST(PlanJson, TheTextIsAsPublished) {
  const Plan plan = make_direct_plan(CollectiveKind::kReduce, "one_shot", 2, 0).value();
  EXPECT_EQ(to_json(plan), R"({
"topocoll_plan": 1, "kind": "reduce", "algorithm": "one_shot",
"ranks": 2, "root": 0, "chunks": 1, "scratch_chunks": 2, "channels": 1,
"min_bytes": 0, "max_bytes": 18446744073709551615, "topology_fingerprint": "",
"steps": [
[
  {"do": "recv", "target": "scratch:1", "peer": 1, "channel": 0},
  {"do": "reduce", "source": ["input:0", "scratch:1"], "target": "output:0"}],
[
  {"do": "send", "source": "input:0", "peer": 0, "channel": 0}]
]
}
)");
}

TEST(PlanJson, LargePlansFit) {
  const Plan plan = make_direct_plan(CollectiveKind::kAllReduce, "two_shot", 64, 0).value();
  const auto back = plan_from_json(to_json(plan));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(*back, plan);
}

/// The text of the plan above with one piece replaced.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = to_json(make_direct_plan(CollectiveKind::kReduce, "one_shot", 2, 0).value());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PlanJson, EveryFieldIsChecked) {
  struct Case {
    const char* from;
    const char* to;
    const char* error;
  };
  const std::vector<Case> cases = {
      {"\"topocoll_plan\": 1", "\"topocoll_plan\": 2", "plan: topocoll_plan: expected 1, found 2"},
      {"\"topocoll_plan\": 1, ", "", "plan: topocoll_plan: is missing"},
      {"\"kind\": \"reduce\"", "\"kind\": \"fold\"",
       "kind: expected a collective such as all_reduce, found \"fold\""},
      {"\"kind\": \"reduce\"", "\"kind\": 7", "kind: expected text"},
      {"\"one_shot\"", "null", "algorithm: expected text of at most 256 bytes, found null"},
      {"\"ranks\": 2", "\"ranks\": 0", "ranks: expected an integer from 1 to 65536, found 0"},
      {"\"ranks\": 2", "\"ranks\": 2.0", "ranks: expected an integer from 1 to 65536, found 2.0"},
      {"\"ranks\": 2", "\"ranks\": 99999999999999999999", "ranks: expected an integer"},
      {"\"ranks\": 2", "\"ranks\": 18446744073709551615", "ranks: expected an integer"},
      {"\"ranks\": 2", "\"ranks\": 3", "steps: 2 programs for 3 ranks"},
      {"\"root\": 0", "\"root\": 2", "root: expected an integer from 0 to 1, found 2"},
      {"\"root\": 0", "\"root\": -1", "root: expected an integer from 0 to 1, found -1"},
      {"\"chunks\": 1", "\"chunks\": 0", "chunks: expected an integer from 1"},
      {"\"scratch_chunks\": 2", "\"scratch_chunks\": 9999999",
       "scratch_chunks: expected an integer from 0"},
      {"\"channels\": 1", "\"channels\": 5000", "channels: expected an integer from 1 to 1024"},
      {"\"min_bytes\": 0", "\"min_bytes\": -4", "min_bytes: expected an integer from 0"},
      {"18446744073709551615", "18446744073709551616", "max_bytes: expected an integer from 0"},
      {"\"topology_fingerprint\": \"\"", "\"topology_fingerprint\": []",
       "topology_fingerprint: expected text of at most 256 bytes, found an array"},
      {"\"root\": 0,", "\"root\": 0, \"colour\": 3,", "plan: unknown member \"colour\""},
      {"\"root\": 0,", "\"root\": 0, \"root\": 1,", "plan: member \"root\" is given twice"},
      {"\"steps\": [", "\"steps\": {}, \"channels\": [", "given twice"},
      {"\"do\": \"recv\"", "\"do\": \"get\"",
       "steps[0][0].do: expected send, recv, reduce, copy, signal or wait, found \"get\""},
      {"\"do\": \"recv\", ", "", "steps[0][0].do: is missing"},
      {"\"peer\": 1", "\"peer\": 2", "steps[0][0].peer: expected an integer from 0 to 1, found 2"},
      {", \"peer\": 1", "", "steps[0][0].peer: is missing"},
      {"\"channel\": 0", "\"channel\": 1", "steps[0][0].channel: expected 0, found 1"},
      {"\"channel\": 0", "\"lane\": 0", "steps[0][0]: unknown member \"lane\""},
      {"\"target\": \"scratch:1\"", "\"target\": \"heap:1\"",
       "steps[0][0].target: expected input:N, output:N or scratch:N, found \"heap:1\""},
      {"\"target\": \"scratch:1\"", "\"target\": \"scratch:\"",
       "steps[0][0].target: expected input:N"},
      {"\"target\": \"scratch:1\"", "\"target\": \"scratch:1x\"",
       "steps[0][0].target: expected input:N"},
      {"\"target\": \"scratch:1\"", "\"target\": \"scratch:-1\"",
       "steps[0][0].target: expected input:N"},
      {"\"target\": \"scratch:1\"", "\"target\": \"scratch:99999999999\"",
       "steps[0][0].target: expected input:N"},
      {"\"target\": \"scratch:1\"", "\"target\": \"scratch\"",
       "steps[0][0].target: expected input:N"},
      {"\"target\": \"scratch:1\"", "\"source\": \"scratch:1\"",
       "steps[0][0].source: a recv has none"},
      {"\"target\": \"output:0\"", "\"target\": \"output:0\", \"peer\": 1",
       "steps[0][1].peer: a reduce has none"},
      {"\"target\": \"output:0\"", "\"target\": \"output:0\", \"channel\": 0",
       "steps[0][1].channel: a reduce has none"},
      {"[\"input:0\", \"scratch:1\"]", "\"input:0\"",
       "steps[0][1].source: expected an array, found \"input:0\""},
      {"[\"input:0\", \"scratch:1\"]", "[\"input:0\", 1]",
       "steps[0][1].source[1]: expected text of at most 32 bytes, found 1"},
      {"{\"do\": \"send\"", "7, {\"do\": \"send\"", "steps[1][0]: expected an object, found 7"},
      {"\"source\": \"input:0\"", "\"target\": \"input:0\", \"source\": \"input:0\"",
       "steps[1][0].target: a send has none"},
  };
  for (const Case& c : cases) {
    const auto plan = plan_from_json(edited(c.from, c.to));
    ASSERT_FALSE(plan.ok()) << c.error;
    EXPECT_EQ(plan.status().cause(), Cause::kInvalidArgument);
    EXPECT_THAT(plan.status().text(), HasSubstr(c.error));
  }
}

TEST(PlanJson, ThingsThatAreNoPlan) {
  const auto text = [](const std::string& json) { return plan_from_json(json).status().text(); };
  EXPECT_THAT(text(""), HasSubstr("plan: not JSON at byte"));
  EXPECT_THAT(text("{"), HasSubstr("plan: not JSON at byte"));
  EXPECT_THAT(text("{} {}"), HasSubstr("plan: not JSON at byte"));
  EXPECT_THAT(text("3"), HasSubstr("plan: expected an object, found 3"));
  EXPECT_THAT(text("[]"), HasSubstr("plan: expected an object, found an array"));
  EXPECT_THAT(text("{}"), HasSubstr("plan: topocoll_plan: is missing"));
  EXPECT_THAT(text(std::string(100000, '[')), HasSubstr("nested more than 8 deep"));
  EXPECT_THAT(text(std::string((32U << 20) + 1, ' ')), HasSubstr("33554433 bytes"));
  std::string many = "[1";
  for (int i = 0; i < 3'000'001; ++i) many += ",1";
  EXPECT_THAT(text(many + "]"), HasSubstr("more than 3000000 values"));
  EXPECT_THAT(text(edited("one_shot", std::string(257, 'a'))),
              HasSubstr("algorithm: expected text"));
  EXPECT_THAT(text(edited("one_shot", "\xff\xfe")), HasSubstr("not JSON at byte"));
}

TEST(PlanJson, TruncationsAreErrors) {
  for (const Plan& plan : {some_plans().front(), some_plans().back()}) {
    const std::string text = to_json(plan);
    for (std::size_t n = 0; n + 1 < text.size(); ++n) {  // the last byte is a line end
      if (n > 300 && n % 37 != 0) continue;
      ASSERT_FALSE(plan_from_json(text.substr(0, n)).ok()) << n;
    }
  }
}

TEST(PlanJson, MutationsNeverCrashAndWhatIsReadIsStable) {
  std::mt19937 random(99);
  const std::string alphabet = "0123456789-,:{}[]\"aeinoprstu_. \xc3";
  const std::vector<Plan> plans = some_plans();
  int read = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = to_json(plans[random() % plans.size()]);
    for (std::size_t m = 0; m <= random() % 3; ++m) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.erase(at, 1 + random() % 4);
          break;
        case 1:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
          break;
        default:
          text[at] = alphabet[random() % alphabet.size()];
      }
    }
    const auto plan = plan_from_json(text);
    if (!plan.ok()) {
      ASSERT_EQ(plan.status().text().substr(0, 6), "plan: ");
      continue;
    }
    ++read;
    const Status status = verify(*plan);  // must end, whatever the verdict
    ASSERT_TRUE(status.ok() || status.cause() == Cause::kInvalidArgument);
    const auto again = plan_from_json(to_json(*plan));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    ASSERT_EQ(*again, *plan);
  }
  EXPECT_GT(read, 40);
}

TEST(PlanJson, RoutesAreReadAndChecked) {
  Plan plan = make_direct_plan(CollectiveKind::kBroadcast, "one_shot", 2, 0).value();
  EXPECT_EQ(to_json(plan).find("routes"), std::string::npos);
  plan.routes = {{0, 1, 0, {"g0", "a \"switch\"", "g1"}, 12.5}};
  const std::string text = to_json(plan);
  const Result<Plan> read = plan_from_json(text);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, plan);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string bad = text;
    bad.replace(bad.find(from), from.size(), to);
    return plan_from_json(bad).status().text();
  };
  EXPECT_THAT(changed("\"gbps\": 12.5", "\"gbps\": -1"),
              HasSubstr("routes[0].gbps: expected a number"));
  EXPECT_THAT(changed(", \"gbps\": 12.5", ""), HasSubstr("routes[0].gbps: is missing"));
  EXPECT_THAT(changed("\"from\": 0", "\"from\": 2"),
              HasSubstr("routes[0].from: expected an integer"));
  EXPECT_THAT(changed("\"g0\"", "7"), HasSubstr("routes[0].path[0]: expected text"));
}

TEST(PlanText, ShowsEveryStep) {
  Plan plan = make_direct_plan(CollectiveKind::kReduce, "one_shot", 2, 1).value();
  plan.max_bytes = 4096;
  plan.topology_fingerprint = "00000000deadbeef";
  EXPECT_EQ(render_text(plan),
            "reduce one_shot: 2 ranks, root 1, 1 chunk, 2 scratch chunks, 1 channel\n"
            "for messages of 0 to 4096 bytes\n"
            "for the topology 00000000deadbeef\n"
            "rank 0\n"
            "      0  send    input:0      -> rank 1, channel 0\n"
            "rank 1\n"
            "      0  recv    scratch:0    <- rank 0, channel 0\n"
            "      1  reduce  output:0     = scratch:0 + input:0\n");
  EXPECT_THAT(render_text(dissemination_barrier(2)),
              HasSubstr("      0  signal               -> rank 1, channel 0\n"
                        "      1  wait                 <- rank 1, channel 0\n"));
}

}  // namespace
}  // namespace topocoll::testing
