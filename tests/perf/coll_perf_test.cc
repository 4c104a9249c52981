// coll_perf as its users run it.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "perf/child.h"
#include "topocoll/store.h"

namespace topocoll {
namespace {

const std::string kProgram = COLL_PERF;
const std::string kFolder = std::filesystem::path(kProgram).parent_path().string();

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

Finished coll_perf(const std::string& arguments) {
  std::vector<std::string> command = words(arguments);
  command.insert(command.begin(), kProgram);
  return run(command);
}

int count(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern, std::regex::multiline);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), expression),
                                        std::sregex_iterator()));
}

constexpr const char* kRowPattern = "^ +[0-9]+ +[0-9]+ +[a-z0-9]+ +[a-z]+ +-?[0-9]+ ";

TEST(CollPerf, EveryCollectiveIsRightWithSeveralRanks) {
  for (const std::string ranks : {"1", "2", "4"}) {
    const Finished f = coll_perf("all -b 1k -e 64k -f 64 -n 2 --ranks " + ranks);
    EXPECT_EQ(f.status, 0) << f.err << f.out;
    EXPECT_EQ(count(f.out, "^# Out of bounds values : 0 OK$"), 11) << ranks << f.out;
    EXPECT_EQ(count(f.out, kRowPattern), 22) << f.out;
  }
}

TEST(CollPerf, ThreeRanksSkipTheHypercube) {
  const Finished all = coll_perf("all -b 100 -e 100 -n 1 --ranks 3");
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(count(all.out, "^# Out of bounds values : 0 OK$"), 10);
  EXPECT_EQ(count(all.out, "skipped"), 1);
  EXPECT_EQ(coll_perf("hypercube -b 100 -e 100 --ranks 3").status, 1);
}

TEST(CollPerf, EveryTypeAndOperation) {
  const Finished f = coll_perf("all_reduce -d all -o all -b 4k -e 4k -n 1 --ranks 3");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(count(f.out, "^# Out of bounds values : 0 OK$"), 1) << f.out;
  EXPECT_GT(count(f.out, kRowPattern), 90);
}

TEST(CollPerf, RootsUnalignedBuffersAndGroups) {
  const Finished f = coll_perf("reduce -r all -u 3 -m 3 -d half -b 1000 -e 1000 -n 2 --ranks 3");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(count(f.out, kRowPattern), 3) << f.out;
  EXPECT_EQ(count(f.out, "^# Out of bounds values : 0 OK$"), 1);
}

TEST(CollPerf, RunsUnderTheNamesOfNcclTests) {
  for (const char* name : {"all_reduce_perf", "alltoallv_perf", "sendrecv_perf"}) {
    const Finished f = run({kFolder + "/" + name, "-b", "1k", "-e", "1k", "-n", "2", "-g", "2"});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_NE(f.out.find(std::string("# Collective test starting: ") + name), std::string::npos);
    EXPECT_EQ(count(f.out, "^#  Rank +[0-9]+ Group +0 Pid +[0-9]+ on "), 2) << f.out;
  }
}

TEST(CollPerf, PrintsWhatMovesTheBytes) {
  const Finished f = coll_perf("all_reduce -b 8 -e 4M -f 8 -n 1 -c 0 --ranks 2");
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_GE(count(f.out, "^# algorithm 8\\.\\.[0-9]+ B: [a-z_]+, 1 channel, shm$"), 1) << f.out;
  EXPECT_EQ(f.out.find("# topocoll version "), 0U);
  EXPECT_EQ(count(f.out, " N/A"), 14) << "-c 0 checks nothing";
}

TEST(CollPerf, JsonHasEveryRowAndNoEnvironment) {
  const std::string path =
      ::testing::TempDir() + "/coll_perf_run_" + std::to_string(::getpid()) + ".json";
  const Finished f = run({kProgram, "all_gather", "-b", "1k", "-e", "2k", "-f", "2", "-n", "4",
                          "-I", "1", "-K", "1", "--ranks", "2", "-J", path},
                         {{"A_SECRET", "hunter2"}});
  EXPECT_EQ(f.status, 0) << f.err;
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  ::unlink(path.c_str());
  EXPECT_EQ(text.str().find("hunter2"), std::string::npos);
  const auto json = nlohmann::json::parse(text.str());
  EXPECT_EQ(json["results"].size(), 2U);
  EXPECT_EQ(json["results"][0]["out_of_place_per_iter"]["times_us"].size(), 3U);
  EXPECT_EQ(json["config"]["devices"].size(), 2U);
}

TEST(CollPerf, BadCommandLinesAreOneLineAndStatusTwo) {
  for (const char* line : {"", "all_reduce -b 1x", "all_reduce -G 2 --ranks 2",
                           "all_reduce --ranks 0", "all_reduce --frobnicate"}) {
    const Finished f = coll_perf(line);
    EXPECT_EQ(f.status, 2) << line;
    EXPECT_EQ(f.out, "");
    EXPECT_EQ(count(f.err, "\n"), 1) << f.err;
  }
}

