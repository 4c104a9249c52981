#include "plan_cluster.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"
#include "files.h"
#include "plan_words.h"
#include "topocoll/cluster.h"

namespace topocoll::tools {
namespace {

using Text = Result<std::string>;

Result<ClusterReport> planned(const PlanRequest& request) {
  const auto kind = kind_of(request.collective, kPlannedKinds);
  if (!kind.ok()) return kind.status();
  const auto node = load_known_topology(request.input);
  if (!node.ok()) return node.status();
  const auto text = read_file(request.fabric);
  if (!text.ok()) return text.status();
  const auto fabric = fabric_from_json(*text, request.fabric);
  if (!fabric.ok()) return fabric.status();
  return plan_cluster(*node, *fabric,
                      {{*kind, request.root, request.channels}, static_cast<int>(*request.nodes)});
}

std::string summary(const ClusterReport& report) {
  return fmt::format(
      "{} on {} nodes, {} ranks: {} {:.4g} GB/s, bound {}, {:.1f} %; limited by {}\n{}\n",
      name(report.kind), report.nodes, report.ranks, report.algorithm, report.plan_gbps,
      bound_text(report.bound_gbps, report.bound), 100 * report.plan_gbps / report.bound_gbps,
      report.bottleneck, unit_words(report));
}

}  // namespace

void add_cluster_options(CLI::App* command, PlanRequest& request) {
  command->add_option("--nodes", request.nodes,
                      "a cluster of so many machines like FILE; needs --fabric");
  command->add_option(
      "--fabric", request.fabric,
      "how they are connected: a JSON file, which holds e.g. {\"topocoll_fabric\": 1, "
      "\"rails\": 8, \"gbps_per_gpu\": 50}");
}

bool is_cluster(const PlanRequest& request) {
  return request.nodes.has_value() || !request.fabric.empty();
}

Status check_cluster_usage(const PlanRequest& request) {
  const auto bad = [](const std::string& text) { return Status(Cause::kInvalidArgument, text); };
  if (!request.nodes) return bad("--fabric goes with --nodes: how many nodes are there?");
  if (request.fabric.empty()) {
    return bad("--nodes goes with --fabric: a file that says how the nodes are connected");
  }
  if (!request.file.empty()) {
    return bad(
        "--plan is for one machine: clusters are simulated by their own plan; give "
        "the machine of all nodes that plan make --topology-output writes");
  }
  if (*request.nodes < 2 || *request.nodes > kMaxClusterRanks) {
    return bad(fmt::format("--nodes {}: a cluster has 2 nodes or more and {} ranks at most",
                           *request.nodes, kMaxClusterRanks));
  }
  // Nobody could read a picture of thousands of nodes; a missing one must not go unnoticed.
  const std::array<std::pair<const char*, const std::string*>, 3> pictures = {
      {{"--svg", &request.svg}, {"--html", &request.html}, {"--dot", &request.dot}}};
  for (const auto& [option, file] : pictures) {
    if (file->empty()) continue;
    return bad(
        fmt::format("{} draws one machine, and no cluster: leave out {}, or --nodes and "
                    "--fabric for a picture of one node",
                    option, option));
  }
  return once({request.input.file, request.fabric}, "standard input");
}

Text make_cluster_plan(const PlanRequest& request, bool in_words) {
  const auto report = planned(request);
  if (!report.ok()) return report.status();
  if (!request.output.empty()) {
    auto plan = expand(*report);
    if (!plan.ok()) return plan.status();
    if (request.any_machine) plan->topology_fingerprint.clear();
    if (Status s = write_file(request.output, to_json(*plan)); !s.ok()) return s;
    if (!request.any_machine) say_bound_to_machine();
  }
  if (!request.topology_output.empty()) {
    const auto topology = expanded_topology(*report);
    if (!topology.ok()) return topology.status();
    if (Status s = write_file(request.topology_output, to_json(*topology)); !s.ok()) return s;
  }
  if (prints_file(request)) return std::string();
  if (request.json) return to_json(*report);
  return in_words ? explain(*report) : summary(*report);
}

Text simulate_cluster_plan(const PlanRequest& request) {
  const auto sizes = parse_sizes(request.sizes);
  if (!sizes.ok()) return sizes.status();
  const auto report = planned(request);
  if (!report.ok()) return report.status();
  const auto predictions = simulate_cluster(*report, *sizes);
  if (!predictions.ok()) return predictions.status();
  if (request.json) {
    auto json = nlohmann::ordered_json::parse(to_json(*report));
    json["predictions"] = nlohmann::ordered_json::array();
    for (const ClusterPrediction& p : *predictions) {
      auto entry = prediction_json(p.at);
      entry["algorithm"] = p.algorithm;
      json["predictions"].push_back(std::move(entry));
    }
    return json.dump(1) + "\n";
  }
  // Not one algorithm's heading: the rows say which is the fastest where.
  std::string text =
      fmt::format("{} on {} nodes, {} ranks, the fastest plan at each size; bound {} GB/s\n",
                  name(report->kind), report->nodes, report->ranks,
                  bound_text(report->bound_gbps, report->bound)) +
      "costs per message are declared, not measured\n" + prediction_header() +
      "  plan                      busiest link\n";
  for (const ClusterPrediction& p : *predictions) {
    text += fmt::format("{}  {:<24}  {} ({:.0f} %)\n", prediction_line(p.at), p.algorithm,
                        p.at.bottleneck, 100 * p.at.bottleneck_share);
  }
  return text;
}

}  // namespace topocoll::tools
