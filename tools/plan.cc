#include "plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "commands.h"
#include "files.h"
#include "plan_cluster.h"
#include "plan_words.h"
#include "topocoll/plan.h"
#include "topocoll/planning.h"
#include "topocoll/types.h"

namespace topocoll::tools {
namespace {

using Text = Result<std::string>;

/// For options that name files: with an empty name, often an unset variable, nothing would be
/// written.
CLI::Validator named() {
  return {[](std::string& name) {
            return name.empty() ? std::string("a name is needed, not an empty one") : std::string();
          },
          ""};
}

constexpr const char* kAnyMachine = "let the plan run on other machines than the one it is made for";

Result<Plan> read_plan(const std::string& path) {
  auto text = read_file(path);
  if (!text.ok()) return text.status();
  auto plan = plan_from_json(*text);
  if (!plan.ok()) return plan.status().annotated(path);
  return plan;
}

/// Names the machine's file before what is wrong with the machine, and leaves other errors alone.
Status blame(const Status& failure, const PlanRequest& request, const Topology& topology) {
  if (request.input.file.empty() || check_plannable(topology).ok()) return failure;
  return failure.annotated(request.input.file);
}

/// "output chunk 0: ((0+1)+2)" for each chunk.
std::string orders_text(const Plan& plan) {
  std::string text;
  if (!reduces(plan.kind)) return text;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const auto orders = evaluation_orders(plan, rank);
    if (!orders.ok()) return orders.status().text() + "\n";
    if (orders->empty()) continue;
    text += fmt::format("evaluation order on rank {}\n", rank);
    for (std::size_t chunk = 0; chunk < orders->size(); ++chunk) {
      text += fmt::format("  output chunk {}: {}\n", chunk, (*orders)[chunk]);
    }
    // verify() has shown that an all_reduce is the same everywhere.
    if (plan.kind == CollectiveKind::kAllReduce) break;
  }
  return text;
}

Text show(const PlanRequest& request) {
  Result<Plan> plan = Status(Cause::kInternal, "no plan");
  if (!request.file.empty()) {
    plan = read_plan(request.file);
  } else {
    const auto kind = kind_of(request.collective, kDirectKinds);
    if (!kind.ok()) return kind.status();
    const std::string algorithm = !request.algorithm.empty()             ? request.algorithm
                                  : *kind == CollectiveKind::kAllReduce ? "two_shot"
                                                                        : "one_shot";
    plan = make_direct_plan(*kind, algorithm, request.ranks, request.root);
  }
  if (!plan.ok()) return plan.status();
  if (request.json) return to_json(*plan);
  const Status verdict = verify(*plan);
  if (!verdict.ok()) return render_text(*plan) + "not valid: " + verdict.text() + "\n";
  return render_text(*plan) + orders_text(*plan) + "verified\n";
}

Text check(const PlanRequest& request) {
  auto plan = read_plan(request.file);
  if (!plan.ok()) return plan.status();
  if (Status verdict = verify(*plan); !verdict.ok()) return verdict.annotated(request.file);
  if (!request.input.file.empty()) {
    const auto topology = load_topology(request.input);
    if (!topology.ok()) return topology.status();
    if (Status s = check_made_for(*plan, *topology); !s.ok()) return s.annotated(request.file);
    if (Status s = check_plannable(*topology); !s.ok()) return s.annotated(request.input.file);
    if (Status s = check_fits(*plan, *topology); !s.ok()) return s.annotated(request.file);
  }
  std::size_t steps = 0;
  for (const auto& of_rank : plan->steps) steps += of_rank.size();
  return fmt::format("{}: OK, {} {} on {} rank{}, {} step{}\n", request.file, name(plan->kind),
                     plan->algorithm, plan->ranks, plan->ranks == 1 ? "" : "s", steps,
                     steps == 1 ? "" : "s");
}

struct Question {
  Topology topology;
  PlanningRequest planning;
};

Result<Question> question(const PlanRequest& request) {
  const auto kind = kind_of(request.collective, kPlannedKinds);
  if (!kind.ok()) return kind.status();
  auto topology = load_known_topology(request.input);
  if (!topology.ok()) return topology.status();
  if (Status s = leave_out(request.without, *topology); !s.ok()) return s;
  if (const auto gpus = topology->of_kind(NodeKind::kGpu).size(); gpus < 2) {
    return Status(
        Cause::kUnsupported,
        fmt::format(
            "{} has {} GPU{}: plans are made for two or more; groups of CPU ranks use direct "
            "plans (topocoll plan show)",
            topology->host.empty() ? "the topology" : topology->host, gpus, gpus == 1 ? "" : "s"));
  }
  return Question{std::move(*topology), {*kind, request.root, request.channels}};
}

Status draw(const PlanRequest& request, const Topology& topology, const PlanningReport& report) {
  const PictureOverlay overlay = picture_of(report);
  if (!request.svg.empty()) {
    if (Status s = write_file(request.svg, render_svg(topology, {}, overlay)); !s.ok()) return s;
  }
  if (!request.html.empty()) {
    if (Status s = write_file(request.html, render_html(topology, check_topology(topology), overlay)); !s.ok()) return s;
  }
  return request.dot.empty() ? Status() : write_file(request.dot, render_dot(topology, {}, overlay));
}

/// Whether the arguments of make, explain, simulate and compare go together.
Status check_question_usage(const PlanRequest& request) {
  if (Status s = kind_of(request.collective, kPlannedKinds).status(); !s.ok()) return s;
  if (is_cluster(request)) {
    if (Status s = check_cluster_usage(request); !s.ok()) return s;
  } else if (!request.topology_output.empty()) {
    return Status(Cause::kInvalidArgument,
                  "--topology-output goes with --nodes and --fabric: topocoll topo import writes "
                  "the file of one machine");
  }
  if (Status s = once({request.input.file, request.file}, "standard input"); !s.ok()) return s;
  return once({request.output, request.topology_output, request.svg, request.html, request.dot,
               request.json ? "-" : ""},
              "standard output, as --json is");
}

Status check_compare_usage(const PlanRequest& request) {
  if (is_cluster(request)) {
    return Status(Cause::kInvalidArgument,
                  "plan compare is for one machine: plan make, explain and simulate take --nodes "
                  "and --fabric, and simulate "
                  "names the fastest plan of a cluster at each size");
  }
  if (request.output == "-") {
    return Status(Cause::kInvalidArgument,
                  "--output names a folder here: - (standard output) cannot take several plans");
  }
  return check_question_usage(request);
}

Text make(const PlanRequest& request, bool in_words) {
  if (is_cluster(request)) return make_cluster_plan(request, in_words);
  const auto asked = question(request);
  if (!asked.ok()) return asked.status();
  auto report = plan_collective(asked->topology, asked->planning);
  if (!report.ok()) return blame(report.status(), request, asked->topology);
  if (request.any_machine) report->plan.topology_fingerprint.clear();
  if (!request.output.empty()) {
    if (Status s = write_file(request.output, to_json(report->plan)); !s.ok()) return s;
    if (!request.any_machine) say_bound_to_machine();
  }
  if (Status s = draw(request, asked->topology, *report); !s.ok()) return s;
  if (prints_file(request)) return std::string();
  if (request.json) return to_json(*report);
  if (in_words) return explain(*report);
  return fmt::format(
      "{} on {} ranks: {} {:.4g} GB/s, bound {}, {:.1f} %{}\n{}\n", name(report->kind),
      report->ranks.size(), report->algorithm, report->plan_gbps,
      bound_text(report->bound_gbps, report->bound), 100 * report->plan_gbps / report->bound_gbps,
      report->bottleneck.empty() ? "" : "; limited by " + report->bottleneck, unit_words(*report));
}

Text simulate(const PlanRequest& request) {
  if (is_cluster(request)) return simulate_cluster_plan(request);
  const auto sizes = parse_sizes(request.sizes);
  if (!sizes.ok()) return sizes.status();
  const auto asked = question(request);
  if (!asked.ok()) return asked.status();
  Plan plan;
  if (request.file.empty()) {
    auto report = plan_collective(asked->topology, asked->planning);
    if (!report.ok()) return blame(report.status(), request, asked->topology);
    plan = std::move(report->plan);
  } else {
    auto read = read_plan(request.file);
    if (!read.ok()) return read.status();
    plan = std::move(*read);
    if (request.collective_given && plan.kind != asked->planning.kind) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("{}: the plan is for {}, and --collective asks for {}: leave it "
                                "out, or give a plan for it",
                                request.file, name(plan.kind), request.collective));
    }
    if (Status s = check_made_for(plan, asked->topology); !s.ok()) return s.annotated(request.file);
  }
  const auto predictions = simulate_plan(asked->topology, plan, *sizes);
  if (!predictions.ok()) return blame(predictions.status(), request, asked->topology);
  if (request.json) {
    auto array = nlohmann::ordered_json::array();
    for (const PlanPrediction& p : *predictions) array.push_back(prediction_json(p));
    return array.dump(1) + "\n";
  }
  std::string text = fmt::format("{} by {}, {} ranks; costs per message are declared, not measured\n{}  busiest link\n",
                                 name(plan.kind), plan.algorithm, plan.ranks, prediction_header());
  for (const PlanPrediction& p : *predictions) {
    text += fmt::format("{}  {} ({:.0f} %)\n", prediction_line(p), p.bottleneck, 100 * p.bottleneck_share);
  }
  return text;
}

