// The topocoll command as its users run it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "support/sanitized.h"
#include "tools/command.h"
#include "topocoll/version.h"

namespace topocoll {
namespace {

using namespace topocoll::testing;

TEST(TopocollCommand, Version) {
  const Finished f = topocoll_command({"version"});
  EXPECT_EQ(f.status, 0);
  EXPECT_EQ(f.out.find("topocoll " + std::string(version())), 0U) << f.out;
}

TEST(TopocollCommand, OptionsShowValuesAndTheirOrigin) {
  const Finished text = topocoll_command({"options"}, {{"TOPOCOLL_COMMIT", "chained"}});
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("TOPOCOLL_COMMIT"), std::string::npos);
  const Finished f = topocoll_command(
      {"options", "--json"}, {{"TOPOCOLL_COMMIT", "chained"}, {"TOPOCOLL_JOB_SECRET", "hunter2"}});
  EXPECT_EQ(f.out.find("hunter2"), std::string::npos);
  bool found = false;
  for (const auto& option : nlohmann::json::parse(f.out)) {
    if (option["name"] != "TOPOCOLL_COMMIT") continue;
    found = true;
    EXPECT_EQ(option["value"], "chained");
    EXPECT_EQ(option["origin"], "environment");
    EXPECT_EQ(option["default"], "strict");
  }
  EXPECT_TRUE(found);
}

TEST(TopocollCommand, WrongOptionsAreALineEachBelowTheList) {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"TOPOCOLL_COMIT", "chained"},
                                                                  {"TOPOCOLL_SPIN_US", "often"}};
  const Finished f = topocoll_command({"options"}, wrong);
  EXPECT_EQ(f.status, 1);
  EXPECT_EQ(f.out, topocoll_command({"options"}).out);
  EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 2) << f.err;
  EXPECT_NE(f.err.find("TOPOCOLL_COMIT"), std::string::npos);
  EXPECT_NE(f.err.find("'often'"), std::string::npos);
  const Finished json = topocoll_command({"options", "--json"}, wrong);
  EXPECT_EQ(json.status, 1);
  EXPECT_GT(nlohmann::json::parse(json.out).size(), 10U);
}