TEST(CollPerf, AnOutputThatCannotBeWrittenIsAnError) {
  const std::string few = kProgram + " all_reduce --ranks 2 -b 8 -e 8 -n 1 -w 0";
  for (const auto& [where, why] : {std::pair(">/dev/full", "No space left"), std::pair(">&-", "Bad file")}) {
    for (const std::string& command : {few, kProgram + " --help"}) {
      const Finished f = run({"/bin/sh", "-c", command + " " + where});
      EXPECT_EQ(f.status, 1) << command << where;
      EXPECT_NE(f.err.find("standard output: " + std::string(why)), std::string::npos) << f.err;
      EXPECT_EQ(count(f.err, "\n"), 1) << f.err;
    }
  }
}

TEST(CollPerf, ErrorsThatCannotBeWrittenKillNobody) {
  for (const char* where : {"2>/dev/full", "2>&-"}) {
    EXPECT_EQ(run({"/bin/sh", "-c", kProgram + " --nonsense " + where}).status, 2) << where;
    const std::string ranks = "TOPOCOLL_COMIT=strict " + kProgram + " all_reduce --ranks 2 -b 8 -e 8 ";
    EXPECT_EQ(run({"/bin/sh", "-c", ranks + where}).status, 1) << where;
  }
  const Finished f = run({"/bin/sh", "-c", kProgram + " all_reduce --ranks 2 -b 8 -e 8 -n 1 -w 0 <&- 2>&-"});
  EXPECT_EQ(f.status, 0);
  EXPECT_EQ(count(f.out, kRowPattern), 1) << f.out;
}

TEST(CollPerf, ProgressIsForTerminalsOnly) {
  const std::string two = kProgram + " all_reduce --ranks 2 -b 8 -e 16 -f 2 -n 1 -w 0";
  const Finished piped = run({"/bin/sh", "-c", two});
  EXPECT_EQ(piped.status, 0);
  EXPECT_EQ(piped.err, "");

  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) {
    GTEST_SKIP() << "no pseudo-terminal: " << std::strerror(errno);
  }
  const std::string name = ::ptsname(terminal);
  const int writer = ::open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);  // the last to hang up
  const Finished shown = run({"/bin/sh", "-c", two + " 2>" + name});
  EXPECT_EQ(shown.status, 0);
  char bytes[4096];
  const ssize_t got = ::read(terminal, bytes, sizeof bytes);
  ::close(writer);
  ::close(terminal);
  const std::string seen(bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  const std::string clear = "\r\033[K";
  EXPECT_EQ(seen,
            clear + "[1 of 2] all_reduce 8 B" + clear + clear + "[2 of 2] all_reduce 16 B" + clear);
  EXPECT_EQ(shown.out.find('\033'), std::string::npos);
  EXPECT_EQ(count(shown.out, kRowPattern), 2) << shown.out;
}

TEST(CollPerf, TooFewOpenFilesAreSaidAtOnce) {
  const std::string arguments = " all_reduce --ranks 16 -b 8 -e 8 -n 1";
  const Finished f = run({"/bin/sh", "-c", "ulimit -n 20; exec " + kProgram + arguments});
  EXPECT_EQ(f.status, 1);
  EXPECT_EQ(count(f.err, "\n"), 1) << f.err;
  std::smatch need;
  ASSERT_TRUE(std::regex_search(
      f.err, need,
      std::regex("16 ranks need ([0-9]+) open files, ulimit -n is 20: raise it \\(ulimit -n")))
      << f.err;
  const Finished enough =
      run({"/bin/sh", "-c", "ulimit -n " + need[1].str() + "; exec " + kProgram + arguments});
  EXPECT_EQ(enough.status, 0) << enough.err;
}

TEST(CollPerf, AnUnknownOptionVariableIsAnError) {
  const Finished f =
      run({kProgram, "all_reduce", "-b", "8", "-e", "8"}, {{"TOPOCOLL_COMIT", "strict"}});
  EXPECT_EQ(f.status, 1);
  EXPECT_NE(f.err.find("TOPOCOLL_COMIT"), std::string::npos) << f.err;
}

TEST(CollPerf, ARequiredBandwidthThatIsMissedFails) {
  const Finished f = run({kProgram, "all_reduce", "-b", "8", "-e", "8", "--ranks", "2"},
                         {{"NCCL_TESTS_MIN_BW", "1000000"}});
  EXPECT_EQ(f.status, 1);
  EXPECT_EQ(count(f.out, "^# Avg bus bandwidth    : .* FAILED$"), 1) << f.out;
}