/// Makes the folder for the choices, unless TOPOCOLL_PLAN could not name files in it.
Status make_folder(const std::string& folder) {
  if (folder.find(',') != std::string::npos) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("--output {}: a comma separates the files of TOPOCOLL_PLAN, so a "
                              "folder with one in its name "
                              "cannot be given there: choose another name",
                              folder));
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? Status(Cause::kSystem, fmt::format("--output {}: {}", folder, error.message()))
               : Status();
}

/// Writes each choice into the folder; the value of TOPOCOLL_PLAN that makes ranks run them.
Text save_choices(const PlanRequest& request, std::vector<PlanChoice>& choices) {
  std::string files;
  for (PlanChoice& c : choices) {
    if (request.any_machine) c.plan.topology_fingerprint.clear();
    const std::string file = fmt::format("{}/{}_{}_{}.json", request.output, request.collective, c.min_bytes, c.plan.algorithm);
    if (Status s = write_file(file, to_json(c.plan)); !s.ok()) return s;
    files += (files.empty() ? "" : ",") + file;
  }
  if (!request.any_machine) say_bound_to_machine();
  return "TOPOCOLL_PLAN=" + files + "\n";
}

std::string choices_json(const std::vector<PlanChoice>& choices) {
  auto array = nlohmann::ordered_json::array();
  for (const PlanChoice& c : choices) {
    array.push_back({{"min_bytes", c.min_bytes},
                     {"max_bytes", c.max_bytes},
                     {"algorithm", c.plan.algorithm},
                     {"predicted", prediction_json(c.at_most)}});
    if (!c.runner_up) continue;
    array.back()["runner_up"] = {{"algorithm", c.runner_up->algorithm},
                                 {"time_us", c.runner_up->time_us}};
  }
  return array.dump(1) + "\n";
}

