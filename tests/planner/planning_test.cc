// plan_collective() on machines whose optima are known, and on what makes no sense.
#include "topocoll/planning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "planner/make_topology.h"
#include "support/sanitized.h"
#include "topocoll/topology_formats.h"

namespace topocoll {
namespace {

using Kind = CollectiveKind;
using Json = nlohmann::json;

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Json json_of(const std::string& fixture) {
  return Json::parse(text_of(std::filesystem::path(TOPOCOLL_FIXTURES) / (fixture + ".json")));
}

std::vector<std::string> fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TOPOCOLL_FIXTURES)) {
    if (entry.path().extension() != ".json") continue;
    const std::string fixture = entry.path().stem().string();
    if (testing::kSanitized && json_of(fixture)["expect"]["n"].get<int>() > 8) continue;
    names.push_back(fixture);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Topology topology_of(const std::string& fixture) {
  return import_topology(json_of(fixture).dump(), fixture).value();
}

/// What the trees load on each link must fit: summed here from nothing but the report and the file.
void check_loads(const PlanningReport& report, const Json& file, const std::string& where) {
  std::map<std::pair<std::string, std::string>, double> capacity;
  for (const auto& e : file["edges"]) capacity[{e[0], e[1]}] += e[2].get<double>();
  std::map<std::pair<std::string, std::string>, double> load;
  std::map<std::string, double> by_root;
  for (const PlannedTree& tree : report.trees) {
    by_root[tree.root] += tree.gbps;
    for (const auto& edge : tree.edges) load[edge] += tree.gbps;
  }
  for (const auto& [edge, gbps] : load) {
    ASSERT_TRUE(capacity.contains(edge)) << where << ": " << edge.first << " -> " << edge.second;
    EXPECT_LE(gbps, capacity[edge] * (1 + 1e-9)) << where << ": " << edge.first << " -> " << edge.second;
  }
  if (report.trees.empty()) return;
  double total = 0;
  for (const auto& [root, gbps] : by_root) total += gbps;
  const double each = report.kind == Kind::kAllReduce ? 2 : 1;  // a tree each way
  EXPECT_NEAR(total, report.plan_gbps * each, 1e-6 * total) << where;
}

class Fixture : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Known, Fixture, ::testing::ValuesIn(fixtures()),
                         [](const auto& test) { return test.param; });

TEST_P(Fixture, AllGatherReachesItsExactBound) {
  const Json file = json_of(GetParam());
  const auto report = plan_collective(topology_of(GetParam()), {Kind::kAllGather, 0, 16});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->bound, file["expect"]["allgather_algbw"].get<std::string>());
  EXPECT_GE(report->plan_gbps, 0.99 * report->bound_gbps);
  EXPECT_LE(report->plan_gbps, report->bound_gbps * (1 + 1e-9));
  EXPECT_TRUE(verify(report->plan).ok());
  check_loads(*report, file, GetParam());
}

TEST_P(Fixture, ReduceScatterReachesTheSameWhereLinksGoBothWays) {
  const Json file = json_of(GetParam());
  const auto report = plan_collective(topology_of(GetParam()), {Kind::kReduceScatter, 0, 16});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GE(report->plan_gbps, 0.99 * report->bound_gbps);
  EXPECT_LE(report->plan_gbps, report->bound_gbps * (1 + 1e-9));
  check_loads(*report, file, GetParam());
}

TEST_P(Fixture, AllReduceReachesTheBestTrees) {
  const Json file = json_of(GetParam());
  const auto report = plan_collective(topology_of(GetParam()), {Kind::kAllReduce, 0, 16});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_LE(report->plan_gbps, report->bound_gbps * (1 + 1e-9));
  const Json best = file["expect"].value("allreduce_algbw_lp", Json());
  if (best.is_number()) {
    EXPECT_GE(report->plan_gbps, 0.99 * best.get<double>());
  } else {
    EXPECT_GE(report->plan_gbps, 0.99 * file["expect"]["rs_ag_allreduce_algbw"].get<double>());
  }
  check_loads(*report, file, GetParam());
}

