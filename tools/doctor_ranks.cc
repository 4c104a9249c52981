#include "doctor_ranks.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "perf/coll_perf/launch.h"
#include "topocoll/communicator.h"

namespace topocoll::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{20};
constexpr int kSamples = 21;
struct Size {
  std::size_t bytes;
  int operations;  ///< of one sample
};
constexpr std::array<Size, 3> kSizes = {{{8, 50}, {64 << 10, 10}, {16 << 20, 1}}};
constexpr int kModulus = 97;

enum class Ended : int { kNot, kRight, kFailed, kWrong };

/// What a rank tells the doctor, in memory that both see.
struct RankWord {
  Ended ended = Ended::kNot;
  int culprit = -1;
  char cause[32] = {};
  char text[512] = {};
};
struct Shared {
  std::size_t sizes_done = 0;  ///< by rank 0
  std::array<SizeTiming, kSizes.size()> timings{};
  char tuning[512] = {};
  RankWord* words = nullptr;  ///< one for each rank, behind this
};

template <std::size_t n>
void set_text(char (&target)[n], const std::string& text) {
  std::strncpy(target, text.c_str(), n - 1);
}

/// Small integers, so that f32 sums are exact.
float input(std::size_t i, int rank) {
  return static_cast<float>(i % kModulus) + static_cast<float>(rank);
}
float sum(std::size_t i, int ranks) {
  return static_cast<float>(ranks) * static_cast<float>(i % kModulus) +
         static_cast<float>(ranks) * static_cast<float>(ranks - 1) / 2;
}

class Rank {
 public:
  Rank(int rank, int ranks, Shared& shared)
      : rank_(rank), ranks_(ranks), shared_(shared), word_(shared.words[rank]) {}

  int run(std::shared_ptr<Store> store) {
    CommunicatorOptions options;
    options.rank = rank_;
    options.size = ranks_;
    options.store = std::move(store);
    options.name = "doctor";
    options.timeout = kTimeout;
    auto made = Communicator::create(options);
    if (!made.ok()) return failed(made.status());
    Communicator& group = **made;
    if (rank_ == 0) set_text(shared_.tuning, group.info().tuning);
    for (std::size_t s = 0; s < kSizes.size(); ++s) {
      const int status = measure(group, kSizes[s], shared_.timings[s]);
      if (status != 0) return status;
      if (rank_ == 0) shared_.sizes_done = s + 1;
    }
    word_.ended = Ended::kRight;
    return 0;
  }

 private:
  int failed(const Status& status) {
    word_.culprit = status.culprit();
    set_text(word_.cause, std::string(name(status.cause())));
    set_text(word_.text, status.to_string());
    word_.ended = Ended::kFailed;
    return 1;
  }

  int measure(Communicator& group, Size size, SizeTiming& timing) {
    const std::size_t count = size.bytes / sizeof(float);
    std::vector<float> in(count);
    std::vector<float> out(count);
    for (std::size_t i = 0; i < count; ++i) in[i] = input(i, rank_);
    std::vector<double> times;
    for (int sample = 0; sample < kSamples; ++sample) {
      std::fill(out.begin(), out.end(), -1.0F);
      if (Status s = group.barrier(); !s.ok()) return failed(s);
      const auto start = Clock::now();
      for (int i = 0; i < size.operations; ++i) {
        Status s = group.all_reduce(in.data(), out.data(), count, DataType::kF32, ReduceOp::kSum);
        if (!s.ok()) return failed(s);
      }
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      double slowest = took.count() / size.operations;
      const double own = slowest;
      if (Status s = group.all_reduce(&own, &slowest, 1, DataType::kF64, ReduceOp::kMax); !s.ok()) {
        return failed(s);
      }
      times.push_back(slowest);
      if (const int status = check(out, size.bytes); status != 0) return status;
    }
    if (rank_ == 0) timing = summary(std::move(times), size.bytes);
    return 0;
  }

