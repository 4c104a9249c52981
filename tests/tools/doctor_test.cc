// "topocoll doctor": what it judges, and as its users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "doctor_limits.h"
#include "doctor_report.h"
#include "perf/child.h"
#include "support/eventually.h"
#include "topocoll/planning.h"
#include "topocoll/probe.h"

namespace topocoll::tools {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<std::string> codes(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const Finding& f : findings) all.push_back(f.code);
  return all;
}

TEST(DoctorLimits, OnlyWhatBitesIsAFinding) {
  ProcessLimits plenty{.open_files = 1024,
                       .file_bytes = {},
                       .cpu_quota = {},
                       .governor = "performance",
                       .usable_cpus = 4};
  EXPECT_TRUE(judge_limits(plenty, 4).empty());
  EXPECT_TRUE(judge_limits({.usable_cpus = 4}, 4).empty()) << "unknown is no finding";
  const ProcessLimits tight{.open_files = 70,
                            .file_bytes = 1 << 20,
                            .cpu_quota = 1.5,
                            .governor = "powersave",
                            .usable_cpus = 2};
  const auto found = judge_limits(tight, 4);
  EXPECT_THAT(codes(found), ElementsAre("nofile-low", "fsize-low", "cpu-quota", "oversubscribed",
                                        "cpu-governor"));
  for (const Finding& f : found) {
    EXPECT_FALSE(f.text.empty() || f.evidence.empty() || f.fix.empty()) << f.code;
  }
  EXPECT_EQ(found.back().severity, Severity::kInfo);
  EXPECT_TRUE(judge_limits({.cpu_quota = 2, .usable_cpus = 2}, 2).empty());
}

