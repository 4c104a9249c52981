// How a ClusterReport is told: as JSON, and in words.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/plain_text.h"
#include "planner/algbw_words.h"
#include "topocoll/cluster.h"

namespace topocoll {

std::string to_json(const ClusterReport& report) {
  nlohmann::ordered_json json;
  json["topocoll_cluster_plan"] = 1;
  json["collective"] = name(report.kind);
  if (has_root(report.kind)) json["root"] = report.root;
  json["nodes"] = report.nodes;
  json["ranks"] = report.ranks;
  json["gpus"] = report.gpus;
  json["unit"] = "GB/s";
  json["bound"] = report.bound;
  json["bound_gbps"] = report.bound_gbps;
  json["bound_is_exact"] = report.bound_is_exact;
  json["bottleneck"] = report.bottleneck;
  json["algorithm"] = report.algorithm;
  json["plan_gbps"] = report.plan_gbps;
  json["lanes"] = nlohmann::ordered_json::array();
  for (const ClusterLane& lane : report.lanes) {
    json["lanes"].push_back({{"rail", lane.rail},
                             {"exit", lane.exit},
                             {"entrance", lane.entrance},
                             {"share", lane.share}});
  }
  json["candidates"] = nlohmann::ordered_json::array();
  for (const PlanCandidate& c : report.candidates) {
    json["candidates"].push_back(
        {{"algorithm", c.algorithm}, {"gbps", c.gbps}, {"reason", c.reason}});
  }
  return json.dump(1) + "\n";
}

std::string unit_words(const ClusterReport& report) {
  return fmt::format("{}{}", algbw_words(report.kind), fraction_words(report.bound));
}

std::string explain(const ClusterReport& report) {
  std::string text = fmt::format("{} on {} nodes of {} GPUs, {} ranks", name(report.kind),
                                 report.nodes, report.gpus.size(), report.ranks);
  if (has_root(report.kind)) text += fmt::format(", root {}", report.root);
  text += fmt::format(
      "\n\nplan   {:.4g} GB/s by {}\nbound  {:.4g} GB/s ({}), so the plan has {:.1f} % of it\n",
      report.plan_gbps, report.algorithm, report.bound_gbps, report.bound,
      100 * report.plan_gbps / report.bound_gbps);
  text += report.bound_is_exact
              ? "       no plan exceeds it; it is the flat bound of all ranks, exact\n"
              : "       no plan exceeds it; whether one reaches it is not known\n";
  text +=
      fmt::format("       it is set by what passes between {} and the rest\n", report.bottleneck);
  text += fmt::format("       {}\n", unit_words(report));
  text += "\nlanes between nodes\n";
  for (const ClusterLane& lane : report.lanes) {
    text += fmt::format("  rail {}: {} -> {} of the next node, {:.3g} % of the traffic\n",
                        lane.rail, lane.exit, lane.entrance, 100 * lane.share);
  }
  text += "\nwhat was weighed\n";
  for (const PlanCandidate& c : report.candidates) {
    text += c.gbps > 0 ? fmt::format("  {:<24} {:.4g} GB/s  {}\n", c.algorithm, c.gbps, c.reason)
                       : fmt::format("  {:<24} cannot be had: {}\n", c.algorithm, c.reason);
  }
  return plain_text(std::move(text));
}

}  // namespace topocoll
