// Findings: what is wrong with a machine, by its topology alone; and what differs between two.
//
//   for (const Finding& f : topocoll::check_topology(*t)) std::puts(f.text.c_str());
//
// Nothing is measured here: a finding rests on what the system declares, and on figures that are in
// the topology already. Thread rule: free functions on values. Failure rule: what is unknown is no
// finding.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/topology.h"

namespace topocoll {

enum class Severity : std::uint8_t {
  kInfo,     ///< worth knowing; may be as intended
  kWarning,  ///< communication is slower than the hardware allows, or may fail under load
  kError,    ///< a fault
};
/// "info", "warning", "error".
TOPOCOLL_API std::string_view name(Severity severity);

/// What a finding costs a collective.
struct FindingEffect {
  std::string collective;
  double gbps = 0;         ///< 10^9 bytes of the message a second, as the machine is
  double mended_gbps = 0;  ///< with the link of the finding at its maximum
};

struct Finding {
  std::string code;  ///< stable, e.g. "pcie-width"; docs/topology.md lists them
  Severity severity = Severity::kInfo;
  std::vector<std::string> nodes;        ///< what it is about
  std::string text;                      ///< one sentence
  std::string evidence;                  ///< the values it rests on, and where they are from
  std::optional<double> loss_percent{};  ///< of the bandwidth in question
  std::string fix;                       ///< a command, or what to do
  std::vector<FindingEffect> effects{};  ///< see add_effects() of planning.h
};

/// The worst first, then by code and node.
TOPOCOLL_API std::vector<Finding> check_topology(const Topology& topology);
TOPOCOLL_API std::string render_text(const std::vector<Finding>& findings);
TOPOCOLL_API std::string to_json(const std::vector<Finding>& findings);

/// One thing that is in one topology and not, or not so, in the other.
struct TopologyDifference {
  std::string what;    ///< "node", "edge", "group", "note" or "host"
  std::string id;      ///< of the node; "a → b (kind)" of an edge
  std::string field;   ///< empty: the whole thing is there in one of them only
  std::string before;  ///< empty: absent
  std::string after;
};
/// In the order of `before`, then what `after` alone has. Declared figures differ only if they do by
/// more than one part in a thousand; measured ones by more than 5 %, and where both have a Spread,
/// only if the intervals are apart; memory of NUMA nodes by more than 10 %. Attributes that change
/// by themselves (temperature, utilization, free shared memory, the state of an idle link) are not
/// compared.
TOPOCOLL_API std::vector<TopologyDifference> diff_topologies(const Topology& before,
                                                             const Topology& after);
TOPOCOLL_API std::string render_text(const std::vector<TopologyDifference>& differences);
TOPOCOLL_API std::string to_json(const std::vector<TopologyDifference>& differences);

}  // namespace topocoll
