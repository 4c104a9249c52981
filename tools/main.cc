// The topocoll command: shows options, topologies and plans.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "commands.h"
#include "doctor.h"
#include "files.h"
#include "plan.h"
#include "topo.h"

namespace {

using topocoll::Result;
using namespace topocoll::tools;

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

constexpr const char* kExamples =
    "Examples:\n"
    "  topocoll topo show                             this machine\n"
    "  topocoll topo show --json > node.json          save it\n"
    "  topocoll topo probe                            measure it\n"
    "  topocoll topo check                            what is wrong with it, and how to mend that\n"
    "  topocoll topo import topo.xml                  NCCL's or hwloc's XML as topocoll's JSON\n"
    "  topocoll plan explain topo.xml                 the best plan, its bound, and why\n"
    "  topocoll plan show --collective all_reduce --algorithm two_shot --ranks 4\n"
    "  topocoll plan check my_plan.json\n"
    "  topocoll doctor                                is this machine fit, and what is to blame\n"
    "  topocoll options --json\n"
    "Exit status: 0; 1 if what was asked for cannot be had or is not valid; 2 for a bad command "
    "line;\n3 if doctor, topo check, topo diff or topo probe-net has found something.";

/// Status texts may have several lines; an error has one.
std::string one_line(std::string text) {
  for (char& c : text) {
    if ((c >= 0 && c < ' ') || c == 0x7f) c = ' ';
  }
  return text;
}

int fail(const std::string& text, int exit_status) {
  // fmt::print() would throw where stderr is closed or full.
  const std::string line = fmt::format("topocoll: {}\n", one_line(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return exit_status;
}

/// Prints everything or says why not.
int print(const std::string& text) {
  const topocoll::Status s = write_file("-", text);
  return s.ok() ? 0 : fail(s.text(), kFailed);
}

int run(int argc, char** argv) {
  CLI::App app("Shows topocoll's options, topologies and plans.", "topocoll");
  app.require_subcommand(1);
  app.footer(kExamples);
  std::function<Result<std::string>()> action;
  bool options_json = false;
  std::vector<std::string> wrong_options;
  TopoRequest topo;
  PlanRequest plan;
  DoctorRequest doctor;

  CLI::App* options =
      app.add_subcommand("options", "the TOPOCOLL_* variables: values and their origin");
  options->add_flag("--json", options_json, "print JSON");
  options->callback([&] {
    action = [&] { return Result<std::string>(show_options(options_json, wrong_options)); };
  });
  app.add_subcommand("version", "this build")->callback([&] {
    action = [] { return Result<std::string>(show_version()); };
  });
  app.set_version_flag("--version", show_version());
  add_topo(app, topo, action);
  add_plan(app, plan, action);
  add_doctor(app, doctor, action);
  if (const topocoll::Status s = check_subcommands(app, argc, argv); !s.ok()) {
    return fail(s.text(), kBadUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print(app.help());
  } catch (const CLI::CallForVersion& v) {
    return print(v.what());
  } catch (const CLI::ParseError& e) {
    return fail(usage_error(app, e), kBadUsage);
  }
  const Result<std::string> result = action();
  if (!result.ok()) return fail(result.status().text(), kFailed);
  int printed = print(result.value());
  for (const std::string& wrong : wrong_options) printed = fail(wrong, kFailed);
  return printed != 0 ? printed : std::max(topo.exit_status, doctor.exit_status);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // print() looks at the error instead
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    // As it stands: there may be no memory to make a line of.
    std::fputs("topocoll: out of memory; see ulimit -v and the limit of the container\n", stderr);
  } catch (const std::system_error& e) {  // a thread that cannot be started
    return fail(e.what(), kFailed);
  }
  return kFailed;
}
