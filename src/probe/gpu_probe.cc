#include "probe/gpu_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/index.h"
#include "probe/contention.h"
#include "probe/gpu_links.h"
#include "probe/gpu_meter.h"
#include "probe/gpu_places.h"
#include "probe/gpu_ports.h"
#include "probe/measure.h"
#include "probe/statistics.h"
#include "topology/tree.h"

namespace topocoll {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWake{200};
/// For tests of contention, which look for differences of a tenth.
constexpr StopRule kJointRule{3, 15, 0.03, milliseconds(25)};
constexpr double kSameLatency = 1.05;

using Pairs = std::vector<std::pair<int, int>>;

GpuFlow flow(int from, int to, Mover mover = Mover::kStores) {
  return {gpu_at(from), gpu_at(to), mover};
}

class GpuProber {
 public:
  GpuProber(Os& os, GpuBench& bench, const GpuProbeRequest& request, Topology& topology)
      : os_(os),
        bench_(bench),
        request_(request),
        topology_(topology),
        places_(find_places(bench, topology)),
        meter_(os, bench, places_),
        random_(request.seed),
        start_(os.now()) {
    for (std::size_t g = 0; g < places_.gpus.size(); ++g) {
      if (!places_.gpus[g].empty()) gpus_.push_back(static_cast<int>(g));
    }
    for (std::size_t m = 0; m < places_.memories.size(); ++m) {
      if (!places_.memories[m].empty()) memories_.push_back(static_cast<int>(m));
    }
  }

  std::size_t run() {
    if (gpus_.empty()) return finish();
    if (time_left()) wake();
    plan();
    for (; done_ < tasks_.size() && meter_.usable() && time_left(); ++done_) {
      progress();
      tasks_[done_]();
    }
    note_drift();
    progress();
    remove_transfers();
    append_transfers();
    conclusions_.gpus = places_.gpus;
    conclusions_.memories = places_.memories;
    write_gpu_links(conclusions_, topology_);
    return finish();
  }

  std::size_t run_sentinels(const Topology& kept) {
    if (gpus_.empty()) return finish();
    wake();
    std::vector<int> order = gpus_;
    std::shuffle(order.begin(), order.end(), random_);
    for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
      for (const auto& [a, b] : {std::pair(order[i], order[i + 1]), {order[i + 1], order[i]}}) {
        add_sentinel(kept, flow(a, b));
      }
    }
    for (const int m : memories_) add_sentinel(kept, up_flow(order.front(), m));
    for (; done_ < tasks_.size() && meter_.usable(); ++done_) tasks_[done_]();
    append_transfers();
    return finish();
  }

 private:
  // ---- What is to be measured, in the order of its use.

  void plan() {
    Pairs pairs;
    for (const int a : gpus_) {
      for (const int b : gpus_) {
        if (a != b) pairs.emplace_back(a, b);
      }
    }
    Pairs local;
    for (const int g : gpus_) {
      for (const int m : memories_) local.emplace_back(g, m);
    }
    each(pairs, [this](int a, int b) { meter_.verify(a, b); });
    each(pairs, [this](int a, int b) { meter_.carry({flow(a, b)}, nullptr); });
    each(pairs, [this](int a, int b) {
      if (exchanges(a, b)) meter_.delay(gpu_at(a), gpu_at(b), {}, nullptr);
    });
    plan_classes();
    each(local, [this](int g, int m) {
      meter_.carry({up_flow(g, m)}, nullptr);
      meter_.carry({down_flow(g, m)}, nullptr);
      if (!gbps(gpu_at(g), memory_at(m))) copy_memory(g, m);
      meter_.delay(memory_at(m), gpu_at(g), {}, nullptr);
    });
    tasks_.emplace_back([this] { conclude(); });
    plan_rest(pairs, local);
  }

