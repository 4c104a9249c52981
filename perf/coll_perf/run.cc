#include "coll_perf/run.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "coll_perf/bench.h"
#include "coll_perf/json_report.h"
#include "coll_perf/launch.h"
#include "coll_perf/output.h"
#include "coll_perf/place.h"
#include "coll_perf/table.h"
#include "topocoll/communicator.h"
#include "topocoll/options.h"

namespace topocoll::perf {
namespace {

/// Pins this process to the core that its number falls on; the core's number.
int pin(int local_rank) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return -1;
  int skip = local_rank % CPU_COUNT(&usable);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return ::sched_setaffinity(0, sizeof one, &one) == 0 ? cpu : -1;
  }
  return -1;
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string host_name() {
  char name[256] = "unknown";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// Every rank's RankInfo, on rank 0; they travel through the store as lines.
Result<std::vector<RankInfo>> collect_ranks(const Member& me, int cpu,
                                            std::chrono::milliseconds timeout) {
  const auto key = [](int rank) { return fmt::format("coll_perf/rank/{}", rank); };
  const std::string line =
      fmt::format("{}\n{}\n{}\n{}\n", ::getpid(), host_name(), cpu, cpu_model());
  if (Status s = me.store->set(key(me.rank), line); !s.ok()) return s;
  std::vector<RankInfo> ranks;
  for (int rank = 0; me.rank == 0 && rank < me.ranks; ++rank) {
    auto text = me.store->get(key(rank), timeout);
    if (!text.ok()) return text.status().annotated(fmt::format("waiting for rank {}", rank));
    RankInfo& info = ranks.emplace_back();
    info.rank = rank;
    std::istringstream in(*text);
    in >> info.pid >> info.host >> info.cpu >> std::ws;
    std::getline(in, info.cpu_model);
  }
  return ranks;
}

std::optional<double> required_bandwidth() {
  const char* text = std::getenv("NCCL_TESTS_MIN_BW");
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return end != text && value > 0 ? std::optional(value) : std::nullopt;
}

/// The rows of one test in the order of the table.
std::vector<RowKey> rows_of(const Arguments& a, Collective test, int ranks) {
  std::vector<RowKey> rows;
  const std::vector<ReduceOp> one = {ReduceOp::kSum};
  const int first_root = a.root.value_or(0);
  const int roots = has_root(test) && !a.root ? ranks : 1;
  for (const DataType type : a.types) {
    for (const ReduceOp op : reduces(test) ? a.ops : one) {
      if (reduces(test) && !is_defined(op, type)) continue;  // only "all" leads here
      for (int root = first_root; root < first_root + roots; ++root) {
        for (const std::size_t bytes : sweep(a)) rows.push_back({test, type, op, root, bytes});
      }
    }
  }
  return rows;
}

/// What became of what rank 0 printed.
enum class Output : std::uint8_t { kWritten, kUnread, kFailed };

class Run {
 public:
  Run(const Arguments& arguments, const Member& member) : a_(arguments), me_(member) {}

  Status start();
  Status all_cycles();
  int finish(const Status& outcome);

 private:
  Status one_test(Collective test);
  Status table(Collective test, const std::vector<RowKey>& keys);
  [[nodiscard]] std::vector<AlgorithmBand> bands(const std::vector<RowKey>& keys) const;
  void say(const std::string& text);
  void progress(std::size_t done, std::size_t all, const RowKey& key);
  void clear_progress();
  /// Whether rank 0 can still write; the same on every rank.
  Result<bool> output_is_read();

  const Arguments& a_;
  const Member& me_;
  std::unique_ptr<Communicator> comm_;
  std::optional<Bench> bench_;
  std::optional<JsonReport> json_;
  std::vector<RankInfo> ranks_;
  std::vector<Row> rows_;  // of the whole run
  bool ok_ = true;
  Output output_ = Output::kWritten;
  int output_error_ = 0;  // rank 0's errno
  bool progress_shown_ = false;
};

void Run::say(const std::string& text) {
  if (me_.rank != 0) return;
  clear_progress();
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  if (output_ == Output::kWritten) output_error_ = errno;
  output_ = output_error_ == EPIPE ? Output::kUnread : Output::kFailed;
}

void Run::progress(std::size_t done, std::size_t all, const RowKey& key) {
  if (me_.rank != 0 || ::isatty(STDERR_FILENO) == 0) return;
  say_error(fmt::format("\r\033[K[{} of {}] {} {} B", done + 1, all, name(key.test), key.bytes));
  std::fflush(stderr);
  progress_shown_ = true;
}

void Run::clear_progress() {
  if (!progress_shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  progress_shown_ = false;
}

Result<bool> Run::output_is_read() {
  if (Status s = comm_->broadcast(&output_, &output_, 1, DataType::kU8, 0); !s.ok()) return s;
  return output_ == Output::kWritten;
}

Status Run::start() {
  if (a_.root && *a_.root >= me_.ranks) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("root {} is not among {} ranks", *a_.root, me_.ranks));
  }
  if (auto options = list_options(); !options.ok()) return options.status();
  const int cpu = a_.bind ? pin(me_.local_rank) : -1;
  if (!a_.json_file.empty() && me_.rank == 0) {
    auto report = JsonReport::open(a_.json_file);
    if (!report.ok()) return report.status();
    json_.emplace(std::move(*report));
    say(fmt::format("# Writing JSON output to {}\n", json_->path()));
  }
  const std::chrono::seconds patience(a_.timeout_s > 0 ? std::min(a_.timeout_s, 60) : 60);
  auto ranks = collect_ranks(me_, cpu, patience);
  if (!ranks.ok()) return peers_absent(ranks.status(), me_.variables);
  ranks_ = std::move(*ranks);
  CommunicatorOptions options;
  options.rank = me_.rank;
  options.size = me_.ranks;
  options.store = me_.store;
  options.name = "coll_perf";
  options.commit = a_.commit;
  if (a_.timeout_s > 0) options.timeout = std::chrono::seconds(a_.timeout_s);
  auto comm = Communicator::create(options);
  if (!comm.ok()) return peers_absent(comm.status(), me_.variables);
  comm_ = std::move(*comm);
  auto bench = Bench::create(a_, *comm_);
  if (!bench.ok()) return bench.status();
  bench_.emplace(std::move(*bench));
  return {};
}

Status Run::all_cycles() {
  for (int cycle = 0; a_.cycles == 0 || cycle < a_.cycles; ++cycle) {
    for (const Collective test : a_.tests) {
      Status s = one_test(test);
      if (!s.ok() || output_ != Output::kWritten) return s;
    }
  }
  return {};
}

Status Run::one_test(Collective test) {
  if (test == Collective::kHypercube && (me_.ranks & (me_.ranks - 1)) != 0) {
    const std::string text = "hypercube needs a power of two of ranks";
    if (a_.tests.size() == 1) return Status(Cause::kInvalidArgument, text);
    say(fmt::format("# {}: skipped\n", text));
    return {};
  }
  const std::vector<RowKey> keys = rows_of(a_, test, me_.ranks);
  say(render_preamble(a_, test, ranks_));
  const CommunicatorInfo info = comm_->info();
  say(fmt::format("# transport {}, {} bytes shared{}{}\n", info.transport, info.shared_bytes,
                  info.tuning.empty() ? "" : ", ", info.tuning));
  say(render_bands(bands(keys)));
  if (a_.memory) say(fmt::format("# {:<20} : {} B\n", "Shared memory", info.shared_bytes));
  say(render_header(a_));
  return table(test, keys);
}

std::vector<AlgorithmBand> Run::bands(const std::vector<RowKey>& keys) const {
  std::vector<AlgorithmBand> bands;
  std::optional<std::size_t> last;
  for (const RowKey& key : keys) {
    if (last && key.bytes <= *last) break;  // the sweep begins again for another type
    last = key.bytes;
    const Choice choice = bench_->choice(key);
    const bool same = !bands.empty() && bands.back().algorithm == choice.algorithm &&
                      bands.back().channels == choice.channels &&
                      bands.back().transport == choice.transport;
    if (!same) {
      bands.push_back({key.bytes, key.bytes, choice.algorithm, choice.channels, choice.transport});
    }
    bands.back().max_bytes = key.bytes;
  }
  return bands;
}

Status Run::table(Collective test, const std::vector<RowKey>& keys) {
  for (const RowKey& key : keys) {
    if (Status s = bench_->warm_up(key); !s.ok()) return s;
  }
  std::vector<Row> rows;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    progress(i, keys.size(), keys[i]);
    auto row = bench_->measure(keys[i]);
    if (!row.ok()) return row.status();
    say(render_row(a_, *row, time_stamp()));
    rows.push_back(std::move(*row));
    auto read = output_is_read();
    if (!read.ok()) return read.status();
    if (!*read) return {};
  }
  const Summary summary = summarize(rows, required_bandwidth());
  ok_ = ok_ && summary.ok();
  say(render_footer(test, summary));
  if (json_) rows_.insert(rows_.end(), rows.begin(), rows.end());
  return {};
}

