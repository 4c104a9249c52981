// coll_perf: times topocoll's collectives as nccl-tests does. See docs/performance.md.
#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <variant>

#include "coll_perf/arguments.h"
#include "coll_perf/launch.h"
#include "coll_perf/output.h"
#include "coll_perf/place.h"
#include "coll_perf/run.h"

namespace {

using namespace topocoll::perf;

constexpr int kBadUsage = 2;

int run_in_place(const Arguments& arguments, const std::string& program) {
  auto place = read_place([](const char* name) -> const char* { return std::getenv(name); });
  if (!place.ok()) {
    say_error(fmt::format("{}: {}\n", program, place.status().text()));
    return kBadUsage;
  }
  const int patience = arguments.timeout_s > 0 ? arguments.timeout_s : 300;
  auto meeting = meet(*place, std::chrono::seconds(patience));
  if (!meeting.ok()) {
    say_error(fmt::format("{}: rank {}: {}\n", program, place->rank, meeting.status().to_string()));
    return 1;
  }
  const int status = run_rank(arguments, {.rank = place->rank,
                                          .ranks = place->size,
                                          .local_rank = place->local_rank,
                                          .program = program,
                                          .store = meeting->store,
                                          .variables = place->variables});
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  // Whether standard output is still read is seen when it is written to.
  ::signal(SIGPIPE, SIG_IGN);
  occupy_standard_descriptors();
  const std::string path = argc > 0 ? argv[0] : "coll_perf";
  const std::string program = path.substr(path.rfind('/') + 1);
  auto parsed = parse_arguments(argc, argv);
  if (!parsed.ok()) {
    say_error(fmt::format("{}: {}\n", program, parsed.status().text()));
    return kBadUsage;
  }
  if (const auto* help = std::get_if<Help>(&*parsed)) {
    if (std::fputs(help->text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
    if (errno == EPIPE) return 0;
    say_error(fmt::format("{}: standard output: {}\n", program, std::strerror(errno)));
    return 1;
  }
  const Arguments& arguments = std::get<Arguments>(*parsed);
  if (!arguments.ranks) return run_in_place(arguments, program);
  return launch(program, *arguments.ranks,
                [&](int rank, int ranks, std::shared_ptr<topocoll::Store> store) {
                  return run_rank(arguments, {.rank = rank,
                                              .ranks = ranks,
                                              .local_rank = rank,
                                              .program = program,
                                              .store = std::move(store)});
                })
      .exit_status;
}
