#include "export_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "topocoll/findings.h"
#include "topocoll/topology_formats.h"

namespace topocoll::tools {
namespace {

std::string counted(std::size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

struct Content {
  std::map<std::string, std::size_t> links;  ///< edges of each kind
  std::size_t faults = 0;
  std::set<std::string> findings;  ///< codes

  explicit Content(const Topology& topology) {
    for (const TopologyEdge& edge : topology.edges) {
      if (!is_tree_edge(edge) && !is_measurement(edge)) ++links[edge.kind];
      if (!edge.fault.empty()) ++faults;
    }
    for (const Finding& finding : check_topology(topology)) {
      if (finding.severity != Severity::kInfo) findings.insert(finding.code);
    }
  }
};

}  // namespace

std::string losses(const Topology& topology, const std::string& written) {
  const auto back = import_topology(written, "what was written");
  if (!back.ok()) return fmt::format("everything ({})", back.status().text());
  const Content before(topology);
  Content after(*back);
  std::vector<std::string> lost;
  for (const auto& [kind, count] : before.links) {
    if (count > after.links[kind]) {
      lost.push_back(counted(count - after.links[kind], kind + " edge"));
    }
  }
  if (before.faults > after.faults) lost.push_back(counted(before.faults - after.faults, "fault"));
  std::vector<std::string> codes;
  std::set_difference(before.findings.begin(), before.findings.end(), after.findings.begin(),
                      after.findings.end(), std::back_inserter(codes));
  if (!codes.empty()) lost.push_back(fmt::format("findings {}", fmt::join(codes, ", ")));
  return fmt::format("{}", fmt::join(lost, ", "));
}

}  // namespace topocoll::tools
