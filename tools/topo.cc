#include "topo.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <tuple>
#include <utility>

#include "archive.h"
#include "commands.h"
#include "export_losses.h"
#include "files.h"
#include "progress.h"
#include "topo_input.h"
#include "topocoll/findings.h"
#include "topocoll/planning.h"
#include "topocoll/probe.h"
#include "topocoll/topology.h"
#include "topocoll/topology_formats.h"

namespace topocoll::tools {
namespace {

constexpr const char* kTopoExamples =
    "Examples:\n"
    "  topocoll topo show                             this machine\n"
    "  topocoll topo show --json > node.json          save it\n"
    "  topocoll topo probe                            measure it\n"
    "  topocoll topo check                            what is wrong with it, and how to mend that\n"
    "  topocoll topo diff before.json after.json      what has changed\n"
    "  topocoll topo import topo.xml                  NCCL's or hwloc's XML as topocoll's JSON\n"
    "  topocoll topo COMMAND --help                   what each takes";

constexpr const char* kMatrixExamples =
    "  topocoll topo matrix\n"
    "NV# NVLinks, XGMI, C2C; PIX one PCIe switch, PXB several bridges, PHB one host bridge,\n"
    "NODE one NUMA node, SYS between NUMA nodes, NET between hosts, LNK unknown medium,\n"
    "- nothing is known";
constexpr std::array<std::string_view, 6> kFormats = {"native", "nccl", "hwloc",
                                                      "dot",    "svg",  "html"};

constexpr const char* kOutput = "the file to write; standard output without, or for -";
constexpr const char* kFormatDefault =
    " (of the output's ending json, svg, html or dot; native without one)";

using Text = Result<std::string>;

std::string format_names() { return fmt::format("{}", fmt::join(kFormats, ", ")); }

Text formatted(const Topology& topology, const std::string& format) {
  if (format == "native") return to_json(topology);
  if (format == "nccl") return to_nccl_xml(topology);
  if (format == "hwloc") return to_hwloc_xml(topology);
  if (format == "dot") return render_dot(topology, check_topology(topology));
  if (format == "svg") return render_svg(topology, check_topology(topology));
  return render_html(topology, check_topology(topology));
}

/// By the ending of the file that it goes to.
Result<std::string> format_of(const TopoRequest& request) {
  const auto known = [](std::string_view format) {
    return std::find(kFormats.begin(), kFormats.end(), format) != kFormats.end();
  };
  if (known(request.format)) return request.format;
  if (!request.format.empty()) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("unknown format '{}': {}", request.format, format_names()));
  }
  const std::string ending = std::filesystem::path(request.output).extension().string();
  if (ending.empty() || ending == ".json") return std::string("native");
  for (const std::string format : {"svg", "html", "dot"}) {
    if (ending == "." + format) return format;
  }
  return Status(Cause::kInvalidArgument,
                fmt::format("-o {}: the ending {} names no format: .json, .svg, .html and .dot do; "
                            "or give --format ({})",
                            request.output, ending, format_names()));
}

/// Other programs' formats hold less; what is gone is said, as it is seen nowhere else.
void warn_of_losses(const Topology& topology, const std::string& format, const std::string& text) {
  if (format != "nccl" && format != "hwloc") return;
  const std::string lost = losses(topology, text);
  if (lost.empty()) return;
  const std::string warning = fmt::format("topocoll: warning: {}'s XML has no room for: {}\n",
                                          format == "nccl" ? "NCCL" : format, lost);
  std::fwrite(warning.data(), 1, warning.size(), stderr);
}

Text exported(const TopoRequest& request) {
  const auto topology = load_topology(request.input);
  if (!topology.ok()) return topology.status();
  const auto format = format_of(request);
  if (!format.ok()) return format;
  Text text = formatted(*topology, *format);
  if (!text.ok()) return text;
  warn_of_losses(*topology, *format, *text);
  if (request.output.empty()) return text;
  if (Status s = write_file(request.output, *text); !s.ok()) return s;
  return std::string();
}

Text imported(TopoRequest request) {
  request.format = "native";
  return exported(request);
}

Result<Topology> measured(const TopoRequest& request) {
  ProgressBar bar("measuring");
  ProbeOptions options;
  options.budget = std::chrono::milliseconds(request.budget_ms);
  options.gpu_budget = std::chrono::milliseconds(request.gpu_budget_ms);
  options.gpus = !request.no_gpus;
  options.use_cache = !request.no_cache;
  options.on_progress = [&bar](int done, int total) { bar.show(done, total); };
  return probe_topology(options);
}

