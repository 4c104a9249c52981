// Measure: runs what was chosen and writes the figures into the topology.
//
// Thread rule: one thread; threads of its own measure. Failure rule: what fails is a note, once for
// each reason.
#pragma once

#include <chrono>
#include <functional>
#include <random>
#include <variant>
#include <vector>

#include "base/os.h"
#include "probe/choose.h"
#include "topocoll/topology.h"

namespace topocoll {

using ProbeTask = std::variant<CpuPair, MemoryRead, NicRead>;

/// What leads in importance comes first: one pair of each class, what is read near the memory and
/// by ports, then the rest; each in random order.
std::vector<ProbeTask> probe_tasks(const Topology& topology, std::mt19937_64& random);

/// The few whose figures tell whether a kept result still holds: a pair of each of the first
/// classes that `kept` has figures for, a CPU's reading, and that of a port which is active in `machine`.
std::vector<ProbeTask> sentinel_tasks(const Topology& kept, const Topology& machine);

/// Of each port of `machine` that `kept` has no figure of: it may be active only now.
std::vector<ProbeTask> unmeasured_ports(const Topology& kept, const Topology& machine);

/// How many figures of ports `kept` has that `fresh` has none of: a port that was measured once may
/// be so again.
std::size_t lost_ports(const Topology& kept, const Topology& fresh);

/// How many edges the tasks give if all succeed.
std::size_t edges_of(const std::vector<ProbeTask>& tasks);

struct MeasureRequest {
  std::chrono::milliseconds budget{2000};
  std::function<void(int done, int total)> on_progress;
};

/// Runs the tasks in their order and adds their edges to `topology`. Returns how many are missing
/// that may succeed another time: the time was over, a CPU was busy, or memory was short. Ports
/// that fail are none of them, see unmeasured_ports() and lost_ports().
std::size_t measure(Os& os, const std::vector<ProbeTask>& tasks, const MeasureRequest& request,
                    Topology& topology);

/// Whether two measurements of one thing contradict each other: their intervals are apart, and the
/// medians by more than a quarter.
bool contradict(const Figure& a, const Figure& b);

/// The edges of `fresh` that contradict theirs in `kept`, in words; empty: none.
std::vector<std::string> contradictions(const Topology& kept, const Topology& fresh);

}  // namespace topocoll