TEST(TopocollCommand, TopologiesAreShownSavedAndReadBack) {
  const Finished machine = topocoll_command({"topo", "show"});
  EXPECT_EQ(machine.status, 0) << machine.err;
  EXPECT_FALSE(machine.out.empty());
  const Finished json =
      topocoll_command({"topo", "show", "--synthetic", "pack:2 numa:1 core:4 pu:2", "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  EXPECT_EQ(nlohmann::json::parse(json.out)["topocoll_topology"], 1);
  const TemporaryFile file(json.out);
  const Finished again = topocoll_command({"topo", "show", "--json", file.path()});
  EXPECT_EQ(again.out, json.out);
  const Finished text =
      topocoll_command({"topo", "show", "--synthetic", "pack:2 numa:1 core:4 pu:2"});
  EXPECT_EQ(topocoll_command({"topo", "show", file.path()}).out, text.out);
}

TEST(TopocollCommand, BadTopologies) {
  const TemporaryFile file("{\"topocoll_topology\": 1, ");
  const std::vector<std::vector<std::string>> lines = {
      {"topo", "show", "/no/such/file"},
      {"topo", "show", file.path()},
      {"topo", "show", "--synthetic", "nonsense:::"},
  };
  for (const auto& line : lines) {
    const Finished f = topocoll_command(line);
    EXPECT_EQ(f.status, 1) << line.back();
    EXPECT_EQ(f.out, "");
    EXPECT_TRUE(is_one_line(f.err)) << f.err;
  }
}

TEST(TopocollCommand, PlansAreShownSavedAndChecked) {
  const std::vector<std::string> show = {"plan",        "show",     "--collective", "all_reduce",
                                         "--algorithm", "two_shot", "--ranks",      "3"};
  const Finished text = topocoll_command(show);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("((0+1)+2)"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("verified"), std::string::npos);
  std::vector<std::string> as_json = show;
  as_json.push_back("--json");
  const Finished json = topocoll_command(as_json);
  const TemporaryFile file(json.out);
  const Finished check = topocoll_command({"plan", "check", file.path()});
  EXPECT_EQ(check.status, 0) << check.err;
  EXPECT_NE(check.out.find(": OK, all_reduce two_shot on 3 ranks"), std::string::npos) << check.out;
  EXPECT_EQ(topocoll_command({"plan", "show", file.path()}).out, text.out);
}

TEST(TopocollCommand, OffersOnlyCollectivesThatItServes) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  EXPECT_EQ(topocoll_command({"plan", "make", machine, "--collective", "allreduce"}).err,
            "topocoll: unknown collective 'allreduce': all_reduce, all_gather, reduce_scatter, "
            "all_to_all, broadcast, reduce; see topocoll plan make --help\n");
  EXPECT_EQ(topocoll_command({"plan", "show", "--collective", "allreduce"}).err,
            "topocoll: unknown collective 'allreduce': all_reduce, all_gather, reduce_scatter, "
            "all_to_all, broadcast, reduce, gather, scatter, barrier; see topocoll plan show "
            "--help\n");
}

TEST(TopocollCommand, PlansWithoutAGpu) {
  const std::string v100 = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  const auto ranks = [](const Finished& f) {
    EXPECT_EQ(f.status, 0) << f.err;
    return f.status == 0 ? nlohmann::json::parse(f.out)["ranks"] : nlohmann::json();
  };
  const auto all = ranks(topocoll_command({"plan", "make", v100, "--json"}));
  ASSERT_EQ(all.size(), 8u);
  const std::string gone = all[3];
  const auto rest = ranks(topocoll_command({"plan", "make", v100, "--json", "--without", gone}));
  EXPECT_EQ(rest.size(), 7u);
  EXPECT_EQ(std::count(rest.begin(), rest.end(), gone), 0);
  const Finished unknown = topocoll_command({"plan", "make", v100, "--without", "gpu:none"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_NE(unknown.err.find("--without gpu:none: the topology has no such node"),
            std::string::npos)
      << unknown.err;
}

TEST(TopocollCommand, TakesSizesAsItPrintsThem) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  const auto simulated = [&](const std::string& sizes) {
    return topocoll_command({"plan", "simulate", machine, "--sizes", sizes});
  };
  const Finished letters = simulated("1000,64k,1M");
  ASSERT_EQ(letters.status, 0) << letters.err;
  EXPECT_EQ(simulated("1000 B,64KiB,1 MiB").out, letters.out);
  for (const std::string bad : {"1MB", "1MiBs", "MiB", "1  MiB", "1iB", "1 ", "0B"}) {
    const Finished f = simulated(bad);
    EXPECT_EQ(f.status, 2) << bad;
    EXPECT_NE(f.err.find("'" + bad + "' is no size"), std::string::npos) << f.err;
  }
}

TEST(TopocollCommand, AGroupSaysOnceWhichPlansAreNotForItsSize) {
  const Finished json = topocoll_command({"plan", "show", "--ranks", "8", "--json"});
  const TemporaryFile file(json.out);
  const Finished f = run({COLL_PERF, "all_reduce", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1"},
                         {{"TOPOCOLL_PLAN", file.path()}, {"TOPOCOLL_LOG_LEVEL", "info"}});
  ASSERT_EQ(f.status, 0) << f.err;
  const std::string said =
      "uses no plan for another number of ranks: " + file.path() + " (8 ranks)";
  const std::size_t first = f.err.find(said);
  ASSERT_NE(first, std::string::npos) << f.err;
  EXPECT_EQ(f.err.find(said, first + 1), std::string::npos) << f.err;
}

TEST(TopocollCommand, AMachineWithoutGpusIsNotToldToMakeAPlan) {
  const TemporaryFile plan("");
  const std::string made_for = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  ASSERT_EQ(topocoll_command({"plan", "make", made_for, "--output", plan.path()}).status, 0);
  const Finished cpus = topocoll_command({"topo", "show", "--synthetic", "core:4 pu:1", "--json"});
  const TemporaryFile machine(cpus.out, ".machine");
  const Finished f = topocoll_command({"plan", "check", plan.path(), "--topology", machine.path()});
  EXPECT_EQ(f.status, 1);
  EXPECT_NE(f.err.find("--any-machine"), std::string::npos) << f.err;
  EXPECT_EQ(f.err.find("make one for it"), std::string::npos) << f.err;
}

TEST(TopocollCommand, AWrongPlanIsRefusedWithRankAndStep) {
  const Finished json = topocoll_command({"plan", "show", "--ranks", "2", "--json"});
  auto plan = nlohmann::json::parse(json.out);
  plan["steps"][1].erase(plan["steps"][1].size() - 1);
  const TemporaryFile file(plan.dump());
  const Finished f = topocoll_command({"plan", "check", file.path()});
  EXPECT_EQ(f.status, 1);
  EXPECT_TRUE(is_one_line(f.err)) << f.err;
  EXPECT_NE(f.err.find("rank"), std::string::npos) << f.err;
}

TEST(TopocollCommand, APlanForAnotherMachineIsRefusedWithAWayOut) {
  const std::string fixtures = TOPOCOLL_FIXTURES;
  const std::string v100 = fixtures + "/dgx1v_8xV100.json";
  const std::string p100 = fixtures + "/dgx1p_8xP100.json";  // the same links, but slower
  const std::string other = fixtures + "/mi300x_8_full_mesh.json";
  const TemporaryFile plan("");
  ASSERT_EQ(topocoll_command({"plan", "make", v100, "--output", plan.path()}).status, 0);
  EXPECT_EQ(topocoll_command({"plan", "check", plan.path(), "--topology", v100}).status, 0);
  EXPECT_EQ(
      topocoll_command({"plan", "simulate", v100, "--plan", plan.path(), "--sizes", "1M"}).status,
      0);
  const std::vector<std::vector<std::string>> lines = {
      {"plan", "check", plan.path(), "--topology", other},
      {"plan", "simulate", other, "--plan", plan.path(), "--sizes", "1M"}};
  for (const auto& line : lines) {
    const Finished f = topocoll_command(line);
    EXPECT_EQ(f.status, 1);
    EXPECT_TRUE(is_one_line(f.err)) << f.err;
    EXPECT_NE(f.err.find("made for the machine"), std::string::npos) << f.err;
    EXPECT_NE(f.err.find("--any-machine"), std::string::npos) << f.err;
  }
  ASSERT_EQ(
      topocoll_command({"plan", "make", v100, "--any-machine", "--output", plan.path()}).status, 0);
  const Finished f = topocoll_command({"plan", "check", plan.path(), "--topology", p100});
  EXPECT_NE(f.err.find("GB/s and is to carry"), std::string::npos) << f.err;
}

TEST(TopocollCommand, AMachineThatCannotBePlannedForIsBlamedByItsFile) {
  const auto graph = [](const char* gbps) {
    return std::string(R"({"unit": "GB/s per direction", "nodes": [{"id": "a", "kind": "gpu"}, )"
                       R"({"id": "b", "kind": "gpu"}], "edges": [["a", "b", )") +
           gbps + R"(], ["b", "a", 100]]})";
  };
  const TemporaryFile good(graph("100"), "_good");
  const TemporaryFile bad(graph("1e-300"), "_bad");
  const TemporaryFile plan("", "_plan");
  ASSERT_EQ(
      topocoll_command({"plan", "make", good.path(), "--any-machine", "--output", plan.path()})
          .status,
      0);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"check", plan.path(), "--topology", bad.path()},
        {"explain", bad.path()},
        {"make", bad.path()},
        {"simulate", bad.path()},
        {"simulate", bad.path(), "--plan", plan.path()},
        {"compare", bad.path()}}) {
    std::vector<std::string> command = {"plan"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Finished f = topocoll_command(command);
    EXPECT_EQ(f.status, 1) << arguments[0];
    EXPECT_EQ(f.err.find("topocoll: " + bad.path() + ": topology: edge a -> b"), 0u) << f.err;
  }
  const Finished other =
      topocoll_command({"plan", "make", good.path(), "--collective", "broadcast", "--root", "7"});
  EXPECT_EQ(other.status, 1);
  EXPECT_EQ(other.err.find(good.path()), std::string::npos) << "the root is wrong, not the machine";
}

TEST(TopocollCommand, PlansAreDrawn) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  for (const auto& [option, begins] :
       {std::pair("--svg", "<svg "), {"--html", "<!DOCTYPE html>"}, {"--dot", "graph "}}) {
    const TemporaryFile file("");
    const Finished f = topocoll_command({"plan", "explain", machine, option, file.path()});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_NE(f.out.find("what would help"), std::string::npos);
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    EXPECT_EQ(text.str().rfind(begins, 0), 0U) << option;
    EXPECT_EQ(topocoll_command({"plan", "explain", machine, option, "/no/such/folder/file"}).status,
              1);
  }
}