Text shown(const TopoRequest& request) {
  const TopoInput& input = request.input;
  const auto topology = request.probe ? measured(request) : load_topology(input);
  if (!topology.ok()) return topology.status();
  return request.json ? to_json(*topology) : render_text(*topology);
}

Text probed(const TopoRequest& request) {
  const auto topology = measured(request);
  if (!topology.ok()) return topology.status();
  if (!request.output.empty()) {
    if (Status s = write_file(request.output, to_json(*topology)); !s.ok()) return s;
    if (!request.json || request.output == "-") return std::string();
  }
  return request.json ? to_json(*topology) : render_text(*topology);
}

Text matrix(const TopoRequest& request) {
  const auto topology = load_known_topology(request.input);
  if (!topology.ok()) return topology.status();
  return request.json ? matrix_to_json(*topology) : render_matrix(*topology);
}

/// Severities in colour where somebody looks.
std::string coloured(std::string text) {
  if (::isatty(STDOUT_FILENO) == 0 || std::getenv("NO_COLOR") != nullptr) return text;
  constexpr std::array<std::pair<const char*, const char*>, 2> kColours = {
      {{"error ", "\033[1;31merror\033[0m "}, {"warning ", "\033[1;33mwarning\033[0m "}}};
  std::string result;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size() - 1) + 1;
    std::string line = text.substr(start, end - start);
    for (const auto& [word, colour] : kColours) {
      if (line.rfind(word, 0) == 0) line = colour + line.substr(std::string(word).size());
    }
    result += line;
    start = end;
  }
  return result;
}

Text checked(TopoRequest& request) {
  const auto topology = load_known_topology(request.input);
  if (!topology.ok()) return topology.status();
  auto findings = check_topology(*topology);
  add_effects(*topology, findings);
  if (any_problem(findings)) request.exit_status = kFoundSomething;
  if (request.json) return to_json(findings);
  if (findings.empty()) return std::string("no findings\n");
  return coloured(render_text(findings));
}

Text compared(TopoRequest& request) {
  const auto before = load_topology({request.files[0], "", ""});
  if (!before.ok()) return before.status();
  const auto after = load_topology({request.files[1], "", ""});
  if (!after.ok()) return after.status();
  const auto differences = diff_topologies(*before, *after);
  if (!differences.empty()) request.exit_status = kFoundSomething;
  return request.json ? to_json(differences) : render_text(differences);
}

Text recorded(const TopoRequest& request) {
  if (!is_archive(request.output)) {
    if (Status s = record_topology(request.output); !s.ok()) return s;
    return std::string();
  }
  auto directory = TemporaryDirectory::create();
  if (!directory.ok()) return directory.status();
  if (Status s = record_topology(directory->path() + "/machine"); !s.ok()) return s;
  if (Status s = pack(directory->path(), "machine", request.output); !s.ok()) return s;
  return std::string();
}

/// Whether the arguments go together.
Status check_usage(const TopoRequest& request) {
  if (Status s = check_input(request.input); !s.ok()) return s;
  if (request.files.size() == 2) {
    if (Status s = once({request.files[0], request.files[1]}, "standard input"); !s.ok()) return s;
  }
  if (request.probe && is_given(request.input)) {
    return Status(Cause::kInvalidArgument, "--probe measures this machine: give no other with it");
  }
  return {};
}

Status check_export(const TopoRequest& request) {
  Status s = check_usage(request);
  return s.ok() ? format_of(request).status() : s;
}

constexpr const char* kThisMachine = "this machine";
constexpr const char* kThisKnownMachine = "this machine, with what a probe has kept of it";

/// Recordings have many files.
CLI::Validator no_stream() {
  return {[](std::string& name) {
            return name != "-" ? std::string()
                               : std::string("a recording is a directory or an archive; - is none");
          },
          ""};
}

void add_input(CLI::App* command, TopoRequest& request, const std::string& otherwise) {
  command->add_option(
      "FILE", request.input.file,
      "a topology: topocoll's JSON, a graph in JSON, NCCL's or hwloc's XML (- for one "
      "on standard input), or a recording; without it, " +
          otherwise);
  command
      ->add_option("--from", request.input.from,
                   "a machine that topo record or hwloc-gather-topology has recorded")
      ->check(no_stream());
  command->add_option("--synthetic", request.input.synthetic,
                      "a hwloc description, as in \"pack:2 core:4 pu:2\"");
}

