// kill_bench: kills random ranks at random times and looks at what the survivors say.
//
//   kill_bench --trials 100 --ranks 4,8 --sizes 1k,1M --results perf/RESULTS.md
//
// Each trial starts fresh ranks that all-reduce in a loop, sends SIGKILL to one of them, and then
// compares the survivors' Status: cause, culprit and number of the first operation that did not
// commit must be the same on all, and in strict mode no rank may have reported success for that
// operation. The time is from the kill to the moment at which the last survivor's call has
// returned.
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "results_file.h"
#include "topocoll/communicator.h"
#include "topocoll/size.h"
#include "topocoll/store.h"

namespace {

using std::chrono::milliseconds;
using topocoll::Cause;
using topocoll::CommitMode;
using topocoll::Status;

constexpr int kMaxRanks = 64;
constexpr std::uint64_t kOperationsBeforeKill = 50;

double now_us() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

/// What one rank of a trial says, in memory that it shares with the parent.
struct Report {
  std::atomic<std::uint64_t> succeeded{0};  ///< operations reported as successful
  std::atomic<bool> ended{false};           ///< the rest is valid
  Cause cause = Cause::kOk;
  int culprit = -1;
  std::uint64_t seq = 0;
  bool repeated = false;  ///< the next call and health() said the same
  bool wrong_value = false;
  double time_us = 0;
};

struct Shared {
  std::atomic<std::uint16_t> port{0};
  Report ranks[kMaxRanks];
};

struct Setting {
  int ranks = 4;
  std::size_t bytes = 1024;
  CommitMode commit = CommitMode::kStrict;
  bool bind = false;
};

struct Trial {
  bool hung = false;
  bool agreed = true;
  double last_us = 0;
  std::string disagreement;
};

void pin(int rank) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(rank % static_cast<int>(std::max(1U, std::thread::hardware_concurrency())), &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

void loop(topocoll::Communicator& comm, const Setting& s, Report& report) {
  const std::size_t count = std::max<std::size_t>(1, s.bytes / sizeof(float));
  std::vector<float> in(count);
  std::vector<float> out(count);
  Status status;
  for (std::uint64_t k = 1; status.ok(); ++k) {
    in.front() = in.back() = static_cast<float>(k % 1000);
    status = comm.all_reduce(in.data(), out.data(), count, topocoll::DataType::kF32,
                             topocoll::ReduceOp::kSum);
    if (!status.ok()) break;
    const float expected = in.front() * static_cast<float>(s.ranks);
    if (out.front() != expected || out.back() != expected) report.wrong_value = true;
    report.succeeded.store(k, std::memory_order_release);
  }
  report.time_us = now_us();
  report.cause = status.cause();
  report.culprit = status.culprit();
  report.seq = status.seq();
  const Status again = comm.all_reduce(in.data(), out.data(), count, topocoll::DataType::kF32,
                                       topocoll::ReduceOp::kSum);
  const Status health = comm.health();
  report.repeated = again.cause() == status.cause() && again.seq() == status.seq() &&
                    health.cause() == status.cause() && health.culprits() == status.culprits();
  report.ended.store(true, std::memory_order_release);
}

[[noreturn]] void be_rank(int rank, const Setting& s, Shared& shared, const std::string& secret) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (s.bind) pin(rank);
  while (shared.port.load() == 0) std::this_thread::sleep_for(milliseconds(1));
  auto store =
      topocoll::connect_tcp_store("127.0.0.1", shared.port, secret, std::chrono::seconds(30));
  if (!store.ok()) ::_exit(1);
  topocoll::CommunicatorOptions options;
  options.rank = rank;
  options.size = s.ranks;
  options.store = *store;
  options.name = "kill_bench";
  options.timeout = std::chrono::seconds(30);
  options.commit = s.commit;
  auto comm = topocoll::Communicator::create(options);
  if (!comm.ok()) {
    fmt::print(stderr, "kill_bench: rank {}: {}\n", rank, comm.status().to_string());
    ::_exit(1);
  }
  loop(**comm, s, shared.ranks[rank]);
  ::_exit(0);
}

/// Waits until `ready` holds, at most 30 s.
template <class Ready>
bool wait_until(Ready ready) {
  const double deadline = now_us() + 30e6;
  while (!ready()) {
    if (now_us() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

std::string describe(const Report& r) {
  return fmt::format("{} culprit {} seq {} after {}", topocoll::name(r.cause), r.culprit, r.seq,
                     r.succeeded.load());
}

void judge(const Setting& s, const Shared& shared, int victim, double killed_us, Trial& trial) {
  const Report* first = nullptr;
  for (int rank = 0; rank < s.ranks; ++rank) {
    if (rank == victim) continue;
    const Report& r = shared.ranks[rank];
    if (first == nullptr) first = &r;
    const bool same = r.cause == first->cause && r.culprit == first->culprit && r.seq == first->seq;
    const bool honest = s.commit == CommitMode::kChained || r.succeeded.load() + 1 == r.seq;
    const bool right =
        r.cause == Cause::kPeerDied && r.culprit == victim && r.repeated && !r.wrong_value;
    if (!same || !honest || !right) {
      trial.agreed = false;
      trial.disagreement +=
          fmt::format(" rank {}: {}{};", rank, describe(r),
                      r.wrong_value ? ", wrong value" : (r.repeated ? "" : ", not repeated"));
    }
    trial.last_us = std::max(trial.last_us, r.time_us - killed_us);
  }
}

Trial run_trial(const Setting& s, Shared& shared, std::mt19937& random) {
  new (&shared) Shared();
  const std::string secret = std::to_string(random()) + std::to_string(random());
  std::vector<pid_t> pids;
  for (int rank = 0; rank < s.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) be_rank(rank, s, shared, secret);
    pids.push_back(pid);
  }
  Trial trial;
  {
    auto server = topocoll::serve_tcp_store("127.0.0.1", 0, secret);
    if (server.ok()) shared.port = (*server)->port();
    const auto all_busy = [&] {
      return std::all_of(shared.ranks, shared.ranks + s.ranks, [](const Report& r) {
        return r.succeeded.load() >= kOperationsBeforeKill;
      });
    };
    const int victim = static_cast<int>(random() % static_cast<unsigned>(s.ranks));
    trial.hung = !wait_until(all_busy);
    if (trial.hung) trial.disagreement = " the ranks did not start;";
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    const double killed_us = now_us();
    ::kill(pids[static_cast<std::size_t>(victim)], SIGKILL);
    const auto all_ended = [&] {
      for (int rank = 0; rank < s.ranks; ++rank) {
        if (rank != victim && !shared.ranks[rank].ended.load()) return false;
      }
      return true;
    };
    if (!trial.hung) {
      trial.hung = !wait_until(all_ended);
      if (trial.hung) trial.disagreement = " a survivor hung;";
    }
    if (!trial.hung) judge(s, shared, victim, killed_us, trial);
  }
  for (const pid_t pid : pids) {
    if (trial.hung) ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  return trial;
}

struct Line {
  Setting setting;
  int trials = 0;
  int disagreements = 0;
  int hangs = 0;
  std::vector<double> last_ms;

  [[nodiscard]] double percentile(double percent) const {
    if (last_ms.empty()) return 0;
    const auto rank =
        static_cast<std::size_t>(percent / 100 * static_cast<double>(last_ms.size()) + 0.999);
    return last_ms[std::min(std::max<std::size_t>(rank, 1), last_ms.size()) - 1];
  }
};

std::string table(const std::vector<Line>& lines, const std::string& command) {
  utsname machine{};
  ::uname(&machine);
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  std::string text = fmt::format(
      "{} {}, {} cores, {}, `{}`\n\n"
      "| ranks | bytes | commit | kills | disagreements | hangs | p50 ms | p99 ms | max ms |\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      machine.sysname, machine.release, std::thread::hardware_concurrency(), date, command);
  for (const Line& l : lines) {
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2f} |\n", l.setting.ranks,
        l.setting.bytes, l.setting.commit == CommitMode::kStrict ? "strict" : "chained", l.trials,
        l.disagreements, l.hangs, l.percentile(50), l.percentile(99), l.percentile(100));
  }
  return text;
}

Line run_setting(const Setting& s, int trials, unsigned seed, Shared& shared) {
  Line line{.setting = s, .trials = trials};
  std::mt19937 random(seed);
  for (int t = 0; t < trials; ++t) {
    const Trial trial = run_trial(s, shared, random);
    if (trial.hung) {
      ++line.hangs;
    } else {
      line.last_ms.push_back(trial.last_us / 1e3);
    }
    if (!trial.agreed) ++line.disagreements;
    if (!trial.disagreement.empty()) {
      fmt::print(stderr, "kill_bench: {} ranks, {} B, seed {}, trial {}:{}\n", s.ranks, s.bytes,
                 seed, t, trial.disagreement);
    }
    if (::isatty(STDERR_FILENO) != 0) {
      fmt::print(stderr, "\r{} ranks, {} B: {} of {}\033[K", s.ranks, s.bytes, t + 1, trials);
    }
  }
  if (::isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
  std::sort(line.last_ms.begin(), line.last_ms.end());
  return line;
}

struct Flags {
  std::vector<int> ranks = {4, 8};
  std::vector<std::string> sizes = {"1k", "1M"};
  int trials = 100;
  unsigned seed = 1;
  std::string commit = "strict";
  std::string results;
  bool bind = false;

  void add_to(CLI::App& app) {
    app.add_option("--ranks", ranks, "group sizes (4,8)")
        ->delimiter(',')
        ->check(CLI::Range(2, kMaxRanks));
    app.add_option("--sizes", sizes, "message sizes in bytes; k and M are binary (1k,1M)")
        ->delimiter(',')
        ->check([](const std::string& text) {
          return topocoll::parse_size(text) ? "" : "invalid size: " + text;
        });
    app.add_option("--trials", trials, "kills for each pair of them (100)")
        ->check(CLI::Range(1, 1000000));
    app.add_option("--seed", seed, "of the random times and victims (1)");
    app.add_option("--commit", commit, "strict or chained (strict)")
        ->check(CLI::IsMember({"strict", "chained"}));
    app.add_option("--results", results, "Markdown file whose kill_bench section is replaced; - for none");
    app.add_flag("--bind", bind, "pin rank i to core i mod cores");
  }
};

/// Every pair of size and group size.
std::vector<Line> run_all(const Flags& flags, Shared& shared) {
  std::vector<Line> lines;
  for (const std::string& size : flags.sizes) {
    for (const int ranks : flags.ranks) {
      const Setting setting{
          .ranks = ranks,
          .bytes = *topocoll::parse_size(size),
          .commit = flags.commit == "strict" ? CommitMode::kStrict : CommitMode::kChained,
          .bind = flags.bind};
      lines.push_back(run_setting(setting, flags.trials, flags.seed, shared));
    }
  }
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Kills random ranks and checks that all survivors report the same outcome.",
               "kill_bench");
  flags.add_to(app);
  CLI11_PARSE(app, argc, argv);
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fmt::print(stderr, "kill_bench: cannot map memory: {}\n", std::strerror(errno));
    return 1;
  }
  const std::vector<Line> lines = run_all(flags, *new (memory) Shared());
  std::string command = "kill_bench";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  const std::string text = table(lines, command);
  fmt::print("{}", text);
  if (!flags.results.empty() && flags.results != "-") {
    const std::string gloo =
        "\nGloo with the same kills: last survivor after 2,020 ms (p99), 10 to 26 % "
        "disagreement.\n";
    const Status s = topocoll::perf::replace_section(flags.results, "kill_bench", text + gloo);
    if (!s.ok()) {
      fmt::print(stderr, "kill_bench: {}\n", s.text());
      return 1;
    }
  }
  const bool failed = std::any_of(lines.begin(), lines.end(),
                                  [](const Line& l) { return l.disagreements > 0 || l.hangs > 0; });
  return failed ? 1 : 0;
}
