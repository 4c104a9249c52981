// Feeds every importer with inputs that are almost right, in processes that may crash, and fails if
// one crashes, takes more than two seconds or a gibibyte, or breaks a promise.
//
//   fuzz_importers [--seconds N] [--seed N] [--only TARGET] [--keep FOLDER]
//   fuzz_importers --only TARGET --replay FILE
//   fuzz_importers --find-faults    finds a crash, a hang, and large allocations that were put
//   there
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fuzz/worker.h"

namespace topocoll::fuzz {
namespace {

namespace fs = std::filesystem;
using Milliseconds = std::chrono::milliseconds;

constexpr int kMaxFailures = 5;  ///< of one target, before it is left

struct Arguments {
  int seconds = 10;  ///< for each target
  unsigned seed = 1;
  std::string only;
  std::string keep = ".";
  std::string replay;
  bool find_faults = false;
};

struct Campaign {
  std::string name;
  MakeTarget make;
  std::chrono::steady_clock::time_point end{};
  unsigned seed = 0;
  std::unique_ptr<Worker> worker{};
  std::uint64_t inputs = 0;
  std::uint64_t read = 0;
  int failures = 0;
};

/// Waits for a worker that feeds one input.
Verdict replay(const MakeTarget& make, const std::string& input) {
  Worker worker = Worker::replaying(make, input);
  while (!worker.ended()) std::this_thread::sleep_for(Milliseconds(5));
  return worker.verdict();
}

std::string keep(const Arguments& arguments, const Campaign& campaign, const Verdict& verdict) {
  const std::string path = fmt::format("{}/fuzz-{}-{}-{}", arguments.keep, campaign.name,
                                       verdict.what, campaign.failures);
  std::ofstream(path, std::ios::binary) << verdict.input;
  return path;
}

class Fuzzer {
 public:
  Fuzzer(Arguments arguments, std::vector<Campaign> campaigns)
      : arguments_(std::move(arguments)),
        waiting_(std::make_move_iterator(campaigns.begin()),
                 std::make_move_iterator(campaigns.end())) {}

  /// All targets, as many at once as there are cores.
  std::vector<Campaign> run() {
    const std::size_t most = std::max(1U, std::thread::hardware_concurrency());
    std::vector<Campaign> running;
    while (!waiting_.empty() || !running.empty()) {
      while (running.size() < most && !waiting_.empty()) {
        running.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
        begin(running.back());
      }
      for (std::size_t i = running.size(); i > 0; --i) {
        const auto campaign = running.begin() + static_cast<std::ptrdiff_t>(i - 1);
        if (!campaign->worker->ended() || go_on(*campaign)) continue;
        done_.push_back(std::move(*campaign));
        running.erase(campaign);
      }
      std::this_thread::sleep_for(Milliseconds(10));
    }
    return std::move(done_);
  }

 private:
  void begin(Campaign& campaign) {
    campaign.end = std::chrono::steady_clock::now() + std::chrono::seconds(arguments_.seconds);
    campaign.seed = arguments_.seed;
    start(campaign);
  }

  static void start(Campaign& campaign) {
    const auto left =
        std::chrono::duration_cast<Milliseconds>(campaign.end - std::chrono::steady_clock::now());
    campaign.worker = std::make_unique<Worker>(Worker::feeding(campaign.make, campaign.seed, left));
  }

  /// Counts what the worker did; whether there is more to do.
  bool go_on(Campaign& campaign) {
    campaign.inputs += campaign.worker->inputs();
    campaign.read += campaign.worker->read();
    Verdict verdict = campaign.worker->verdict();
    campaign.worker.reset();
    if (verdict.what.empty()) return false;
    // A machine with other work to do can make any input slow once.
    if (verdict.what == "hang") verdict = replay(campaign.make, verdict.input);
    if (!verdict.what.empty()) {
      const std::string path = keep(arguments_, campaign, verdict);
      std::printf("%s: %s with seed %u; input kept in %s\n", campaign.name.c_str(),
                  verdict.what.c_str(), campaign.seed, path.c_str());
      ++campaign.failures;
    }
    campaign.seed += 1000;  // other inputs than those up to here
    if (campaign.failures >= kMaxFailures) return false;
    start(campaign);
    return true;
  }