  void plan_rest(const Pairs& pairs, const Pairs& local) {
    each(pairs, [this](int a, int b) { meter_.carry({flow(a, b, Mover::kLoads)}, kLoadsGbps); });
    each(pairs,
         [this](int a, int b) { meter_.carry({flow(a, b, Mover::kCopyEngine)}, kCopyEngineGbps); });
    Pairs once = pairs;
    std::erase_if(once, [](const auto& pair) { return pair.first > pair.second; });
    each(once, [this](int a, int b) { meter_.carry({flow(a, b), flow(b, a)}, kDuplexGbps); });
    each(local, [this](int g, int m) {
      if (by_processors(g, m)) copy_memory(g, m);
      meter_.carry({up_flow(g, m), down_flow(g, m)}, kDuplexGbps);
    });
    each(pairs, [this](int a, int b) {
      if (exchanges(a, b)) meter_.delay(gpu_at(a), gpu_at(b), {flow(a, b)}, kLoadedLatencyNs);
    });
  }

  void copy_memory(int g, int m) {
    meter_.carry({up_flow(g, m, true)}, kCopyEngineGbps);
    meter_.carry({down_flow(g, m, true)}, kCopyEngineGbps);
  }
  [[nodiscard]] bool by_processors(int g, int m) const {
    const TopologyEdge* up = meter_.known(gpu_at(g), memory_at(m));
    return up != nullptr && up->bandwidth_gbps.measured;
  }

  template <class Measure>
  void each(Pairs pairs, Measure measure) {
    std::shuffle(pairs.begin(), pairs.end(), random_);
    for (const auto& [a, b] : pairs) {
      tasks_.emplace_back([measure, a = a, b = b] { measure(a, b); });
    }
  }

  /// GPUs of one model: in round k each of them sends to the one that is k further.
  void plan_classes() {
    std::map<std::string, std::vector<int>> classes;
    for (const int g : gpus_) classes[topology_.find(places_.gpus[at(g)])->label].push_back(g);
    std::vector<std::vector<GpuFlow>> rounds;
    for (const auto& [model, members] : classes) {
      for (std::size_t step = 1; step < members.size(); ++step) {
        auto& flows = rounds.emplace_back();
        for (std::size_t i = 0; i < members.size(); ++i) {
          flows.push_back(flow(members[i], members[(i + step) % members.size()]));
        }
      }
    }
    std::shuffle(rounds.begin(), rounds.end(), random_);
    for (const auto& flows : rounds) {
      tasks_.emplace_back([this, flows] {
        std::vector<GpuFlow> possible = flows;
        std::erase_if(possible, [this](const GpuFlow& f) { return meter_.blocked(f); });
        meter_.carry(possible, kClassGbps);
      });
    }
  }

  void add_sentinel(const Topology& kept, const GpuFlow& of) {
    const std::string& from = places_.id(of.from);
    const std::string& to = places_.id(of.to);
    const auto known = std::find_if(kept.edges.begin(), kept.edges.end(), [&](const auto& edge) {
      return edge.kind == "transfer" && edge.from == from && edge.to == to && edge.fault.empty() &&
             carried_by(edge).measured;
    });
    if (known == kept.edges.end()) return;
    const bool copied = !known->bandwidth_gbps.measured;
    GpuFlow flow = of;
    if (copied) flow.mover = Mover::kCopyEngine;
    tasks_.emplace_back([this, flow, copied] {
      if (flow.to.kind == GpuPlace::Kind::kGpu) meter_.verify(flow.from.index, flow.to.index);
      meter_.carry({flow}, copied ? kCopyEngineGbps : nullptr);
    });
  }

  /// Whether flags may go both ways.
  [[nodiscard]] bool exchanges(int a, int b) const {
    return !meter_.blocked(flow(a, b)) && !meter_.blocked(flow(b, a));
  }

  // ---- What follows from it.

  void conclude() {
    conclusions_.near.assign(places_.gpus.size(), -1);
    for (const int g : gpus_) conclusions_.near[at(g)] = near(g);
    copy_engines_ = std::none_of(gpus_.begin(), gpus_.end(), [this](int g) {
      const int m = conclusions_.near[at(g)];
      return m >= 0 && by_processors(g, m);
    });
    const JointRates rates = [this](const std::vector<GpuFlow>& flows) {
      return joint_rates(flows);
    };
    auto tree = infer_tree(memory_ways(), rates);
    if (tree.ok()) conclusions_.tree = std::move(*tree);
    meter_.judge(tree.status(), "contention on the way to memory");
    cross_memories();
    if (!meter_.usable()) return;
    auto ports = infer_ports(stores_alone(), rates);
    if (ports.ok()) conclusions_.ports = std::move(*ports);
    meter_.judge(ports.status(), "contention between GPUs");
  }