TEST_P(Fixture, BroadcastReachesTheFlowOfItsRoot) {
  const Json file = json_of(GetParam());
  const Topology topology = topology_of(GetParam());
  const auto report = plan_collective(topology, {Kind::kBroadcast, 1, 16});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const Json rates = file["expect"].value("broadcast_rate_by_root", Json::object());
  if (rates.contains(report->ranks[1])) {
    EXPECT_NEAR(report->bound_gbps, rates[report->ranks[1]].get<double>(), 1e-6);
  }
  EXPECT_GE(report->plan_gbps, 0.98 * report->bound_gbps);
  check_loads(*report, file, GetParam());
}

TEST_P(Fixture, TheOrderInWhichDevicesAreFoundDoesNotChangeTheRates) {
  const Topology topology = topology_of(GetParam());
  const bool large = topology.of_kind(NodeKind::kGpu).size() > 16;
  for (const Kind kind : {Kind::kAllGather, Kind::kAllReduce}) {
    if (large && kind == Kind::kAllReduce) continue;  // its linear program takes seconds
    const auto report = plan_collective(topology, {kind, 0, 16});
    const auto other = plan_collective(testing::enumerated_otherwise(topology, 7), {kind, 0, 16});
    ASSERT_TRUE(report.ok() && other.ok());
    EXPECT_NE(other->ranks, report->ranks);
    EXPECT_EQ(other->bound, report->bound);
    EXPECT_EQ(other->fingerprint, report->fingerprint);
    // Weights are rounded to chunks, and plans that are good enough for that may differ.
    EXPECT_NEAR(other->plan_gbps, report->plan_gbps, 0.01 * report->bound_gbps);
  }
}

TEST(Planning, TheSameQuestionGetsTheSameAnswer) {
  const Topology topology = topology_of("mi250_1x16");
  const auto once = plan_collective(topology, {Kind::kAllReduce, 0, 16});
  const auto again = plan_collective(topology, {Kind::kAllReduce, 0, 16});
  ASSERT_TRUE(once.ok() && again.ok());
  EXPECT_EQ(to_json(*once), to_json(*again));
  EXPECT_EQ(to_json(once->plan), to_json(again->plan));
}

TEST(Planning, RingsThatSufficeArePreferredAndShowTheirOrder) {
  const auto report = plan_collective(topology_of("dgx1v_8xV100"), {Kind::kAllGather, 0, 16});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->algorithm, "rings");
  EXPECT_TRUE(report->trees.empty());
  double sum = 0;
  for (const PlannedRing& ring : report->rings) {
    EXPECT_EQ(ring.order.size(), 8u);
    sum += ring.gbps;
  }
  EXPECT_NEAR(sum * 8 / 7, report->plan_gbps, 1e-6);
}

TEST(Planning, WishesNameLinksThatLiftTheBound) {
  const auto report = plan_collective(topology_of("pcie_8gpu_g5_at_x8"), {Kind::kAllGather, 0, 16});
  ASSERT_TRUE(report.ok());
  ASSERT_FALSE(report->wishes.empty());
  for (const PlanningWish& wish : report->wishes) {
    EXPECT_GT(wish.bound_gbps, report->bound_gbps);
    EXPECT_TRUE(wish.from == "g5" || wish.to == "g5") << wish.from << " -> " << wish.to;
  }
  const std::string words = explain(*report);
  for (const char* part : {"bound", "what would help", "g5", "what was weighed"}) {
    EXPECT_NE(words.find(part), std::string::npos) << part << "\n" << words;
  }
}