int Run::finish(const Status& outcome) {
  clear_progress();
  std::vector<std::string> errors;
  if (!outcome.ok()) {
    errors.push_back(outcome.to_string());
    say_error(fmt::format("{}: rank {}: {}\n", me_.program, me_.rank, errors.back()));
  }
  if (json_) {
    const Status s =
        json_->finish(a_, ranks_, rows_, summarize(rows_, required_bandwidth()), errors);
    if (!s.ok()) {
      say_error(fmt::format("{}: {}\n", me_.program, s.text()));
      ok_ = false;
    }
  }
  bench_.reset();
  // What ended this rank alone would look like a mere departure to the others.
  if (comm_ != nullptr && !outcome.ok()) comm_->abort(outcome.text());
  if (comm_ != nullptr && outcome.ok()) {
    if (const Status s = comm_->shutdown(); !s.ok()) {
      say_error(fmt::format("{}: rank {}: {}\n", me_.program, me_.rank, s.to_string()));
      ok_ = false;
    }
  }
  comm_.reset();
  if (output_ == Output::kUnread) return kBrokenPipe;
  if (output_ == Output::kFailed) {
    if (me_.rank == 0) {
      say_error(fmt::format("{}: standard output: {}\n", me_.program, std::strerror(output_error_)));
    }
    return 1;
  }
  return outcome.ok() && ok_ ? 0 : 1;
}

}  // namespace

int run_rank(const Arguments& arguments, const Member& member) {
  Run run(arguments, member);
  Status outcome = run.start();
  if (outcome.ok()) outcome = run.all_cycles();
  return run.finish(outcome);
}

}  // namespace topocoll::perf
