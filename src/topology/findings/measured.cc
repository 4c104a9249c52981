// What a probe measured and its like does better.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "topology/findings/median.h"
#include "topology/findings/rules.h"
#include "topology/pair_class.h"

namespace topocoll {
namespace {

constexpr std::size_t kLeastPairs = 4;  ///< of a class, so that its median is not the odd one's
constexpr double kSlowLatency = 1.5;    ///< times the median of the class
constexpr double kSlowMemory = 0.75;    ///< of what the best of its like gives

}  // namespace

void FindingRules::slow_cpu_pairs() {
  std::map<std::pair<std::size_t, std::string>, std::vector<const TopologyEdge*>>
      classes;  // of one host
  PairClasses class_of(topology_);
  for (const TopologyEdge& edge : topology_.edges) {
    if (edge.kind != "coherence" || !edge.latency_ns.measured) continue;
    const auto pair = class_of.of(edge.from, edge.to);
    if (!pair) continue;
    const std::size_t from = tree_.index(edge.from);
    if (node(from).os_index != pair->a) continue;  // the other direction has the same latency
    const std::size_t host = tree_.above(from, NodeKind::kHost);
    classes[{host, pair->near}].push_back(&edge);
  }
  for (const auto& [of, edges] : classes) {
    if (edges.size() < kLeastPairs) continue;
    std::vector<double> all;
    for (const TopologyEdge* edge : edges) all.push_back(*edge->latency_ns.measured);
    const double usual = median(all);
    for (const TopologyEdge* edge : edges) {
      const Figure& latency = edge->latency_ns;
      const double surely = latency.spread ? latency.spread->low : *latency.measured;
      if (surely <= kSlowLatency * usual) continue;
      add({"cpu-pair-slow",
           Severity::kWarning,
           {edge->from, edge->to},
           fmt::format(
               "flags between {} and {} take {:.1f} times as long as between their like ({})",
               edge->from, edge->to, *latency.measured / usual, of.second),
           fmt::format("{:.0f} ns measured, {:.0f} ns the median of {} pairs", *latency.measured,
                       usual, edges.size()),
           {},
           "see what else runs there, and whether a hypervisor shares or moves these CPUs; then: "
           "topocoll topo probe "
           "--no-cache"});
    }
  }
}

void FindingRules::slow_memory() {
  std::map<std::size_t, std::vector<const TopologyEdge*>> alike;  // by the number of CPUs that read
  for (const TopologyEdge& edge : topology_.edges) {
    const std::size_t memory = tree_.index(edge.from);
    if (edge.kind != "memory" || !edge.bandwidth_gbps.measured || memory == TopologyTree::kNone)
      continue;
    const bool together = tree_.index(edge.to) == tree_.parent(memory);
    if (together) alike[node(memory).cpus.size()].push_back(&edge);
  }
  for (const auto& [cpus, edges] : alike) {
    const TopologyEdge& best = **std::max_element(
        edges.begin(), edges.end(), [](const TopologyEdge* a, const TopologyEdge* b) {
          return *a->bandwidth_gbps.measured < *b->bandwidth_gbps.measured;
        });
    for (const TopologyEdge* edge : edges) {
      const Figure& figure = edge->bandwidth_gbps;
      const double surely = figure.spread ? figure.spread->high : *figure.measured;
      if (surely >= kSlowMemory * *best.bandwidth_gbps.measured) continue;
      add({"memory-slow",
           Severity::kWarning,
           {edge->from},
           fmt::format("the memory of {} gives {:.0f} % of what that of {} does", edge->from,
                       100 * *figure.measured / *best.bandwidth_gbps.measured, best.from),
           fmt::format("{:.1f} GB/s measured by {} CPUs, {:.1f} GB/s at {}", *figure.measured, cpus,
                       *best.bandwidth_gbps.measured, best.from),
           100 * (1 - *figure.measured / *best.bandwidth_gbps.measured),
           "see whether memory channels are populated alike (dmidecode -t memory), and what else "
           "runs there"});
    }
  }
}

}  // namespace topocoll
