#include "probe/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/memory_limit.h"
#include "probe/cpu_link.h"
#include "probe/memory.h"
#include "probe/nic_read.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPairTime{50};
constexpr milliseconds kMemoryTime{100};
constexpr milliseconds kNicTime{20};
constexpr double kSame = 0.25;
constexpr std::size_t kSentinelPairs = 3;

TopologyEdge& edge_of(Topology& topology, const std::string& from, const std::string& to,
                      const char* kind) {
  for (TopologyEdge& edge : topology.edges) {
    if (edge.kind == kind && edge.from == from && edge.to == to) return edge;
  }
  topology.edges.push_back({from, to, kind, {}, {}});
  return topology.edges.back();
}

std::string cpu_id(int cpu) { return fmt::format("cpu:{}", cpu); }

class Measurer {
 public:
  Measurer(Os& os, Topology& topology) : os_(os), topology_(topology) {}

  Status operator()(const CpuPair& pair) {
    const auto link = measure_cpu_link(os_, {pair.a, pair.b}, kPairTime);
    if (!link.ok()) return link.status();
    for (const bool back : {false, true}) {
      const int from = back ? pair.b : pair.a;
      const int to = back ? pair.a : pair.b;
      TopologyEdge& edge = edge_of(topology_, cpu_id(from), cpu_id(to), "coherence");
      edge.latency_ns = link->latency_ns;
      edge.bandwidth_gbps = link->bandwidth_gbps[back ? 1 : 0];
    }
    return {};
  }

  Status operator()(const MemoryRead& read) {
    const std::uint64_t cache = cache_bytes(read.cpus);
    const std::size_t bytes = memory_read_bytes(cache, available_memory_bytes());
    if (bytes == 0) {
      return Status(Cause::kResource, "there is hardly any memory left to read from");
    }
    const auto figure = measure_memory(os_, {read.node, read.cpus, read.local, bytes, kMemoryTime});
    if (!figure.ok()) return figure.status();
    if (bytes < 2 * cache) {
      notes_.insert(fmt::format("{} was read through {} MiB only: caches of {} MiB may have helped",
                                read.from, bytes >> 20, cache >> 20));
    }
    edge_of(topology_, read.from, read.to, "memory").bandwidth_gbps = *figure;
    return {};
  }

  Status operator()(const NicRead& read) {
    const auto figure = measure_nic_read(os_, read, kNicTime);
    // Not missing, whatever the reason: every probe tries ports again that have no figure, and
    // whoever has an earlier one counts what is lost.
    if (figure.ok()) {
      edge_of(topology_, read.from, read.to, "transfer").latency_ns = *figure;
    } else {
      note(figure.status());
    }
    return {};
  }

  void note(const Status& status) { notes_.insert("not measured: " + status.text()); }
  void finish() { topology_.notes.insert(topology_.notes.end(), notes_.begin(), notes_.end()); }

 private:
  /// The last-level caches near these CPUs.
  [[nodiscard]] std::uint64_t cache_bytes(const std::vector<int>& cpus) const {
    int last = 0;
    std::uint64_t bytes = 0;
    for (const TopologyNode* cache : topology_.of_kind(NodeKind::kCache)) {
      const bool near = std::any_of(cache->cpus.begin(), cache->cpus.end(), [&](int cpu) {
        return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end();
      });
      if (!near || cache->level.value_or(0) < last) continue;
      if (cache->level.value_or(0) > last) bytes = 0;
      last = cache->level.value_or(0);
      bytes += cache->size_bytes.value_or(0);
    }
    return bytes;
  }

  Os& os_;
  Topology& topology_;
  std::set<std::string> notes_;
};

bool has_transfer(const Topology& topology, const std::string& from, const std::string& to) {
  return std::any_of(topology.edges.begin(), topology.edges.end(), [&](const TopologyEdge& e) {
    return e.kind == "transfer" && e.from == from && e.to == to;
  });
}

std::string words(const TopologyEdge& edge, const char* what, const Figure& kept,
                  const Figure& fresh, const char* unit = "") {
  return fmt::format("{} of {} → {} ({}) was {:.6g}{} and is {:.6g}{}", what, edge.from, edge.to,
                     edge.kind, *kept.measured, unit, *fresh.measured, unit);
}

}  // namespace

std::vector<ProbeTask> probe_tasks(const Topology& topology, std::mt19937_64& random) {
  std::vector<ProbeTask> leading;
  std::vector<ProbeTask> rest;
  for (const ChosenPair& pair : choose_pairs(topology, random)) {
    (pair.first ? leading : rest).emplace_back(static_cast<const CpuPair&>(pair));
  }
  for (MemoryRead& read : choose_memory(topology, random)) {
    (read.local ? leading : rest).emplace_back(std::move(read));
  }
  for (NicRead& read : choose_nic_reads(topology, random)) leading.emplace_back(std::move(read));
  std::shuffle(leading.begin(), leading.end(), random);
  std::shuffle(rest.begin(), rest.end(), random);
  leading.insert(leading.end(), rest.begin(), rest.end());
  return leading;
}