  Result<std::vector<double>> joint_rates(const std::vector<GpuFlow>& flows) {
    if (!time_left()) return Status(Cause::kResource, "the time for measurements was over");
    auto figures = meter_.sample(flows, kJointRule);
    if (!figures.ok()) return figures.status();
    std::vector<double> rates;
    for (const Figure& figure : *figures) rates.push_back(*figure.measured);
    return rates;
  }

  [[nodiscard]] std::optional<double> gbps(GpuPlace from, GpuPlace to) const {
    const TopologyEdge* edge = meter_.known(from, to);
    return edge == nullptr ? std::nullopt : carried_by(*edge).measured;
  }

  /// The memory that a GPU is local to: that of the least latency, among equals what the tree
  /// declares; -1 if none was measured both ways.
  [[nodiscard]] int near(int g) const {
    std::map<int, double> latency;
    double least = 0;
    for (const int m : memories_) {
      if (!gbps(memory_at(m), gpu_at(g)) || !gbps(gpu_at(g), memory_at(m))) continue;
      latency[m] = meter_.known(memory_at(m), gpu_at(g))->latency_ns.measured.value_or(0);
      least = latency.size() == 1 ? latency[m] : std::min(least, latency[m]);
    }
    std::erase_if(latency, [&](const auto& of) { return of.second > kSameLatency * least; });
    const TopologyTree tree(topology_);
    const std::size_t declared = tree.numa_of(tree.index(places_.gpus[at(g)]));
    for (const auto& [m, ns] : latency) {
      if (tree.index(places_.memories[at(m)]) == declared) return m;
    }
    return latency.empty() ? -1 : latency.begin()->first;
  }

  [[nodiscard]] MemoryWays memory_ways() const {
    MemoryWays ways;
    ways.near = conclusions_.near;
    ways.copy_engines = copy_engines_;
    for (int g = 0; g < static_cast<int>(ways.near.size()); ++g) {
      const int m = ways.near[at(g)];
      ways.alone.push_back(
          m < 0 ? Carried()
                : Carried{*gbps(gpu_at(g), memory_at(m)), *gbps(memory_at(m), gpu_at(g))});
    }
    for (const DeclaredBridge& bridge : declared_bridges(topology_, places_.gpus)) {
      ways.declared.push_back(bridge.gpus);
    }
    for (const std::string& id : places_.memories) {
      auto& most = ways.memory_gbps.emplace_back();
      for (const TopologyEdge& edge : topology_.edges) {
        if (edge.kind != "memory" || edge.from != id || !edge.bandwidth_gbps.measured) continue;
        most = std::max(most.value_or(0), *edge.bandwidth_gbps.measured);
      }
    }
    return ways;
  }

  /// From the GPUs near each memory to each other memory that has such.
  void cross_memories() {
    for (const int from : memories_) {
      for (const int to : memories_) {
        std::vector<GpuFlow> flows;
        bool has_gpus = false;
        for (const int g : gpus_) {
          const int near = conclusions_.near[at(g)];
          if (near == from) flows.push_back(up_flow(g, to, copy_engines_));
          has_gpus = has_gpus || near == to;
        }
        if (from == to || flows.empty() || !has_gpus || !meter_.usable()) continue;
        auto each = joint_rates(flows);
        meter_.judge(each.status(), "contention between memories");
        if (!each.ok()) return;
        double sum = 0;
        for (const double rate : *each) sum += rate;
        conclusions_.crossings.push_back({from, to, {{}, sum}});
      }
    }
  }

  [[nodiscard]] std::vector<std::vector<double>> stores_alone() const {
    const std::size_t count = places_.gpus.size();
    std::vector<std::vector<double>> alone(count, std::vector<double>(count, 0));
    for (const int a : gpus_) {
      for (const int b : gpus_) {
        if (a == b || meter_.blocked(flow(a, b))) continue;
        const TopologyEdge* pair = meter_.known(gpu_at(a), gpu_at(b));
        if (pair != nullptr) alone[at(a)][at(b)] = pair->bandwidth_gbps.measured.value_or(0);
      }
    }
    return alone;
  }