TEST(TopocollCommand, NoLineLeavesThePictureOrCrossesItsTitle) {
  const TemporaryFile file("");
  const std::string machine =
      std::string(TOPOCOLL_TEST_DATA) + "/topologies/synthetic_gb200_tray.xml";
  ASSERT_EQ(topocoll_command({"plan", "explain", machine, "--svg", file.path()}).status, 0);
  std::stringstream text;
  text << std::ifstream(file.path()).rdbuf();
  const std::string svg = text.str();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(svg, found, std::regex("viewBox=\"0 (-?[0-9]+) ")));
  const double top = std::stod(found[1]);
  ASSERT_TRUE(std::regex_search(
      svg, found, std::regex("<text x=\"[0-9.]+\" y=\"(-?[0-9]+)\" font-size=\"14\"")));
  const double title = std::stod(found[1]);
  EXPECT_GE(title, top);
  const std::regex curve("M([-0-9.]+) ([-0-9.]+)Q([-0-9.]+) ([-0-9.]+) ([-0-9.]+) ([-0-9.]+)");
  int curves = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), curve), end; it != end; ++it, ++curves) {
    const double a = std::stod((*it)[2]);
    const double control = std::stod((*it)[4]);
    const double b = std::stod((*it)[6]);
    for (double t = 0; t <= 1; t += 1.0 / 64) {
      const double y = (1 - t) * (1 - t) * a + 2 * t * (1 - t) * control + t * t * b;
      ASSERT_GT(y, title) << it->str();
    }
  }
  EXPECT_GT(curves, 4);
}