std::vector<ProbeTask> sentinel_tasks(const Topology& kept, const Topology& machine) {
  std::vector<ProbeTask> tasks;
  std::set<std::string> classes;
  PairClasses classes_of(kept);
  for (const TopologyEdge& edge : kept.edges) {
    if (edge.kind != "coherence" || classes.size() == kSentinelPairs) continue;
    const auto pair = classes_of.of(edge.from, edge.to);
    if (pair && classes.insert(pair->near).second) tasks.emplace_back(*pair);
  }
  for (const TopologyEdge& edge : kept.edges) {
    const TopologyNode* numa = kept.find(edge.from);
    const TopologyNode* reader = kept.find(edge.to);
    if (edge.kind != "memory" || numa == nullptr || reader == nullptr) continue;
    if (reader->kind != NodeKind::kCpu || !numa->os_index || !reader->os_index) continue;
    tasks.emplace_back(MemoryRead{edge.from, *numa->os_index, edge.to, {*reader->os_index}, true});
    break;
  }
  std::mt19937_64 random(0);
  for (const NicRead& read : choose_nic_reads(machine, random)) {
    if (!has_transfer(kept, read.from, read.to)) continue;
    tasks.emplace_back(read);
    break;
  }
  return tasks;
}

std::vector<ProbeTask> unmeasured_ports(const Topology& kept, const Topology& machine) {
  std::mt19937_64 random(0);
  std::set<std::string> known;
  std::vector<ProbeTask> tasks;
  const auto reads = choose_nic_reads(machine, random);
  for (const NicRead& read : reads) {
    if (has_transfer(kept, read.from, read.to)) known.insert(read.to);
  }
  for (const NicRead& read : reads) {
    if (known.insert(read.to).second) tasks.emplace_back(read);
  }
  return tasks;
}

std::size_t lost_ports(const Topology& kept, const Topology& fresh) {
  const auto lost = std::count_if(kept.edges.begin(), kept.edges.end(), [&](const auto& edge) {
    const TopologyNode* port = kept.find(edge.to);
    return edge.kind == "transfer" && port != nullptr && port->kind == NodeKind::kNicPort &&
           !has_transfer(fresh, edge.from, edge.to);
  });
  return static_cast<std::size_t>(lost);
}

std::size_t edges_of(const std::vector<ProbeTask>& tasks) {
  std::size_t edges = 0;
  for (const ProbeTask& task : tasks) edges += std::holds_alternative<CpuPair>(task) ? 2 : 1;
  return edges;
}

std::size_t measure(Os& os, const std::vector<ProbeTask>& tasks, const MeasureRequest& request,
                    Topology& topology) {
  Measurer measurer(os, topology);
  const TimePoint start = os.now();
  std::size_t done = 0;
  std::size_t missing = 0;
  const auto progress = [&] {
    if (request.on_progress)
      request.on_progress(static_cast<int>(done), static_cast<int>(tasks.size()));
  };
  const auto time_left = [&] { return os.now() - start < request.budget; };
  // What the system refuses for good (a CPU, binding memory) is not missing: nobody gets it.
  const auto failed = [&](const Status& s) {
    measurer.note(s);
    if (s.cause() == Cause::kTimeout || s.cause() == Cause::kResource) ++missing;
  };
  std::vector<const ProbeTask*> interrupted;
  for (; done < tasks.size() && time_left(); ++done) {
    progress();
    const Status s = std::visit(measurer, tasks[done]);
    if (s.cause() == Cause::kTimeout)
      interrupted.push_back(&tasks[done]);
    else if (!s.ok())
      failed(s);
  }
  // Who lost a CPU to somebody else has another try, as often as there is time.
  for (std::size_t i = 0; i < interrupted.size(); ++i) {
    const Status s = std::visit(measurer, *interrupted[i]);
    if (s.cause() == Cause::kTimeout && time_left())
      interrupted.push_back(interrupted[i]);
    else if (!s.ok())
      failed(s);
  }
  progress();
  measurer.finish();
  if (done < tasks.size()) {
    topology.notes.push_back(
        fmt::format("{} of {} measurements were left out: the {} ms for them were over",
                    tasks.size() - done, tasks.size(), request.budget.count()));
  }
  return missing + tasks.size() - done;
}

bool contradict(const Figure& a, const Figure& b) {
  if (!a.measured || !b.measured || !a.spread || !b.spread) return false;
  const bool apart = a.spread->high < b.spread->low || b.spread->high < a.spread->low;
  return apart && std::fabs(*a.measured - *b.measured) > kSame * std::min(*a.measured, *b.measured);
}

std::vector<std::string> contradictions(const Topology& kept, const Topology& fresh) {
  std::vector<std::string> found;
  for (const TopologyEdge& now : fresh.edges) {
    if (!is_measurement(now)) continue;
    for (const TopologyEdge& before : kept.edges) {
      if (before.kind != now.kind || before.from != now.from || before.to != now.to) continue;
      if (contradict(before.latency_ns, now.latency_ns)) {
        found.push_back(words(now, "the latency", before.latency_ns, now.latency_ns, " ns"));
      }
      if (contradict(before.bandwidth_gbps, now.bandwidth_gbps)) {
        found.push_back(
            words(now, "the bandwidth", before.bandwidth_gbps, now.bandwidth_gbps, " GB/s"));
      }
      for (const auto& [name, figure] : now.figures) {
        const auto earlier = before.figures.find(name);
        if (earlier == before.figures.end() || !contradict(earlier->second, figure)) continue;
        found.push_back(words(now, name.c_str(), earlier->second, figure));
      }
      if (before.fault.empty() && !now.fault.empty()) {
        found.push_back(
            fmt::format("{} → {} ({}) has a new fault: {}", now.from, now.to, now.kind, now.fault));
      }
    }
  }
  return found;
}

}  // namespace topocoll