/// Ids are whoever's wrote the file, and the terminal is the reader's.
TEST(Planning, WordsHaveNoControlCharacters) {
  Topology topology = topology_of("pcie_8gpu_g5_at_x8");
  const std::string evil = "g5\x1b[2J\a";
  for (TopologyNode& node : topology.nodes) node.id = node.id == "g5" ? evil : node.id;
  for (TopologyEdge& edge : topology.edges) {
    for (std::string* end : {&edge.from, &edge.to}) *end = *end == "g5" ? evil : *end;
  }
  const auto report = plan_collective(topology, {Kind::kAllGather, 0, 16});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const auto predicted = simulate_plan(topology, report->plan, {1 << 20});
  ASSERT_TRUE(predicted.ok()) << predicted.status().to_string();
  for (const std::string& words : {explain(*report), predicted->front().bottleneck}) {
    EXPECT_NE(words.find("g5?[2J?"), std::string::npos) << words;
    EXPECT_EQ(words.find_first_of("\x1b\a"), std::string::npos) << words;
  }
}

Topology pair_of_gpus(double gbps) {
  const Json file = {{"unit", "GB/s per direction"},
                     {"nodes", {{{"id", "g0"}, {"kind", "gpu"}}, {{"id", "g1"}, {"kind", "gpu"}}}},
                     {"edges", {{"g0", "g1", gbps}, {"g1", "g0", gbps}}}};
  return import_topology(file.dump(), "pair").value();
}

TEST(Planning, TheUnitIsToldWithWhatALinkCarries) {
  const auto report = plan_collective(pair_of_gpus(364), {Kind::kAllGather});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->plan_gbps, 728);
  EXPECT_EQ(report->link_gbps, 364);
  const std::string words = unit_words(*report);
  EXPECT_EQ(words,
            "GB/s of all_gather: bytes of the whole result (the blocks of all ranks) per second; "
            "the busiest link carries 364 GB/s");
  EXPECT_NE(explain(*report).find(words), std::string::npos);
  EXPECT_EQ(Json::parse(to_json(*report))["link_gbps"], 364);
}

TEST(Planning, TheBusiestLinkOfTreesIsTheSumOfWhatTheyLoadOnIt) {
  const auto report = plan_collective(topology_of("pcie_8gpu_g5_at_x8"), {Kind::kAllReduce});
  ASSERT_TRUE(report.ok());
  ASSERT_FALSE(report->trees.empty());
  std::map<std::pair<std::string, std::string>, double> load;
  double most = 0;
  for (const PlannedTree& tree : report->trees) {
    for (const auto& edge : tree.edges) most = std::max(most, load[edge] += tree.gbps);
  }
  EXPECT_NEAR(report->link_gbps, most, 1e-6 * most);
}

TEST(Planning, WishesThatNobodyAskedForAreNotDenied) {
  Json file = {{"unit", "GB/s per direction"},
               {"nodes", {{{"id", "sw"}, {"kind", "sw"}}}},
               {"edges", Json::array()}};
  for (int g = 0; g < 17; ++g) {
    const std::string id = "g" + std::to_string(g);
    file["nodes"].push_back({{"id", id}, {"kind", "gpu"}});
    file["edges"].push_back({id, "sw", 10});
    file["edges"].push_back({"sw", id, 10});
  }
  const auto report =
      plan_collective(import_topology(file.dump(), "star").value(), {Kind::kAllToAll});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->wishes_asked);
  EXPECT_NE(explain(*report).find("not asked among so many ranks"), std::string::npos);
}

TEST(Planning, WordsOfOneThingAreNoPlurals) {
  std::string words;
  for (const Kind kind : {Kind::kAllReduce, Kind::kAllToAll, Kind::kBroadcast}) {
    const auto report = plan_collective(pair_of_gpus(8), {kind});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    words += explain(*report);
  }
  for (const char* part :
       {"carries 1 block\n", "of at most 1 hop,", "1 tree, weights in 1 chunk;", "1 ring of"}) {
    EXPECT_NE(words.find(part), std::string::npos) << part << "\n" << words;
  }
  for (const char* part :
       {" 1 blocks", " 1 hops", " 1 trees", " 1 pairs", " 1 chunks", " 1 rings"}) {
    EXPECT_EQ(words.find(part), std::string::npos) << part << "\n" << words;
  }
}