  int check(const std::vector<float>& out, std::size_t bytes) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i] == sum(i, ranks_)) continue;
      word_.culprit = rank_;
      set_text(word_.text,
               fmt::format("element {} of an all_reduce of {} bytes is {} on rank {}, and not {}",
                           i, bytes, out[i], rank_, sum(i, ranks_)));
      word_.ended = Ended::kWrong;
      return 1;
    }
    return 0;
  }

  static SizeTiming summary(std::vector<double> times, std::size_t bytes) {
    times.erase(times.begin());  // the first fetches pages
    std::sort(times.begin(), times.end());
    return {bytes, times[times.size() / 2], times.front()};
  }

  const int rank_;
  const int ranks_;
  Shared& shared_;
  RankWord& word_;
};

std::string rank_id(int rank) { return fmt::format("rank {}", rank); }

/// Why the run failed, by what the ranks and the launcher say of it.
Finding failure_of(const std::string& program, const Shared& shared, int ranks,
                   const perf::Launched& launched) {
  Finding finding{"all-reduce-failed", Severity::kError, {}, "", "", {}, ""};
  finding.fix =
      "look for what ended it (dmesg | tail, ulimit -a); with the limits above in order, please "
      "report it";
  for (int r = 0; r < ranks; ++r) {
    if (shared.words[r].ended != Ended::kWrong) continue;
    finding.code = "all-reduce-wrong";
    finding.nodes = {rank_id(r)};
    finding.text = shared.words[r].text;
    finding.evidence = fmt::format("compared with the exact sum over {} ranks", ranks);
    finding.fix =
        "memory or CPU may be faulty (dmesg | grep -i -e mce -e edac); please report it otherwise";
    return finding;
  }
  if (launched.rank_signal != 0) {
    finding.nodes = {rank_id(launched.failed_rank)};
    finding.text = fmt::format("the process of rank {} was ended by signal {}",
                               launched.failed_rank, launched.rank_signal);
    finding.evidence = fmt::format("its exit status; {} ranks had been started", ranks);
    return finding;
  }
  for (int r = 0; r < ranks; ++r) {
    const RankWord& word = shared.words[r];
    if (word.ended != Ended::kFailed) continue;
    finding.nodes = {rank_id(word.culprit >= 0 ? word.culprit : r)};
    finding.text = fmt::format("rank {} failed: {}", r, word.text);
    finding.evidence = fmt::format("cause {}", word.cause);
    return finding;
  }
  finding.text = fmt::format("the ranks could not be run (exit status {})", launched.exit_status);
  finding.evidence = fmt::format("the lines on stderr that begin with \"{}:\"", program);
  return finding;
}

}  // namespace

Result<RanksReport> run_ranks(const std::string& program, int ranks) {
  RanksReport report;
  report.ranks = ranks;
  if (const auto lack = perf::lack_of_files(ranks)) {  // the launcher would say so on stderr alone
    report.failure = Finding{"all-reduce-failed",
                             Severity::kError,
                             {"host"},
                             "the ranks could not be started: too few files may be open",
                             *lack,
                             {},
                             "ulimit -n 1024"};
    return report;
  }
  const std::size_t bytes = sizeof(Shared) + sizeof(RankWord) * static_cast<std::size_t>(ranks);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Status(Cause::kResource, "no memory for the ranks' reports");
  auto* shared = new (memory) Shared;
  shared->words = reinterpret_cast<RankWord*>(shared + 1);
  std::uninitialized_default_construct_n(shared->words, ranks);
  const perf::Launched launched =
      perf::launch(program, ranks, [shared](int rank, int size, std::shared_ptr<Store> store) {
        return Rank(rank, size, *shared).run(std::move(store));
      });
  report.tuning = shared->tuning;
  const std::size_t done = std::min(shared->sizes_done, shared->timings.size());
  report.timings.assign(shared->timings.begin(),
                        shared->timings.begin() + static_cast<std::ptrdiff_t>(done));
  if (launched.exit_status != 0) report.failure = failure_of(program, *shared, ranks, launched);
  ::munmap(memory, bytes);
  return report;
}

}  // namespace topocoll::tools