TEST(TopocollCommand, PlansForTheGraphThatTheDocumentationShows) {
  const std::string nodes =
      R"("nodes": [{"id": "g0", "kind": "gpu"}, {"id": "g1", "kind": "gpu"}, {"id": "sw", "kind": "sw"}],
         "edges": [["g0", "sw", 25], ["sw", "g0", 25], ["g1", "sw", 25], ["sw", "g1", 25]])";
  const std::string shared =
      R"("latency_ns": [700, null, null, null], "shared": [{"name": "port of g0", "edges": [0, 1], "gbps": 40}])";
  const auto with = [](const std::string& members) {
    const TemporaryFile file("{" + members + "}");
    return topocoll_command({"plan", "make", file.path(), "--collective", "all_gather"});
  };
  const std::string unit = R"("unit": "GB/s per direction", )";
  const Finished alone = with(unit + nodes);
  EXPECT_NE(alone.out.find("bound 50,"), std::string::npos) << alone.out << alone.err;
  const Finished shares = with(unit + nodes + ", " + shared);
  EXPECT_EQ(shares.status, 0) << shares.err;
  EXPECT_NE(shares.out.find("bound 40,"), std::string::npos) << shares.out;
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {nodes, R"(unit is missing: write "unit": "GB/s per direction")"},
      {unit + nodes + R"(, "latency_ns": [1])", "latency_ns: 1 latencies for 4 edges"},
      {unit + nodes + R"(, "shared": [{"name": "p", "edges": [0, 4], "gbps": 1}])",
       "shared[0].edges[1]"},
      {unit + nodes + R"(, "shared": [{"name": "p", "edges": [0, 0], "gbps": 1}])",
       "is given twice"},
      {unit + nodes + R"(, "shared": [{"name": "p", "edges": [0], "gbps": 1}])", "2 edges or more"},
      {unit + nodes + R"(, "shared": [{"name": "p", "edges": [0, 1], "gbps": 0}])",
       "without bandwidth"}};
  for (const auto& [members, word] : wrong) {
    const Finished f = with(members);
    EXPECT_EQ(f.status, 1);
    EXPECT_NE(f.err.find(word), std::string::npos) << f.err;
  }
}