void add_export_options(CLI::App* command, TopoRequest& request) {
  add_input(command, request, kThisMachine);
  command->add_option("--format", request.format, format_names() + kFormatDefault);
  command->add_option("-o,--output", request.output, kOutput);
}

void add_probe_options(CLI::App* command, TopoRequest& request) {
  command->add_option("-o,--output", request.output,
                      "the file to write as JSON; - for standard output");
  command->add_flag("--no-cache", request.no_cache,
                    "measure everything, and keep nothing for the next time");
  command
      ->add_option("--budget-ms", request.budget_ms,
                   "time after which nothing new is begun of CPUs, memory and RDMA ports (2000)")
      ->check(CLI::Range(1, 600'000));
  command->add_option("--gpu-budget-ms", request.gpu_budget_ms, "the same for GPUs (10000)")
      ->check(CLI::Range(1, 600'000));
  command->add_flag("--no-gpus", request.no_gpus, "measure everything but GPUs");
}

}  // namespace

bool any_problem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.severity != Severity::kInfo; });
}

void add_topo(CLI::App& app, TopoRequest& request, std::function<Result<std::string>()>& action) {
  CLI::App* topo = app.add_subcommand("topo", "machines and what connects their parts");
  topo->require_subcommand(1);
  topo->footer(kTopoExamples);
  const auto add = [&](const char* name, const char* help, const char* examples, auto run,
                       Status (*check)(const TopoRequest&) = check_usage) {
    CLI::App* command = topo->add_subcommand(name, help);
    command->footer(std::string("Examples:\n") + examples);
    command->callback([&action, &request, run, check] {
      require(check(request));
      action = [&request, run] { return run(request); };
    });
    return command;
  };
  const auto as_json = [&](CLI::App* command) {
    command->add_flag("--json", request.json, "print JSON");
    return command;
  };
  CLI::App* show = as_json(add("show", "print this machine, a description or a saved topology",
                               "  topocoll topo show\n  topocoll topo show --probe\n"
                               "  topocoll topo show topo.xml",
                               shown));
  add_input(show, request, kThisMachine);
  show->add_flag("--probe", request.probe, "measure this machine too, as topo probe does");
  add_probe_options(
      as_json(add("probe", "measure this machine: CPUs, memory, RDMA ports and NVIDIA's GPUs",
                  "  topocoll topo probe\n"
                  "  topocoll topo probe --no-cache --output node.json",
                  probed)),
      request);
  add_input(as_json(add("matrix", "which way each GPU and NIC reaches each other", kMatrixExamples,
                        matrix)),
            request, kThisKnownMachine);
  add_input(as_json(add("check", "what is wrong, and how to mend it; exit status 3 if anything is",
                        "  topocoll topo check\n  topocoll topo check --json node.json", checked)),
            request, kThisKnownMachine);
  add_probe_net(*topo, request.probe_net, request.exit_status, action);
  CLI::App* importer = add("import", "any known format to topocoll's JSON",
                           "  topocoll topo import topo.xml > node.json\n"
                           "  lstopo --of xml - | topocoll topo import -",
                           imported);
  importer->add_option("FILE", request.input.file, "the file; - for standard input")->required();
  importer->add_option("-o,--output", request.output, kOutput);
  for (const auto& [name, help, examples] :
       {std::tuple{"export", "in another format, or as a picture",
                   "  topocoll topo export --format nccl node.json > topo.xml\n"
                   "  topocoll topo export -o node.html"},
        std::tuple{"dump", "everything that is known, as JSON; the same as export without --format",
                   "  topocoll topo dump > node.json"}}) {
    add_export_options(add(name, help, examples, exported, check_export), request);
  }
  CLI::App* diff = as_json(add("diff", "what differs between two; exit status 3 if anything does",
                               "  topocoll topo diff before.json after.json", compared));
  diff->add_option("FILES", request.files, "two topologies")->required()->expected(2);
  add("record", "copy what discovery reads here, without names and serial numbers",
      "  topocoll topo record node.tar.bz2\n  topocoll topo show --from node.tar.bz2", recorded)
      ->add_option("OUTPUT", request.output, "a new directory, or a .tar.bz2")
      ->required()
      ->check(no_stream());
}

}  // namespace topocoll::tools
