// "topocoll plan" on clusters, as its users run it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/command.h"

namespace topocoll {
namespace {

using namespace topocoll::testing;

constexpr const char* kRails =
    R"({"topocoll_fabric": 1, "rails": 8, "gbps_per_gpu": 50, "nodes_per_leaf": 32})";
const std::string kNode = std::string(TOPOCOLL_TEST_DATA) + "/fixtures/hgxh100_x1.json";

Finished plan(const std::string& what, const std::string& nodes, const std::string& fabric,
              std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"plan", what, kNode, "--nodes", nodes, "--fabric", fabric};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return topocoll_command(arguments);
}

TEST(PlanCluster, MakesExplainsAndSimulates) {
  const TemporaryFile fabric(kRails);
  const Finished made = plan("make", "64", fabric.path(), {"--collective", "all_gather"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(std::count(made.out.begin(), made.out.end(), '\n'), 2) << made.out;
  EXPECT_NE(made.out.find("\nGB/s of all_gather: bytes of the whole result"), std::string::npos)
      << made.out;
  EXPECT_NE(made.out.find("(25600/63)"), std::string::npos) << made.out;
  const Finished explained = plan("explain", "64", fabric.path());
  EXPECT_NE(explained.out.find("lanes between nodes"), std::string::npos) << explained.out;
  const Finished simulated =
      plan("simulate", "2048", fabric.path(), {"--sizes", "64k,1G", "--json"});
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  const auto json = nlohmann::json::parse(simulated.out);
  EXPECT_EQ(json["ranks"], 16384);
  ASSERT_EQ(json["predictions"].size(), 2U);
  EXPECT_GT(json["predictions"][1]["time_us"], json["predictions"][0]["time_us"]);
  const Finished table = plan("simulate", "2048", fabric.path(), {"--sizes", "64k"});
  EXPECT_NE(table.out.find("hierarchical_double_tree"), std::string::npos) << table.out;
  // All rows are of this plan: the heading promises no other.
  EXPECT_EQ(table.out.find("hierarchical_ring"), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find("all_reduce on 2048 nodes, 16384 ranks, the fastest plan"), 0U)
      << table.out;
}

TEST(PlanCluster, TakesPortsAtNicsOfRecordedMachines) {
  const std::vector<std::pair<std::string, std::string>> machines = {
      {"synthetic_v100_cube_mesh.xml", "nic:0000:05:00.0"},
      {"synthetic_h100_rails.xml", "nic:0000:18:00.0"},
      {"synthetic_h100_rails.xml", "port:net0/1"}};
  for (const auto& [machine, at] : machines) {
    const TemporaryFile fabric(R"({"topocoll_fabric": 1, "ports": [{"at": ")" + at +
                               R"(", "gbps": 12.5}]})");
    const Finished made = topocoll_command(
        {"plan", "make", std::string(TOPOCOLL_TEST_DATA) + "/topologies/" + machine, "--collective",
         "all_gather", "--nodes", "4", "--fabric", fabric.path()});
    EXPECT_EQ(made.status, 0) << at << ": " << made.err;
    EXPECT_NE(made.out.find("hierarchical_ring"), std::string::npos) << made.out;
  }
}

TEST(PlanCluster, WritesPlansThatVerify) {
  const TemporaryFile fabric(kRails);
  const std::string file = fabric.path() + ".plan";
  const std::string machine = fabric.path() + ".machine";
  const Finished made =
      plan("make", "3", fabric.path(), {"--output", file, "--topology-output", machine});
  ASSERT_EQ(made.status, 0) << made.err;
  const Finished checked = topocoll_command({"plan", "check", file, "--topology", machine});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_NE(checked.out.find("24 ranks"), std::string::npos) << checked.out;
  const std::vector<std::string> sizes{"--plan", file, "--sizes", "1M"};
  std::vector<std::string> there{"plan", "simulate", machine};
  std::vector<std::string> elsewhere{"plan", "simulate", kNode};
  for (auto* line : {&there, &elsewhere}) line->insert(line->end(), sizes.begin(), sizes.end());
  const Finished simulated = topocoll_command(there);
  EXPECT_NE(simulated.out.find("hierarchical_ring, 24 ranks"), std::string::npos) << simulated.err;
  EXPECT_NE(topocoll_command(elsewhere).err.find("made for the machine"), std::string::npos);
  ASSERT_EQ(plan("make", "3", fabric.path(), {"--output", file, "--any-machine"}).status, 0);
  std::ifstream any(file);
  EXPECT_EQ(nlohmann::json::parse(any)["topology_fingerprint"], "");
  ::unlink(file.c_str());
  ::unlink(machine.c_str());
}

TEST(PlanCluster, ErrorsAreOneLine) {
  const TemporaryFile fabric(R"({"topocoll_fabric": 1, "rails": 8, "gbps_per_gpu": -50})");
  const std::vector<std::pair<Finished, std::string>> failures = {
      {plan("make", "2", fabric.path()), "gbps_per_gpu"},
      {plan("make", "2", "/no/such/file"), "/no/such/file"},
  };
  for (const auto& [finished, word] : failures) {
    EXPECT_EQ(finished.status, 1) << finished.err;
    EXPECT_EQ(finished.out, "");
    EXPECT_TRUE(is_one_line(finished.err)) << finished.err;
    EXPECT_NE(finished.err.find(word), std::string::npos) << finished.err;
  }
  const std::vector<std::pair<Finished, std::string>> bad_lines = {
      {plan("make", "0", fabric.path()), "--nodes 0"},
      {plan("simulate", "1000000000", fabric.path()), "--nodes 1000000000"},
      {topocoll_command({"plan", "make", kNode, "--nodes", "2"}), "--fabric"},
      {topocoll_command({"plan", "make", kNode, "--fabric", fabric.path()}), "--nodes"},
      {plan("simulate", "2", fabric.path(), {"--plan", "x.json"}), "--plan"},
      {plan("compare", "64", fabric.path()), "plan make, explain and simulate take --nodes"},
  };
  for (const auto& [finished, word] : bad_lines) {
    EXPECT_EQ(finished.status, 2) << finished.err;
    EXPECT_EQ(finished.out, "");
    EXPECT_TRUE(is_one_line(finished.err)) << finished.err;
    EXPECT_NE(finished.err.find(word), std::string::npos) << finished.err;
  }
}

}  // namespace
}  // namespace topocoll