TEST(DoctorLimits, QuotasOfBothVersionsAreRead) {
  const std::string root = ::testing::TempDir() + "/topocoll_doctor_" + std::to_string(::getpid());
  const auto quota = [&](const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(root + name).parent_path());
    std::ofstream(root + name) << text;
    return read_limits(3, root).cpu_quota;
  };
  EXPECT_FALSE(read_limits(3, root).cpu_quota.has_value());
  quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(quota("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n").has_value());
  EXPECT_EQ(quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n"), 2.5);
  EXPECT_EQ(quota("/sys/fs/cgroup/cpu.max", "150000 100000\n"), 1.5);
  fs::remove(root + "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  EXPECT_FALSE(quota("/sys/fs/cgroup/cpu.max", "max 100000\n").has_value());
  EXPECT_EQ(read_limits(3, root).usable_cpus, 3);
  fs::remove_all(root);
}

/// A machine of two CPUs whose flags take 100 ns and whose memory gives 20 GB/s to each.
Topology probed() {
  Topology t = synthetic_topology("numa:1 core:2 pu:1").value();
  t.edges.push_back({"cpu:0", "cpu:1", "coherence", {}, {{}, 100.0}});
  t.edges.push_back({"numa:0", "cpu:0", "memory", {{}, 20.0}, {}});
  return t;
}

RanksReport timed(double small_us, double large_us, int ranks = 2) {
  RanksReport report;
  report.ranks = ranks;
  report.timings = {{8, small_us, small_us}, {16 << 20, large_us, large_us}};
  return report;
}

TEST(DoctorSpeed, IsJudgedByWhatWasMeasuredOnTheSameCpus) {
  EXPECT_TRUE(judge_speed(timed(0.5, 1000), probed()).empty());
  EXPECT_THAT(codes(judge_speed(timed(100, 1000), probed())), ElementsAre("latency-high"));
  EXPECT_THAT(codes(judge_speed(timed(0.5, 100'000), probed())), ElementsAre("bandwidth-low"));
  EXPECT_TRUE(judge_speed(timed(100, 100'000, 3), probed()).empty())
      << "three ranks share two CPUs";
  EXPECT_EQ(why_speed_is_not_judged(timed(1, 1, 3), probed()), "3 ranks share 2 CPUs");
  EXPECT_EQ(why_speed_is_not_judged(timed(1, 1, 1), probed()), "one rank exchanges nothing");
  EXPECT_EQ(why_speed_is_not_judged(timed(1, 1), probed()), "");
  EXPECT_TRUE(judge_speed(timed(100, 100'000), Topology()).empty()) << "nothing was measured";
  EXPECT_TRUE(judge_speed(RanksReport{.ranks = 2}, probed()).empty()) << "nothing was timed";
}

TEST(DoctorSpeed, MemoryIsNotBlamedWhereOneRunWasFast) {
  const auto slow = judge_speed(timed(0.5, 100'000), probed());
  ASSERT_THAT(codes(slow), ElementsAre("bandwidth-low"));
  EXPECT_THAT(slow[0].fix, HasSubstr("what else uses memory"));
  EXPECT_THAT(slow[0].evidence, HasSubstr("the limit is 2.00 GB/s, the best run had 0.17 GB/s"));
  RanksReport disturbed = timed(0.5, 100'000);
  disturbed.timings.back().best_us = 4'500;
  const auto taken = judge_speed(disturbed, probed());
  ASSERT_THAT(codes(taken), ElementsAre("bandwidth-low"));
  EXPECT_THAT(taken[0].fix, HasSubstr("other processes use these CPUs"));
  EXPECT_THAT(taken[0].evidence, HasSubstr("the best run had 3.73 GB/s"));
}

TEST(DoctorReport, SaysWhatIsWrongInTheOrderOfTriage) {
  DoctorReport report;
  report.ranks = timed(1, 1000);
  EXPECT_TRUE(report.healthy());
  EXPECT_THAT(render_text(report), HasSubstr("16 MiB"));
  DoctorReport shared = report;
  shared.not_looked_at["speed"] = "4 ranks share 2 CPUs";
  EXPECT_THAT(render_text(shared),
              HasSubstr("4. latency and bandwidth: not judged: 4 ranks share 2 CPUs\n"));
  Topology t = probed();
  t.nodes.front().attributes["shm_bytes"] = "1000";
  t.nodes.push_back({"gpu:0000:01:00.0", NodeKind::kGpu, "", {}, {}, {}, {}, {}, "0000:01:00.0"});
  t.nodes.push_back({"gpu:0000:02:00.0", NodeKind::kGpu, "", {}, {}, {}, {}, {}, "0000:02:00.0"});
  t.edges.push_back({"numa:0", "gpu:0000:01:00.0", "pci", {}, {}});
  t.edges.push_back({"numa:0", "gpu:0000:02:00.0", "pci", {}, {}});
  add_topology_findings(t, report);
  EXPECT_THAT(codes(report.environment), ElementsAre("shm-small"));
  EXPECT_THAT(codes(report.machine), ::testing::Contains("flat-tree"));
  EXPECT_FALSE(report.healthy());
  const std::string text = render_text(report);
  EXPECT_LT(text.find("shm-small"), text.find("flat-tree"));
  const json parsed = json::parse(to_json(report));
  EXPECT_EQ(parsed["findings"]["environment"][0]["code"], "shm-small");
  EXPECT_EQ(parsed["all_reduce"]["timings"][1]["algbw_gbps"], (16 << 20) / 1e6);
  EXPECT_EQ(parsed["healthy"], false);
}

Finished doctor(std::vector<std::string> arguments,
                const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  arguments.insert(arguments.begin(), {TOPOCOLL_COMMAND, "doctor", "--no-cache"});
  return run(arguments, environment);
}

TEST(Doctor, NamesTheMachineAsPlansDo) {
  // With what the doctor's probe keeps, which says more of a machine with GPUs.
  const std::string cache = ::testing::TempDir() + "/topocoll_doctor_" + std::to_string(::getpid());
  const Finished f =
      run({TOPOCOLL_COMMAND, "doctor", "--json", "--ranks", "1"}, {{"TOPOCOLL_CACHE_DIR", cache}});
  ::setenv("TOPOCOLL_CACHE_DIR", cache.c_str(), 1);
  const auto known = known_topology();
  ::unsetenv("TOPOCOLL_CACHE_DIR");
  fs::remove_all(cache);
  ASSERT_TRUE(known.ok()) << known.status().to_string();
  EXPECT_EQ(json::parse(f.out)["plan_fingerprint"], plan_fingerprint(*known));
}

TEST(Doctor, VerifiesAnAllReduceAndTimesIt) {
  for (const int ranks : {1, 3}) {
    const Finished f = doctor({"--json", "--ranks", std::to_string(ranks)});
    EXPECT_TRUE(f.status == 0 || f.status == 3) << f.status << f.err;
    const json report = json::parse(f.out);
    EXPECT_EQ(report["healthy"], f.status == 0);
    EXPECT_EQ(report["all_reduce"]["verified"], true) << f.out;
    EXPECT_EQ(report["all_reduce"]["ranks"], ranks);
    EXPECT_EQ(report["all_reduce"]["timings"].size(), 3U);
    EXPECT_EQ(report["findings"]["correctness"].size(), 0U);
    const auto machine = discover_topology();
    const std::size_t cpus = machine->of_kind(NodeKind::kHost).front()->cpus.size();
    EXPECT_EQ(report["not_looked_at"].contains("speed"), ranks == 1 || std::size_t(ranks) > cpus)
        << f.out;
    for (const json& timing : report["all_reduce"]["timings"]) EXPECT_GT(timing["median_us"], 0);
  }
  EXPECT_THAT(doctor({}).out, HasSubstr("4. latency and bandwidth"));
}

TEST(Doctor, NamesAWrongOptionAndStartsNothing) {
  const Finished f = doctor({"--json"}, {{"TOPOCOLL_SPIN_US", "often"}});
  EXPECT_EQ(f.status, 3) << f.err;
  const json report = json::parse(f.out);
  EXPECT_EQ(report["findings"]["environment"][0]["code"], "option");
  EXPECT_THAT(f.out, HasSubstr("TOPOCOLL_SPIN_US"));
  EXPECT_EQ(report["all_reduce"]["ranks"], 0);
  EXPECT_EQ(report["all_reduce"]["verified"], false);
  for (const char* part : {"machine", "correctness", "speed"}) {
    EXPECT_EQ(report["not_looked_at"][part], "the options are to be right first") << part;
  }
  const std::string text = doctor({}, {{"TOPOCOLL_SPIN_US", "often"}}).out;
  EXPECT_THAT(text, HasSubstr("2. machine: not looked at: the options are to be right first"));
  EXPECT_THAT(text, HasSubstr("3. all_reduce among rank processes: not looked at"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("nothing is wrong")));
  EXPECT_EQ(doctor({"--ranks", "65"}).status, 2);
  EXPECT_EQ(doctor({"--ranks", "0"}).status, 2);
}

TEST(Doctor, SaysWhyNoRankCouldBeStarted) {
  for (const std::string limit : {"5", "6"}) {
    const Finished f = run(
        {"/bin/sh", "-c", "ulimit -n " + limit + "; exec \"$0\" doctor --no-cache --json --ranks 2",
         TOPOCOLL_COMMAND},
        {});
    EXPECT_EQ(f.status, 3) << f.err;
    const json report = json::parse(f.out);
    ASSERT_EQ(report["findings"]["correctness"].size(), 1U) << f.out;
    const json& finding = report["findings"]["correctness"][0];
    EXPECT_EQ(finding["code"], "all-reduce-failed");
    EXPECT_THAT(finding["text"], HasSubstr("too few files may be open"));
    EXPECT_THAT(finding["evidence"],
                ::testing::AllOf(HasSubstr("2 ranks need "),
                                 HasSubstr(" open files, ulimit -n is " + limit)));
    EXPECT_EQ(finding["fix"], "ulimit -n 1024");
    EXPECT_EQ(report["not_looked_at"], json({{"speed", "all_reduce is to work first"}}));
  }
}

/// The children of a process, oldest first.
std::vector<pid_t> children(pid_t pid) {
  const std::string number = std::to_string(pid);
  std::ifstream file("/proc/" + number + "/task/" + number + "/children");
  std::vector<pid_t> all;
  for (pid_t child = 0; file >> child;) all.push_back(child);
  return all;
}

TEST(Doctor, ARankThatIsKilledIsNamed) {
  Child child({TOPOCOLL_COMMAND, "doctor", "--no-cache", "--json", "--ranks", "3"});
  std::vector<pid_t> ranks;
  const auto all_run = [&] {
    ranks = children(child.pid());
    return ranks.size() >= 3;
  };
  if (!testing::eventually(all_run, 60s)) GTEST_SKIP() << "the kernel does not list children";
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  const Finished f = child.finish();
  EXPECT_EQ(f.status, 3) << f.err;
  const json report = json::parse(f.out);
  ASSERT_EQ(report["findings"]["correctness"].size(), 1U) << f.out;
  const json& finding = report["findings"]["correctness"][0];
  EXPECT_EQ(finding["code"], "all-reduce-failed");
  EXPECT_EQ(finding["nodes"], json({"rank 1"}));
  EXPECT_EQ(finding["text"], "the process of rank 1 was ended by signal 9");
  EXPECT_EQ(report["all_reduce"]["verified"], false);
}

}  // namespace
}  // namespace topocoll::tools
