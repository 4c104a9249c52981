#include "topocoll/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "base/cuda/nvml.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "probe/cache.h"
#include "probe/cuda_bench.h"
#include "probe/gpu_probe.h"
#include "probe/measure.h"
#include "topology/gpu_facts.h"

namespace topocoll {
namespace {

struct Start {
  Topology machine;
  std::string directory;  ///< of kept results; empty: none
  std::optional<Kept> kept;
};

/// The machine and what is known of it. What is wrong with the cache becomes a note.
Result<Start> start(bool use_cache) {
  auto options = Options::from_environment();
  if (!options.ok()) return options.status();
  auto machine = discover_topology();
  if (!machine.ok()) return machine.status();
  if (has_nvidia_gpu(*machine)) {
    const auto gpus = read_nvml();
    if (gpus.ok()) {
      add_gpu_facts(*gpus, *machine);
    } else {
      machine->notes.push_back("nothing is known of GPUs beyond /sys: " + gpus.status().text());
    }
  }
  Start s{std::move(*machine), "", std::nullopt};
  if (!use_cache) return s;
  auto directory = cache_directory(options->cache_dir);
  if (!directory.ok()) {
    if (options->cache_dir) return directory.status();
    s.machine.notes.push_back(directory.status().text());
    return s;
  }
  s.directory = std::move(*directory);
  auto kept = load_kept(s.directory, s.machine);
  if (kept.ok()) {
    s.kept = std::move(*kept);
  } else {
    s.machine.notes.push_back("a kept result is not used: " + kept.status().text());
  }
  return s;
}

enum class Check { kHolds, kContradicted, kUnclear };

/// Somebody else's work takes its part of every figure.
void note_busy_gpus(Topology& machine) {
  constexpr int kBusyPercent = 5;
  for (const TopologyNode* gpu : machine.of_kind(NodeKind::kGpu)) {
    const std::string& used = gpu->attribute("utilization_percent");
    if (std::atoi(used.c_str()) < kBusyPercent) continue;
    machine.notes.push_back(
        fmt::format("{} is in use ({} % of the last second, NVML): it can do more than is measured "
                    "now",
                    gpu->id, used));
  }
}

/// The GPUs that can be measured; what speaks against it is a note.
std::unique_ptr<GpuBench> open_bench(Topology& machine) {
  std::vector<int> numa_nodes;
  for (const TopologyNode* numa : machine.of_kind(NodeKind::kNumaNode)) {
    // One without CPUs is no memory that a rank uses.
    if (numa->os_index && !numa->cpus.empty()) numa_nodes.push_back(*numa->os_index);
  }
  auto opened = open_cuda_bench(Os::real(), numa_nodes);
  if (!opened.ok()) {
    machine.notes.push_back("GPUs are not measured: " + opened.status().text());
    return nullptr;
  }
  add_cuda_facts(opened->devices, machine);
  machine.notes.insert(machine.notes.end(), opened->notes.begin(), opened->notes.end());
  return std::move(opened->bench);
}

/// Whether a few figures are still the same; if they are not, or cannot be had, a note says so.
Check check(Start& begun, const ProbeOptions& options, std::uint64_t seed, GpuBench* bench) {
  const Topology& kept = begun.kept->topology;
  Topology& machine = begun.machine;
  const auto tasks = sentinel_tasks(kept, machine);
  Topology fresh = machine;
  fresh.notes.clear();
  std::size_t missing = measure(Os::real(), tasks, {options.budget, options.on_progress}, fresh);
  // What the system refuses for good is not missing, but no figure either.
  const auto figures = std::count_if(fresh.edges.begin(), fresh.edges.end(), is_measurement);
  if (static_cast<std::size_t>(figures) < edges_of(tasks)) ++missing;
  if (bench != nullptr) missing += measure_gpu_sentinels(Os::real(), *bench, seed, kept, fresh);
  const auto changed = contradictions(kept, fresh);
  for (const std::string& what : changed) {
    log().info("a kept probe no longer holds: {}", what);
    machine.notes.push_back("measured anew: " + what);
  }
  if (!changed.empty()) return Check::kContradicted;
  if (missing == 0 && !tasks.empty()) return Check::kHolds;
  // A sentinel that cannot be measured says nothing for the rest.
  machine.notes.push_back(
      fmt::format("measured anew: an earlier probe ({}) could not be checked{}{}",
                  cache_path(begun.directory, machine), fresh.notes.empty() ? "" : ": ",
                  fmt::join(fresh.notes, "; ")));
  return Check::kUnclear;
}

/// What an earlier probe could not use and this one can.
std::vector<std::string> unmeasured(const Start& begun, const ProbeOptions& options,
                                    const GpuBench* bench) {
  if (!begun.kept) return {};
  const Topology& kept = begun.kept->topology;
  std::vector<std::string> devices;
  if (bench != nullptr) devices = unmeasured_gpus(*bench, kept);
  // Whether a port can be measured shows when it is tried.
  Topology tried = begun.machine;
  measure(Os::real(), unmeasured_ports(kept, tried), {options.budget, {}}, tried);
  for (const TopologyEdge& edge : tried.edges) {
    if (is_measurement(edge)) devices.push_back(edge.to);
  }
  return devices;
}

std::string lacks(const Start& begun) {
  return fmt::format("an earlier probe ({}) lacks {} measurement{}",
                     cache_path(begun.directory, begun.machine), begun.kept->missing,
                     begun.kept->missing == 1 ? "" : "s");
}

/// Figures, and what there was to say of them when they were measured.
void take_over(const Kept& kept, Topology& machine) {
  copy_measurements(kept.topology, machine);
  for (const std::string& note : kept.topology.notes) {
    machine.notes.push_back("when it was measured: " + note);
  }
}

/// Keeps what was measured, unless what is kept has more. Of the notes those from `first_note` on
/// are about measuring; the others are found anew every time.
void keep_fuller(Start& begun, std::size_t missing, std::size_t first_note) {
  Topology& machine = begun.machine;
  if (begun.kept && begun.kept->missing < missing) {
    machine.notes.push_back(
        fmt::format("the result is not kept: it lacks {} measurement{}, and that of an earlier "
                    "probe has more: {}",
                    missing, missing == 1 ? "" : "s", cache_path(begun.directory, machine)));
    return;
  }
  Topology kept = machine;
  kept.notes.erase(kept.notes.begin(),
                   kept.notes.begin() + static_cast<std::ptrdiff_t>(first_note));
  if (Status s = keep(begun.directory, kept, missing); !s.ok()) {
    machine.notes.push_back("the result is not kept: " + s.text());
  }
}

/// Measures the first once more: on a machine that others share, figures may move meanwhile.
void note_drift(const std::vector<ProbeTask>& tasks, Topology& machine) {
  if (tasks.empty()) return;
  Topology again = machine;
  measure(Os::real(), {tasks.front()}, {}, again);
  for (const std::string& what : contradictions(machine, again)) {
    machine.notes.push_back("the machine changed while it was measured: " + what);
  }
}

}  // namespace

Result<Topology> probe_topology(const ProbeOptions& options) {
  auto begun = start(options.use_cache);
  if (!begun.ok()) return begun.status();
  Topology& machine = begun->machine;
  const std::uint64_t seed = options.seed ? *options.seed : std::random_device()();
  const bool has_gpus = has_nvidia_gpu(machine);
  const auto bench = has_gpus && options.gpus ? open_bench(machine) : nullptr;
  if (begun->kept && begun->kept->missing > 0) {
    machine.notes.push_back("measured anew: " + lacks(*begun));
  } else if (const auto devices = unmeasured(*begun, options, bench.get()); !devices.empty()) {
    machine.notes.push_back(fmt::format("measured anew: an earlier probe ({}) could not use {}",
                                        cache_path(begun->directory, machine),
                                        fmt::join(devices, ", ")));
    begun->kept.reset();  // however full it is of the rest
  } else if (begun->kept) {
    switch (check(*begun, options, seed, bench.get())) {
      case Check::kHolds:
        take_over(*begun->kept, machine);
        machine.notes.push_back("measured by an earlier probe, checked now: " +
                                cache_path(begun->directory, machine));
        return std::move(machine);
      case Check::kContradicted:
        begun->kept.reset();  // however full it is, it is wrong
        break;
      case Check::kUnclear:
        break;
    }
  }
  const std::size_t first_note = machine.notes.size();
  std::mt19937_64 random(seed);
  const auto tasks = probe_tasks(machine, random);
  const auto hosts = machine.of_kind(NodeKind::kHost);
  if (!hosts.empty() && hosts.front()->cpus.size() == 1) {
    machine.notes.emplace_back("this process may use one CPU: nothing was measured between CPUs");
  }
  std::size_t missing = measure(Os::real(), tasks, {options.budget, options.on_progress}, machine);
  note_drift(tasks, machine);
  if (bench) {
    note_busy_gpus(machine);
    const auto look = [&machine] {
      if (const auto busy = read_nvml(); busy.ok()) add_busy_links(*busy, machine);
    };
    missing += measure_gpus(Os::real(), *bench,
                            {options.gpu_budget, seed, options.on_progress, look}, machine);
  }
  if (has_gpus && !options.gpus) {
    machine.notes.emplace_back("GPUs were left out, so the result is not kept");
  } else if (!begun->directory.empty()) {
    if (begun->kept) missing += lost_ports(begun->kept->topology, machine);
    keep_fuller(*begun, missing, first_note);
  }
  return std::move(machine);
}

Result<Topology> known_topology() {
  auto begun = start(true);
  if (!begun.ok()) return begun.status();
  if (begun->kept) {
    take_over(*begun->kept, begun->machine);
    if (begun->kept->missing > 0) begun->machine.notes.push_back(lacks(*begun));
  }
  return std::move(begun->machine);
}

}  // namespace topocoll
