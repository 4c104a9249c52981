#include "topology/file_kind.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace topocoll {
namespace {

std::string refusal(const std::string& text, FileKind wanted) {
  const nlohmann::json json = nlohmann::json::parse(text);
  JsonErrors errors("file");
  refuse_other_files(JsonView(json, errors), wanted);
  return errors.status().text();
}

TEST(FileKind, AFileOfAnotherKindIsNamedWithWhereItGoes) {
  const std::vector<std::tuple<std::string, FileKind, std::string>> cases = {
      {R"({"nodes": [], "edges": []})", FileKind::kPlan,
       "this is a topology, and no plan: topocoll plan make"},
      {R"({"topocoll_topology": 1})", FileKind::kFabric, "this is a topology, and no fabric: "},
      {R"({"topocoll_fabric": 1})", FileKind::kPlan, "this is a fabric, and no plan: "},
      {R"({"topocoll_plan": 1})", FileKind::kMachine,
       "this is a plan, and no machine: topocoll plan show"},
      {R"({"topocoll_planning": 1})", FileKind::kPlan,
       "this is a report of plan make, and no plan: topocoll plan make --output"},
      {R"({"topocoll_cluster_plan": 1})", FileKind::kPlan,
       "this is a report of plan make, and no plan: "},
      {R"({"topocoll_doctor": 1})", FileKind::kMachine,
       "this is a doctor's report, and no machine: topocoll topo dump"}};
  for (const auto& [text, wanted, words] : cases) {
    EXPECT_EQ(refusal(text, wanted).rfind("file: " + words, 0), 0U) << refusal(text, wanted);
  }
}

TEST(FileKind, WhatIsWantedOrUnknownPasses) {
  EXPECT_EQ(refusal(R"({"topocoll_plan": 1})", FileKind::kPlan), "");
  EXPECT_EQ(refusal(R"({"nodes": [], "edges": []})", FileKind::kMachine), "");
  for (const char* text : {"{}", "[1]", R"({"nodes": []})"}) {
    EXPECT_EQ(refusal(text, FileKind::kPlan), "") << text;
  }
}

}  // namespace
}  // namespace topocoll
