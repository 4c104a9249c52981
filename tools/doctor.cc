#include "doctor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "doctor_limits.h"
#include "doctor_ranks.h"
#include "doctor_report.h"
#include "progress.h"
#include "topo.h"
#include "topocoll/communicator.h"
#include "topocoll/options.h"
#include "topocoll/planning.h"
#include "topocoll/probe.h"

namespace topocoll::tools {
namespace {

constexpr int kMostByItself = 8;

using Text = Result<std::string>;

void append(std::vector<Finding> more, std::vector<Finding>& all) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

Text finish(const DoctorReport& report, DoctorRequest& request) {
  if (!report.healthy()) request.exit_status = kFoundSomething;
  return request.json ? to_json(report) : render_text(report);
}

Text examine(DoctorRequest& request) {
  DoctorReport report;
  if (const auto options = list_options(); !options.ok()) {
    // Nothing else can be trusted to work as meant, and no group would start.
    report.environment.push_back({"option",
                                  Severity::kError,
                                  {"host"},
                                  options.status().text(),
                                  "the environment",
                                  {},
                                  "topocoll options"});
    for (const char* part : {"machine", "correctness", "speed"}) {
      report.not_looked_at[part] = "the options are to be right first";
    }
    return finish(report, request);
  }
  ProgressBar bar("measuring");
  ProbeOptions probe;
  probe.use_cache = !request.no_cache;
  probe.gpus = !request.no_gpus;
  probe.on_progress = [&bar](int done, int total) { bar.show(done, total); };
  const auto machine = probe_topology(probe);
  if (!machine.ok()) return machine.status();
  report.host = machine->host;
  report.fingerprint = machine->fingerprint();
  report.plan_fingerprint = plan_fingerprint(*machine);
  const auto hosts = machine->of_kind(NodeKind::kHost);
  const int cpus = hosts.empty() ? 1 : static_cast<int>(hosts.front()->cpus.size());
  const int ranks = request.ranks > 0 ? request.ranks : std::clamp(cpus, 2, kMostByItself);
  append(judge_limits(read_limits(cpus), ranks), report.environment);
  add_topology_findings(*machine, report);
  auto run = run_ranks("topocoll doctor", ranks);
  if (!run.ok()) return run.status();
  report.ranks = std::move(*run);
  if (report.ranks.failure) {
    report.correctness.push_back(*report.ranks.failure);
    report.not_looked_at["speed"] = "all_reduce is to work first";
  } else {
    report.speed = judge_speed(report.ranks, *machine);
    if (std::string why = why_speed_is_not_judged(report.ranks, *machine); !why.empty()) {
      report.not_looked_at["speed"] = std::move(why);
    }
  }
  return finish(report, request);
}

}  // namespace

void add_doctor(CLI::App& app, DoctorRequest& request, std::function<Text()>& action) {
  CLI::App* doctor = app.add_subcommand(
      "doctor", "is this machine fit for collectives; exit status 3 if something is wrong");
  doctor->footer(
      "Looks at limits and the machine's topology, measures it, and lets rank processes perform "
      "all_reduce,\n"
      "checked and timed. What comes first is to be mended first.\n"
      "Examples:\n"
      "  topocoll doctor\n"
      "  topocoll doctor --ranks 4 --json > node.doctor.json || echo unfit");
  doctor->add_flag("--json", request.json, "print JSON");
  doctor
      ->add_option("--ranks", request.ranks,
                   "rank processes; one for each CPU, from 2 to 8, without")
      ->check(CLI::Range(1, kMaxRanksPerHost));
  doctor->add_flag("--no-gpus", request.no_gpus,
                   "measure no GPUs: that takes half a GiB of each for some seconds");
  doctor->add_flag("--no-cache", request.no_cache, "measure everything anew and keep nothing");
  doctor->callback([&action, &request] { action = [&request] { return examine(request); }; });
}

}  // namespace topocoll::tools