TEST(TopocollCommand, TheChoiceBySizeIsWrittenForTopocollPlan) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/rccl_rome_model_80.json";
  const std::string folder =
      ::testing::TempDir() + "/topocoll_choice_" + std::to_string(::getpid());
  const Finished f = topocoll_command({"plan", "compare", machine, "--output", folder});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("--any-machine"), std::string::npos) << f.err;
  const std::size_t at = f.out.find("TOPOCOLL_PLAN=");
  ASSERT_NE(at, std::string::npos) << f.out;
  std::stringstream files(f.out.substr(at + 14, f.out.size() - at - 15));
  std::uint64_t next = 0;
  for (std::string file; std::getline(files, file, ',');) {
    std::ifstream in(file);
    const auto plan = nlohmann::json::parse(in);
    EXPECT_EQ(plan["min_bytes"], next) << file;
    next = plan["max_bytes"].get<std::uint64_t>() + 1;
    EXPECT_EQ(topocoll_command({"plan", "check", file}).status, 0);
    ::unlink(file.c_str());
  }
  EXPECT_EQ(next, 0u) << "all sizes are served";
  EXPECT_EQ(::rmdir(folder.c_str()), 0) << "it was made, and holds nothing else";
}

TEST(TopocollCommand, FoldersThatCannotServeTopocollPlanAreRefused) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/rccl_rome_model_80.json";
  const TemporaryFile file("");
  const std::string comma = ::testing::TempDir() + "/topocoll_a,b_" + std::to_string(::getpid());
  for (const auto& [folder, word] :
       {std::pair(file.path() + "/x", "--output"), {comma, "a comma separates"}}) {
    const Finished f = topocoll_command({"plan", "compare", machine, "--output", folder});
    EXPECT_EQ(f.status, 1);
    EXPECT_TRUE(is_one_line(f.err)) << f.err;
    EXPECT_NE(f.err.find(word), std::string::npos) << f.err;
  }
  EXPECT_NE(::access(comma.c_str(), F_OK), 0) << "nothing was made";
}

TEST(TopocollCommand, AnEmptyNameOfAFileIsRefused) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  for (const auto& [command, option] :
       {std::pair("compare", "--output"), {"make", "--output"}, {"explain", "--svg"}}) {
    for (const bool joined : {false, true}) {
      std::vector<std::string> arguments = {"plan", command, machine};
      if (joined) {
        arguments.push_back(std::string(option) + "=");
      } else {
        arguments.insert(arguments.end(), {option, ""});
      }
      const Finished f = topocoll_command(arguments);
      EXPECT_EQ(f.status, 2) << command << f.out;
      EXPECT_NE(f.err.find(option), std::string::npos) << f.err;
    }
  }
}

TEST(TopocollCommand, SimulatesNoPlanOfAnotherCollectiveThanAskedFor) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  const TemporaryFile plan("");
  ASSERT_EQ(topocoll_command(
                {"plan", "make", machine, "--collective", "all_gather", "--output", plan.path()})
                .status,
            0);
  const std::vector<std::string> line{"plan",      "simulate", machine, "--plan",
                                      plan.path(), "--sizes",  "1M"};
  EXPECT_NE(topocoll_command(line).out.find("all_gather by"), std::string::npos);
  auto asks = line;
  asks.insert(asks.end(), {"--collective", "all_reduce"});
  const Finished f = topocoll_command(asks);
  EXPECT_EQ(f.status, 1);
  EXPECT_TRUE(is_one_line(f.err)) << f.err;
  EXPECT_NE(f.err.find("is for all_gather, and --collective asks for all_reduce"),
            std::string::npos)
      << f.err;
  asks.back() = "all_gather";
  EXPECT_EQ(topocoll_command(asks).status, 0);
}

