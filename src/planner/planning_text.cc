// How a PlanningReport is told: as JSON, and in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/plain_text.h"
#include "planner/algbw_words.h"
#include "topocoll/planning.h"

namespace topocoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 8;  ///< lines of a kind in words; JSON has all

Json edges_json(const PlannedTree& tree) {
  Json edges = Json::array();
  for (const auto& [from, to] : tree.edges) edges.push_back({from, to});
  return edges;
}

Json ring_json(const PlannedRing& ring) {
  Json json = {{"order", ring.order}, {"gbps", ring.gbps}};
  if (ring.slowest_hop_ns) json["slowest_hop_ns"] = *ring.slowest_hop_ns;
  if (ring.turn_ns) json["turn_ns"] = *ring.turn_ns;
  return json;
}

/// "; slowest hop 300 ns, a turn 2400 ns", or nothing where it is not known.
std::string skew_words(const PlannedRing& ring) {
  if (!ring.slowest_hop_ns || !ring.turn_ns) return "";
  return fmt::format("; slowest hop {:.4g} ns, a turn {:.5g} ns", *ring.slowest_hop_ns, *ring.turn_ns);
}

std::string rest(std::size_t all) {
  return all > kShown ? fmt::format("  ... and {} more (--json has all)\n", all - kShown) : "";
}

}  // namespace

std::string to_json(const PlanningReport& report) {
  Json json;
  json["topocoll_planning"] = 1;
  json["collective"] = name(report.kind);
  if (has_root(report.kind)) json["root"] = report.ranks.at(static_cast<std::size_t>(report.root));
  json["ranks"] = report.ranks;
  json["unit"] = "GB/s";
  json["bound"] = report.bound;
  json["bound_gbps"] = report.bound_gbps;
  json["bound_is_reached"] = report.bound_is_reached;
  json["bottleneck"] = report.bottleneck;
  json["algorithm"] = report.algorithm;
  json["plan_gbps"] = report.plan_gbps;
  if (report.link_gbps > 0) json["link_gbps"] = report.link_gbps;
  json["fingerprint"] = report.fingerprint;
  json["declared_links"] = report.declared_links;
  json["measured_links"] = report.measured_links;
  json["trees"] = Json::array();
  for (const PlannedTree& tree : report.trees) {
    json["trees"].push_back({{"root", tree.root},
                             {"gbps", tree.gbps},
                             {"toward_root", tree.toward_root},
                             {"edges", edges_json(tree)}});
  }
  json["rings"] = Json::array();
  for (const PlannedRing& ring : report.rings) {
    json["rings"].push_back(ring_json(ring));
  }
  if (report.listed_ring) json["listed_ring"] = ring_json(*report.listed_ring);
  json["candidates"] = Json::array();
  for (const PlanCandidate& c : report.candidates) {
    json["candidates"].push_back({{"algorithm", c.algorithm}, {"gbps", c.gbps}, {"reason", c.reason}});
  }
  json["wishes"] = Json::array();
  for (const PlanningWish& wish : report.wishes) {
    json["wishes"].push_back({{"from", wish.from},
                              {"to", wish.to},
                              {"both_ways", wish.both_ways},
                              {"bound_gbps", wish.bound_gbps}});
  }
  return json.dump(1) + "\n";
}

std::string unit_words(const PlanningReport& report) {
  const std::string link =
      report.link_gbps > 0 ? fmt::format("; the busiest link carries {:.4g} GB/s", report.link_gbps)
                           : "";
  return fmt::format("{}{}{}", algbw_words(report.kind), link, fraction_words(report.bound));
}

std::string explain(const PlanningReport& report) {
  std::string text = fmt::format("{} on {} ranks", name(report.kind), report.ranks.size());
  if (has_root(report.kind)) {
    text += fmt::format(", root {}", report.ranks.at(static_cast<std::size_t>(report.root)));
  }
  text += fmt::format("\n\nplan   {:.4g} GB/s by {}\nbound  {:.4g} GB/s ({}), so the plan has {:.1f} % of it\n",
                      report.plan_gbps, report.algorithm, report.bound_gbps, report.bound,
                      100 * report.plan_gbps / report.bound_gbps);
  text += report.bound_is_reached ? "       no plan exceeds it, and one without rounding reaches it\n"
                                  : "       no plan exceeds it; whether one reaches it is not known\n";
  if (!report.bottleneck.empty()) {
    text += fmt::format("       it is set by {}\n", report.bottleneck);
  }
  text += fmt::format("       {} link capacities are measured, {} declared by the system\n", report.measured_links,
                      report.declared_links);
  text += fmt::format("       {}\n", unit_words(report));
  if (!report.rings.empty()) {
    text += "\nrings, in sending order\n";
    for (std::size_t i = 0; i < std::min(kShown, report.rings.size()); ++i) {
      const PlannedRing& ring = report.rings[i];
      text += fmt::format("  {:.4g} GB/s  {} -> {}{}\n", ring.gbps, fmt::join(ring.order, " -> "), ring.order.front(),
                          skew_words(ring));
    }
    text += rest(report.rings.size());
    if (report.listed_ring) {
      text += fmt::format("  in the order in which the machine lists its GPUs: {:.4g} GB/s{}\n", report.listed_ring->gbps,
                          skew_words(*report.listed_ring));
    }
  }
  if (!report.trees.empty()) {
    text += "\ntrees\n";
    for (std::size_t i = 0; i < std::min(kShown, report.trees.size()); ++i) {
      const PlannedTree& tree = report.trees[i];
      text += fmt::format("  {:.4g} GB/s  {} {}:", tree.gbps, tree.toward_root ? "into" : "from", tree.root);
      for (const auto& [from, to] : tree.edges) text += fmt::format(" {}->{}", from, to);
      text += '\n';
    }
    text += rest(report.trees.size());
  }
  text += "\nwhat was weighed\n";
  for (const PlanCandidate& c : report.candidates) {
    text += c.gbps > 0 ? fmt::format("  {:<8} {:.4g} GB/s  {}\n", c.algorithm, c.gbps, c.reason)
                       : fmt::format("  {:<8} cannot be had: {}\n", c.algorithm, c.reason);
  }
  text += "\nwhat would help\n";
  if (!report.wishes_asked) {
    text += "  not asked among so many ranks\n";
  } else if (report.bottleneck.empty()) {
    text += "  not known, as what sets the bound is not\n";
  } else if (report.wishes.empty()) {
    text += "  no single link, nor both directions of one: the bound rests on several at once\n";
  }
  for (std::size_t i = 0; i < std::min(kShown, report.wishes.size()); ++i) {
    const PlanningWish& wish = report.wishes[i];
    text += fmt::format("  {} {} {} twice as wide{}: bound {:.4g} GB/s\n", wish.from,
                        wish.both_ways ? "<->" : "->", wish.to, wish.both_ways ? ", both ways" : "",
                        wish.bound_gbps);
  }
  return plain_text(text + rest(report.wishes.size()));
}

}  // namespace topocoll