/// "16 KiB to 1 MiB", where the next row begins; of the last one "1 MiB or more".
std::string band_text(const PlanChoice& c) {
  if (c.max_bytes == std::numeric_limits<std::uint64_t>::max())
    return exact_size_text(c.min_bytes) + " or more";
  return fmt::format("{} to {}", exact_size_text(c.min_bytes), exact_size_text(c.max_bytes + 1));
}

std::string choices_table(const std::string& collective, const std::vector<PlanChoice>& choices) {
  std::string text = fmt::format(
      "{}: the fastest plan by message size, as simulated, and the next best algorithm; times are "
      "at "
      "the size that \"at\" says\n"
      "{:>22}  {:<24} {:>10} {:>12}  {:<24} {:>12}\n",
      collective, "sizes", "plan", "at", "time us", "next best", "time us");
  for (const PlanChoice& c : choices) {
    text += fmt::format("{:>22}  {:<24} {:>10} {:>12.2f}  ", band_text(c), c.plan.algorithm,
                        exact_size_text(c.at_most.bytes), c.at_most.time_us);
    text += c.runner_up
                ? fmt::format("{:<24} {:>12.2f}\n", c.runner_up->algorithm, c.runner_up->time_us)
                : "none\n";
  }
  return text;
}

Text compare(const PlanRequest& request) {
  if (!request.output.empty()) {
    if (Status s = make_folder(request.output); !s.ok()) return s;
  }
  const auto asked = question(request);
  if (!asked.ok()) return asked.status();
  auto choices = choose_plans(asked->topology, asked->planning);
  if (!choices.ok()) return blame(choices.status(), request, asked->topology);
  Text saved = std::string();
  if (!request.output.empty()) saved = save_choices(request, *choices);
  if (!saved.ok()) return saved.status();
  return request.json ? choices_json(*choices)
                      : choices_table(request.collective, *choices) + *saved;
}

void add_planning_options(CLI::App* command, PlanRequest& request) {
  command->add_option(
      "FILE", request.input.file,
      "a machine in any format that topo import reads; - for standard input; none: this machine, "
      "with what a probe has kept");
  command->add_option("--collective", request.collective, "all_reduce, all_gather, ... (all_reduce)");
  command->add_option("--root", request.root, "root rank, for collectives that have one (0)");
  command->add_option("--channels", request.channels, "rings at most (16)")->check(CLI::Range(1, 64));
  command->add_option("--without", request.without,
                      "a GPU to leave out, by its id; may be given several times");
  command->add_flag("--json", request.json, "print JSON");
}