TEST(TopocollCommand, WhereAWrittenPlanRunsIsSaid) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  const TemporaryFile plan("");
  std::vector<std::string> line{"plan", "make", machine, "--output", plan.path()};
  const Finished bound = topocoll_command(line);
  EXPECT_EQ(bound.status, 0);
  EXPECT_TRUE(is_one_line(bound.err)) << bound.err;
  EXPECT_NE(bound.err.find("only groups of CPU ranks run plans so far"), std::string::npos);
  EXPECT_NE(bound.err.find("--any-machine"), std::string::npos);
  line.emplace_back("--any-machine");
  EXPECT_EQ(topocoll_command(line).err, "");
}

TEST(TopocollCommand, TheChoiceNamesItsSizesAndTheNextBest) {
  const std::string machine = std::string(TOPOCOLL_TEST_DATA) + "/topologies/h200_vm_2gpu.json";
  const Finished table = topocoll_command({"plan", "compare", machine});
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("\n                 sizes  plan "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("  0 B to "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find(" or more  "), std::string::npos) << table.out;
  const Finished json = topocoll_command({"plan", "compare", machine, "--json"});
  const auto choices = nlohmann::json::parse(json.out);
  for (const auto& choice : choices) {
    EXPECT_NE(choice["runner_up"]["algorithm"], choice["algorithm"]);
    EXPECT_GE(choice["runner_up"]["time_us"],
              choice["predicted"]["time_us"].get<double>() * (1 - 1e-6));
  }
  // Between two GPUs a ring and two_shot do the same at any size that matters.
  EXPECT_EQ(choices.back()["predicted"]["bytes"], 1 << 30);
  EXPECT_NEAR(choices.back()["runner_up"]["time_us"], choices.back()["predicted"]["time_us"], 1e-3);
}

TEST(TopocollCommand, AMachineInPlaceOfAPlanIsNamed) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  for (const auto& [line, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"plan", "check", machine}, "this is a topology, and no plan"},
           {{"plan", "show", machine}, "this is a topology, and no plan"},
           {{"plan", "make", machine, "--nodes", "2", "--fabric", machine},
            "this is a topology, and no fabric"}}) {
    const Finished f = topocoll_command(line);
    EXPECT_EQ(f.status, 1);
    EXPECT_TRUE(is_one_line(f.err)) << f.err;
    EXPECT_NE(f.err.find(words), std::string::npos) << f.err;
  }
}

TEST(TopocollCommand, BadCommandLinesAreStatusTwo) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  const std::vector<std::pair<std::vector<std::string>, std::string>> lines = {
      {{}, "see topocoll --help"},
      {{"frobnicate"}, "see topocoll --help"},
      {{"topo"}, "see topocoll topo --help"},
      {{"plan"}, "see topocoll plan --help"},
      {{"plan", "mak"}, "see topocoll plan --help"},
      {{"plan", "check"}, "see topocoll plan check --help"},
      {{"plan", "check", "-", "--topology", "-"}, "- is standard input"},
      {{"plan", "show", "--ranks", "0"}, "see topocoll plan show --help"},
      {{"plan", "show", "--collective", "all_redcue"}, "all_reduce"},
      {{"plan", "make", machine, "--collective", "all_redcue"}, "all_reduce"},
      {{"plan", "make", machine, "--nodes", "4"}, "--fabric"},
      {{"plan", "make", machine, "--topology-output", "x"}, "--nodes and --fabric"},
      {{"plan", "make", machine, "-o", "-", "--json"}, "- is standard output"},
      {{"plan", "explain", machine, "--svg", "-", "--dot", "-"}, "- is standard output"},
      {{"plan", "simulate", machine, "--sizes", "5x"}, "'5x' is no size"},
      {{"plan", "simulate", "-", "--plan", "-"}, "- is standard input"},
      {{"plan", "compare", machine, "-o", "-"}, "--output names a folder"},
      {{"topo", "show", "--synthetic", "core:2", machine}, "give one of"},
      {{"topo", "show", "--from", "-"}, "a recording is a directory or an archive"},
      {{"topo", "record", "-"}, "a recording is a directory or an archive"},
      {{"topo", "diff", "-", "-"}, "- is standard input"},
      {{"topo", "export", "--format", "foo"}, "unknown format 'foo': native"},
      {{"topo", "export", "-o", "x.xml"}, "the ending .xml names no format"},
      {{"options", "p.json", "-o"}, "not expected: p.json -o;"},
      {{"options", "--xml"}, "not expected: --xml; see topocoll options --help"}};
  for (const auto& [line, words] : lines) {
    const Finished f = topocoll_command(line);
    EXPECT_EQ(f.status, 2) << words;
    EXPECT_EQ(f.out, "");
    EXPECT_TRUE(is_one_line(f.err)) << f.err;
    EXPECT_NE(f.err.find(words), std::string::npos) << f.err;
  }
}