  Arguments arguments_;
  std::deque<Campaign> waiting_;
  std::vector<Campaign> done_;
};

std::vector<Campaign> campaigns_of(
    const std::function<std::vector<std::unique_ptr<Target>>()>& all) {
  std::vector<Campaign> campaigns;
  const auto targets = all();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    campaigns.push_back({targets[i]->name(), [all, i] { return std::move(all()[i]); }});
  }
  return campaigns;
}

std::vector<Campaign> importers(const std::string& scratch) {
  const std::string tests = TOPOCOLL_TEST_DATA;
  auto campaigns = campaigns_of([tests] { return text_targets(tests); });
  auto recorded = campaigns_of([tests, scratch] {
    std::vector<std::unique_ptr<Target>> targets;
    if (auto target = record_target(tests, scratch + "/record")) {
      targets.push_back(std::move(target));
    }
    return targets;
  });
  if (recorded.empty()) {
    std::puts("record: skipped, this machine cannot be recorded and there is no recorded one");
  }
  std::move(recorded.begin(), recorded.end(), std::back_inserter(campaigns));
  return campaigns;
}

template <class Number>
bool number(std::string_view text, Number& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value > 0;
}

bool parse(const std::vector<std::string>& words, Arguments& arguments) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--find-faults") {
      arguments.find_faults = true;
      continue;
    }
    if (i + 1 == words.size()) return false;
    const std::string& name = words[i];
    const std::string& value = words[++i];
    bool known = true;
    if (name == "--seconds") {
      known = number(value, arguments.seconds);
    } else if (name == "--seed") {
      known = number(value, arguments.seed);
    } else if (name == "--only") {
      arguments.only = value;
    } else if (name == "--keep") {
      arguments.keep = value;
    } else if (name == "--replay") {
      arguments.replay = value;
    } else {
      known = false;
    }
    if (!known) return false;
  }
  return true;
}

int replay_file(const Arguments& arguments, const std::vector<Campaign>& campaigns) {
  std::ifstream in(arguments.replay, std::ios::binary);
  const std::string input{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || campaigns.size() != 1) {
    std::fputs("--replay needs a file, and --only its target\n", stderr);
    return 2;
  }
  const Verdict verdict = replay(campaigns[0].make, input);
  std::printf("%s: %s\n", arguments.only.c_str(),
              verdict.what.empty() ? "fine" : verdict.what.c_str());
  return verdict.what.empty() ? 0 : 1;
}

int fuzz(const Arguments& arguments, std::vector<Campaign> campaigns) {
  int wrong = 0;
  for (const Campaign& c : Fuzzer(arguments, std::move(campaigns)).run()) {
    std::printf("%-16s %8llu inputs, %7llu of them read, %d failures\n", c.name.c_str(),
                static_cast<unsigned long long>(c.inputs), static_cast<unsigned long long>(c.read),
                c.failures);
    // A target whose inputs are all refused tries its first check alone.
    const bool fine = arguments.find_faults ? c.failures > 0 : c.failures == 0 && c.read > 0;
    if (!fine) ++wrong;
  }
  return wrong == 0 ? 0 : 1;
}

int main_of(const std::vector<std::string>& words) {
  Arguments arguments;
  if (!parse(words, arguments)) {
    std::fputs(
        "usage: fuzz_importers [--seconds N] [--seed N] [--only TARGET] [--keep FOLDER] "
        "[--replay FILE] [--find-faults]\n",
        stderr);
    return 2;
  }
  std::string scratch = (fs::temp_directory_path() / "topocoll-fuzz-XXXXXX").string();
  if (::mkdtemp(scratch.data()) == nullptr) {
    std::perror(scratch.c_str());
    return 2;
  }
  if (arguments.find_faults) arguments.keep = scratch;
  auto campaigns = arguments.find_faults ? campaigns_of(faulty_targets) : importers(scratch);
  std::erase_if(campaigns, [&](const Campaign& c) {
    return !arguments.only.empty() && c.name != arguments.only;
  });
  int status = 2;
  if (campaigns.empty()) {
    std::fprintf(stderr, "there is no target %s\n", arguments.only.c_str());
  } else if (!arguments.replay.empty()) {
    status = replay_file(arguments, campaigns);
  } else {
    status = fuzz(arguments, std::move(campaigns));
  }
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  return status;
}

}  // namespace
}  // namespace topocoll::fuzz

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return topocoll::fuzz::main_of({argv + 1, argv + argc});
}