TEST(Planning, PredictionsStayBelowTheBoundAndApproachIt) {
  const Topology topology = topology_of("mi300x_8_full_mesh");
  const auto report = plan_collective(topology, {Kind::kAllGather, 0, 16});
  ASSERT_TRUE(report.ok());
  const auto predicted = simulate_plan(topology, report->plan, {1 << 10, 1 << 20, 1 << 30});
  ASSERT_TRUE(predicted.ok()) << predicted.status().to_string();
  double before = 0;
  for (const PlanPrediction& p : *predicted) {
    EXPECT_LE(p.algbw_gbps, report->bound_gbps * (1 + 1e-9));
    EXPECT_GT(p.algbw_gbps, before);
    before = p.algbw_gbps;
  }
  EXPECT_GT(before, 0.9 * report->bound_gbps);
}

TEST(Planning, ChoicesCoverAllSizesWithoutGaps) {
  const auto choices = choose_plans(topology_of("dgx1v_8xV100"), {Kind::kAllReduce, 0, 4});
  ASSERT_TRUE(choices.ok()) << choices.status().to_string();
  ASSERT_FALSE(choices->empty());
  EXPECT_EQ(choices->front().min_bytes, 0u);
  EXPECT_EQ(choices->back().max_bytes, ~std::uint64_t(0));
  for (std::size_t i = 1; i < choices->size(); ++i) {
    EXPECT_EQ((*choices)[i].min_bytes, (*choices)[i - 1].max_bytes + 1);
  }
}

TEST(Planning, ChoicesInForceStayThroughNoise) {
  const PlanningRequest request{Kind::kAllReduce, 0, 4};
  Topology machine = topology_of("dgx1v_8xV100");
  const auto before = choose_plans(machine, request);
  ASSERT_TRUE(before.ok());
  const auto slow_links = [&](double factor) {
    Topology slower = machine;
    for (std::size_t e = 0; e < slower.edges.size(); e += 5) {
      slower.edges[e].bandwidth_gbps.measured = *slower.edges[e].bandwidth_gbps.declared * factor;
    }
    return slower;
  };
  const auto changed = [&](const std::vector<PlanChoice>& now) {
    if (now.size() != before->size()) return true;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i].plan.steps != (*before)[i].plan.steps) return true;
    }
    return false;
  };
  const auto afresh = choose_plans(slow_links(0.93), request);
  const auto kept = choose_plans(slow_links(0.93), request, *before);
  const auto left = choose_plans(slow_links(0.2), request, *before);
  ASSERT_TRUE(afresh.ok() && kept.ok() && left.ok());
  EXPECT_TRUE(changed(*afresh)) << "the noise must be enough to matter";
  EXPECT_FALSE(changed(*kept));
  EXPECT_TRUE(changed(*left));
  const Status other = choose_plans(machine, {Kind::kAllGather, 0, 4}, *before).status();
  EXPECT_NE(other.text().find("a choice in force is for all_reduce"), std::string::npos) << other.text();
}

TEST(Planning, WhatMakesNoSenseIsNamed) {
  const Topology topology = topology_of("dgx1v_8xV100");
  EXPECT_NE(plan_collective(topology, {Kind::kBroadcast, 8, 16}).status().text().find("root 8"), std::string::npos);
  EXPECT_EQ(plan_collective(topology, {Kind::kGather, 0, 16}).status().cause(), Cause::kUnsupported);
  EXPECT_NE(plan_collective(topology, {Kind::kAllReduce, 0, 65}).status().text().find("65 channels"), std::string::npos);
  EXPECT_FALSE(plan_collective(Topology{}, {Kind::kAllReduce, 0, 16}).ok());
}

}  // namespace
}  // namespace topocoll