  /// Measures one pair and one memory once more: others may share the machine.
  void note_drift() {
    std::vector<GpuFlow> sentinels;
    if (gpus_.size() > 1) sentinels.push_back(flow(gpus_.front(), gpus_.back()));
    if (!memories_.empty()) sentinels.push_back(up_flow(gpus_.front(), memories_.front()));
    for (const GpuFlow& sentinel : sentinels) {
      const TopologyEdge* edge = meter_.known(sentinel.from, sentinel.to);
      if (!meter_.usable() || edge == nullptr || !edge->bandwidth_gbps.measured) continue;
      auto again = meter_.sample({sentinel}, kJointRule);
      meter_.judge(again.status(), edge->from + " → " + edge->to);
      if (!again.ok() || !contradict(edge->bandwidth_gbps, again->front())) continue;
      notes_.push_back(fmt::format(
          "the machine changed while its GPUs were measured: {} → {} had {:.4g} GB/s and has "
          "{:.4g}",
          edge->from, edge->to, *edge->bandwidth_gbps.measured, *again->front().measured));
    }
  }

  // ---- Around it.

  /// Idle links have lowered their speed.
  void wake() {
    const Status s = bench_.under_load(kWake, [this] {
      if (request_.under_load) request_.under_load();
    });
    meter_.judge(s, "GPUs under load");
  }

  [[nodiscard]] bool time_left() { return os_.now() - start_ < request_.budget; }
  void progress() {
    if (!request_.on_progress) return;
    request_.on_progress(static_cast<int>(done_), static_cast<int>(tasks_.size()));
  }

  void remove_transfers() {
    const std::set<std::string> mine(places_.gpus.begin(), places_.gpus.end());
    std::erase_if(topology_.edges, [&](const TopologyEdge& edge) {
      return edge.kind == "transfer" && (mine.contains(edge.from) || mine.contains(edge.to));
    });
  }
  void append_transfers() {
    for (TopologyEdge& edge : meter_.take()) topology_.edges.push_back(std::move(edge));
  }

  std::size_t finish() {
    auto& notes = topology_.notes;
    for (const auto& some : {places_.notes, meter_.notes(), notes_}) {
      notes.insert(notes.end(), some.begin(), some.end());
    }
    const std::size_t left = tasks_.size() - done_;
    if (left > 0) {
      const std::string why =
          meter_.usable() ? fmt::format("the {} ms for them were over", request_.budget.count())
                          : "after a failure nothing more was tried";
      notes.push_back(
          fmt::format("{} of {} measurements of GPUs were left out: {}", left, tasks_.size(), why));
    }
    return meter_.missing() + left;
  }

  Os& os_;
  GpuBench& bench_;
  const GpuProbeRequest& request_;
  Topology& topology_;
  GpuPlaces places_;
  GpuMeter meter_;
  std::mt19937_64 random_;
  TimePoint start_;
  std::vector<int> gpus_;  ///< that are in the topology
  std::vector<int> memories_;
  std::vector<std::function<void()>> tasks_;
  std::size_t done_ = 0;
  GpuConclusions conclusions_;
  bool copy_engines_ = false;  ///< nothing runs on GPUs' processors
  std::vector<std::string> notes_;
};

}  // namespace

std::size_t measure_gpus(Os& os, GpuBench& bench, const GpuProbeRequest& request,
                         Topology& topology) {
  return GpuProber(os, bench, request, topology).run();
}

std::vector<std::string> unmeasured_gpus(const GpuBench& bench, const Topology& kept) {
  std::vector<std::string> ids = find_places(bench, kept).gpus;
  std::erase_if(ids, [&](const std::string& id) {
    return id.empty() || std::any_of(kept.edges.begin(), kept.edges.end(), [&](const auto& edge) {
             return edge.kind == "transfer" && (edge.from == id || edge.to == id);
           });
  });
  return ids;
}

std::size_t measure_gpu_sentinels(Os& os, GpuBench& bench, std::uint64_t seed, const Topology& kept,
                                  Topology& fresh) {
  GpuProbeRequest request;
  request.seed = seed;
  return GpuProber(os, bench, request, fresh).run_sentinels(kept);
}

}  // namespace topocoll