TEST(TopocollCommand, MinusIsStandardOutput) {
  const std::string machine = std::string(TOPOCOLL_FIXTURES) + "/dgx1v_8xV100.json";
  const auto json = [](const std::string& text) { return nlohmann::json::parse(text); };
  for (const char* command : {"export", "import", "dump"}) {
    const Finished f = topocoll_command({"topo", command, machine, "-o", "-"});
    EXPECT_EQ(json(f.out)["topocoll_topology"], 1) << f.err;
  }
  const Finished probe =
      topocoll_command({"topo", "probe", "--no-cache", "--budget-ms", "1", "--json", "-o", "-"});
  EXPECT_EQ(json(probe.out)["topocoll_topology"], 1) << probe.err;
  const Finished plan = topocoll_command({"plan", "make", machine, "-o", "-"});
  EXPECT_EQ(json(plan.out)["topocoll_plan"], 1) << plan.err;
  const Finished svg = topocoll_command({"plan", "explain", machine, "--svg", "-"});
  EXPECT_EQ(svg.out.rfind("<svg ", 0), 0U) << svg.err;
  EXPECT_EQ(svg.out.find("what would help"), std::string::npos);
  EXPECT_NE(::access("-", F_OK), 0);
}

TEST(TopocollCommand, HelpHasExamples) {
  const Finished f = topocoll_command({"--help"});
  EXPECT_EQ(f.status, 0);
  EXPECT_NE(f.out.find("Examples:"), std::string::npos);
  const Finished sub = topocoll_command({"plan", "show", "--help"});
  EXPECT_EQ(sub.status, 0);
  EXPECT_NE(sub.out.find("--algorithm"), std::string::npos) << sub.out;
}

TEST(TopocollCommand, ErrorsThatCannotBeWrittenKillNobody) {
  for (const char* where : {"2>/dev/full", "2>&-"}) {
    const std::string command = std::string(TOPOCOLL_COMMAND) + " nonsense " + where;
    EXPECT_EQ(run({"/bin/sh", "-c", command}).status, 2) << where;
  }
}

TEST(TopocollCommand, ABrokenPipeIsQuietAndAFullDiskIsNot) {
  Child child({TOPOCOLL_COMMAND, "options"});
  child.close_output();
  const Finished f = child.finish();
  EXPECT_EQ(f.status, 0);
  EXPECT_EQ(f.err, "");
  const Finished full =
      run({"/bin/sh", "-c", std::string(TOPOCOLL_COMMAND) + " options > /dev/full"});
  EXPECT_EQ(full.status, 1);
  EXPECT_TRUE(is_one_line(full.err)) << full.err;
}

TEST(TopocollCommand, TooLittleMemoryIsAnErrorAndNoSignal) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers reserve terabytes of addresses";
  bool told = false;
  for (int kib = 14'000; kib <= 50'000; kib += 3'000) {
    for (const char* command : {"topo probe --no-cache", "doctor --no-cache"}) {
      const auto done =
          run({"/bin/sh", "-c",
               "ulimit -v " + std::to_string(kib) + "; exec " + TOPOCOLL_COMMAND + " " + command});
      EXPECT_LT(done.status, 128) << kib << " " << command << ": " << done.err;
      told |= done.status == 1 && done.err.find("out of memory") != std::string::npos;
    }
  }
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace topocoll
