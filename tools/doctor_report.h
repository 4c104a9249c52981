// What the doctor found, in the order of triage: environment and limits, the machine, whether
// results are right, how fast they are.
//
// Thread rule: a value. Failure rule: none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "doctor_ranks.h"
#include "topocoll/findings.h"
#include "topocoll/topology.h"

namespace topocoll::tools {

struct DoctorReport {
  std::vector<Finding> environment;
  std::vector<Finding> machine;
  std::vector<Finding> correctness;
  std::vector<Finding> speed;
  /// Why nothing is said of a part, by its name: "machine", "correctness", "speed".
  std::map<std::string, std::string> not_looked_at;
  RanksReport ranks;
  std::string host;
  std::string fingerprint;       ///< of all that discovery sees
  std::string plan_fingerprint;  ///< of what connects what: plans name it
  /// No warning and no error.
  [[nodiscard]] bool healthy() const;
};

/// Sorts what check_topology() finds into limits of the process and faults of the machine.
void add_topology_findings(const Topology& topology, DoctorReport& report);

/// Empty, or why times say nothing of the machine: speed is judged only where each rank has a CPU.
std::string why_speed_is_not_judged(const RanksReport& ranks, const Topology& probed);
/// What the timings say beside what the probe measured on the same CPUs. Nothing where ranks share
/// CPUs: there the time is that of switching between them.
std::vector<Finding> judge_speed(const RanksReport& ranks, const Topology& probed);

std::string render_text(const DoctorReport& report);
std::string to_json(const DoctorReport& report);

}  // namespace topocoll::tools