/// show and check, which take plan files.
void add_plan_files(CLI::App* plan, PlanRequest& request, std::function<Text()>& action) {
  CLI::App* shown = plan->add_subcommand("show", "print a plan file, or the direct plan that is described");
  auto* file = shown->add_option("FILE", request.file, "a plan in JSON; - for standard input");
  shown->add_option("--collective", request.collective, "all_reduce, broadcast, ... (all_reduce)")->excludes(file);
  shown->add_option("--algorithm", request.algorithm, "one_shot or two_shot (two_shot for all_reduce, else one_shot)")->excludes(file);
  shown->add_option("--ranks", request.ranks, "number of ranks (2)")->check(CLI::Range(1, 1024))->excludes(file);
  shown->add_option("--root", request.root, "root rank, for collectives that have one (0)")->excludes(file);
  shown->add_flag("--json", request.json, "print JSON");
  shown->callback([&] {
    require(kind_of(request.collective, kDirectKinds).status());
    action = [&] { return show(request); };
  });

  CLI::App* checked = plan->add_subcommand("check", "prove that a plan file is right, or say where it is not");
  checked->add_option("FILE", request.file, "a plan in JSON; - for standard input")->required();
  checked->add_option("--topology", request.input.file, "a machine: whether the plan was made for it, and fits its links");
  checked->callback([&] {
    require(once({request.file, request.input.file}, "standard input"));
    action = [&] { return check(request); };
  });
}

/// make and explain, which may write files.
void add_making(CLI::App* plan, PlanRequest& request, std::function<Text()>& action) {
  CLI::App* made = plan->add_subcommand("make", "the best plan for a machine, and the bound no plan exceeds");
  add_planning_options(made, request);
  add_cluster_options(made, request);
  made->add_option("-o,--output", request.output,
                   "write the plan itself to this file; - for standard output, without a summary")
      ->check(named());
  made->add_option(
          "--topology-output", request.topology_output,
          "with --nodes: write the machine of all nodes to this file, for plan check and simulate")
      ->check(named());
  made->add_flag("--any-machine", request.any_machine, kAnyMachine);
  made->callback([&] {
    require(check_question_usage(request));
    action = [&] { return make(request, false); };
  });

  CLI::App* explained = plan->add_subcommand("explain", "the same in words: why this plan, and what would help");
  add_planning_options(explained, request);
  explained
      ->add_option(
          "--svg", request.svg,
          "draw the rings or trees over the machine, as SVG, into this file; - for standard "
          "output, without the words")
      ->check(named());
  explained->add_option("--html", request.html, "the same as a page, with details on hovering")
      ->check(named());
  explained->add_option("--dot", request.dot, "the same for GraphViz")->check(named());
  add_cluster_options(explained, request);
  explained->callback([&] {
    require(check_question_usage(request));
    action = [&] { return make(request, true); };
  });
}

}  // namespace

bool prints_file(const PlanRequest& request) {
  const auto files = {request.output, request.topology_output, request.svg, request.html,
                      request.dot};
  return std::count(files.begin(), files.end(), "-") > 0;
}

void add_plan(CLI::App& app, PlanRequest& request, std::function<Result<std::string>()>& action) {
  CLI::App* plan = app.add_subcommand("plan", "who sends what to whom: make, explain, prove, simulate");
  plan->require_subcommand(1);
  plan->footer("Examples:\n"
               "  topocoll plan make node.json --collective all_gather\n"
               "  topocoll plan explain topo.xml --svg plan.svg\n"
               "  topocoll plan make node.json --output plan.json && topocoll plan check plan.json\n"
               "  topocoll plan simulate node.json --plan plan.json --sizes 64k,16M,1G\n"
               "  topocoll plan compare node.json --collective broadcast --root 3\n"
               "  topocoll plan simulate node.json --nodes 2048 --fabric rails.json   (docs/planning.md: fabrics)");

  add_making(plan, request, action);

  CLI::App* simulated = plan->add_subcommand("simulate", "predicted times of a plan on a machine");
  add_planning_options(simulated, request);
  add_cluster_options(simulated, request);
  simulated->add_option("--plan", request.file, "a plan in JSON (the one that make gives)");
  simulated->add_option("--sizes", request.sizes, "message sizes, e.g. 64k,16M,1G")->delimiter(',');
  simulated->callback([&, simulated] {
    request.collective_given = simulated->count("--collective") > 0;
    require(check_question_usage(request));
    require(parse_sizes(request.sizes).status());
    action = [&] { return simulate(request); };
  });

  CLI::App* compared = plan->add_subcommand("compare", "which plan is predicted to win at which size");
  add_planning_options(compared, request);
  compared
      ->add_option(
          "-o,--output", request.output,
          "a folder, made if need be, into which each size's plan is written, for TOPOCOLL_PLAN")
      ->check(named());
  compared->add_flag("--any-machine", request.any_machine, kAnyMachine);
  // Known, so that the answer can say where they go; not offered.
  add_cluster_options(compared, request);
  for (const char* option : {"--nodes", "--fabric"}) compared->get_option(option)->group("");
  compared->callback([&] {
    require(check_compare_usage(request));
    action = [&] { return compare(request); };
  });
  add_plan_files(plan, request, action);
}

}  // namespace topocoll::tools