TEST(CollPerf, RanksOfAnotherLauncherMeet) {
  const std::uint16_t port = (*serve_tcp_store("127.0.0.1", 0, "s"))->port();
  const auto start = [&](const char* rank) {
    return std::make_unique<Child>(
        std::vector<std::string>{kProgram, "broadcast", "-b", "1k", "-e", "1k", "-n", "2"},
        std::vector<std::pair<std::string, std::string>>{
            {"RANK", rank},
            {"WORLD_SIZE", "2"},
            {"TOPOCOLL_STORE", "127.0.0.1:" + std::to_string(port)}});
  };
  const auto one = start("1");
  const auto zero = start("0");
  const Finished f = zero->finish();
  const Finished g = one->finish();
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(g.status, 0) << g.err;
  EXPECT_EQ(count(f.out, kRowPattern), 1) << f.out;
  EXPECT_EQ(g.out, "");
}

TEST(CollPerf, WhereALaunchersRanksDoNotComeItsVariablesAreNamed) {
  // A batch script of SLURM has both variables, and is the only process until it calls srun.
  for (const std::string rank : {"0", "1"}) {
    const Finished f = run({kProgram, "all_reduce", "-b", "8", "-e", "8", "-T", "1"},
                           {{"SLURM_PROCID", rank},
                            {"SLURM_NTASKS", "2"},
                            {"SLURM_JOB_ID", std::to_string(::getpid()) + rank}});
    EXPECT_EQ(f.status, 1);
    EXPECT_EQ(count(f.err, "\n"), 1) << f.err;
    EXPECT_NE(f.err.find("rank " + rank + ": timeout"), std::string::npos) << f.err;
    EXPECT_NE(f.err.find("SLURM_PROCID=" + rank + " and SLURM_NTASKS=2"), std::string::npos)
        << f.err;
    EXPECT_NE(f.err.find("--ranks N"), std::string::npos) << f.err;
  }
}

/// The ranks' process ids from the table's preamble.
std::vector<pid_t> pids_of(const std::string& out) {
  std::vector<pid_t> pids;
  const std::regex expression("Rank +[0-9]+ Group +0 Pid +([0-9]+) on");
  for (auto it = std::sregex_iterator(out.begin(), out.end(), expression);
       it != std::sregex_iterator(); ++it) {
    pids.push_back(std::stoi((*it)[1].str()));
  }
  return pids;
}

bool gone(pid_t pid) {
  for (int i = 0; i < 20000; ++i) {
    if (::kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class CollPerfRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    // For ever, until something happens to it.
    child_ = std::make_unique<Child>(std::vector<std::string>{
        kProgram, "all_reduce", "-b", "8", "-e", "8", "-N", "0", "--ranks", "3"});
    // The second table: the first one's preamble is complete.
    ASSERT_TRUE(child_->wait_for("concluded"));
  }
  std::unique_ptr<Child> child_;
};

TEST_F(CollPerfRanks, AKilledRankIsReportedAndNobodyIsLeft) {
  ASSERT_TRUE(child_->wait_for("redop"));
  // What has been read so far names the ranks; finish() returns it too.
  const pid_t launcher = child_->pid();
  std::ifstream children("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) +
                         "/children");
  std::vector<pid_t> ranks;
  for (pid_t pid = 0; children >> pid;) ranks.push_back(pid);
  ASSERT_EQ(ranks.size(), 3U);
  ASSERT_EQ(::kill(ranks[1], SIGKILL), 0);
  const Finished f = child_->finish();
  EXPECT_EQ(pids_of(f.out).size() % 3, 0U);
  EXPECT_EQ(f.status, 1);
  EXPECT_NE(f.err.find("rank 1 was killed by signal 9"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("rank 0: peer_died"), std::string::npos) << f.err;
  for (const pid_t pid : ranks) EXPECT_TRUE(gone(pid));
}

TEST_F(CollPerfRanks, ASignalToTheLauncherEndsAllRanks) {
  const pid_t launcher = child_->pid();
  std::ifstream children("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) +
                         "/children");
  std::vector<pid_t> ranks;
  for (pid_t pid = 0; children >> pid;) ranks.push_back(pid);
  ASSERT_EQ(::kill(launcher, SIGTERM), 0);
  EXPECT_EQ(child_->finish().status, 128 + SIGTERM);
  for (const pid_t pid : ranks) EXPECT_TRUE(gone(pid));
}

TEST_F(CollPerfRanks, RanksDieWithTheirLauncher) {
  const pid_t launcher = child_->pid();
  std::ifstream children("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) +
                         "/children");
  std::vector<pid_t> ranks;
  for (pid_t pid = 0; children >> pid;) ranks.push_back(pid);
  ASSERT_EQ(ranks.size(), 3U);
  ASSERT_EQ(::kill(launcher, SIGKILL), 0);
  child_->finish();
  for (const pid_t pid : ranks) EXPECT_TRUE(gone(pid));
}

TEST_F(CollPerfRanks, ABrokenPipeIsQuiet) {
  child_->close_output();
  const Finished f = child_->finish();
  EXPECT_EQ(f.err, "");
  EXPECT_EQ(f.status, 141);
}

}  // namespace
}  // namespace topocoll
