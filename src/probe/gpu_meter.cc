#include "probe/gpu_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace topocoll {
namespace {

constexpr StopRule kRule{6, 99, 0.03, std::chrono::milliseconds(50)};
/// As many as there are places for flags that a bench takes turns over (cuda_rig.cc).
constexpr StopRule kLatencyRule{16, 99, 0.03, std::chrono::milliseconds(50)};
constexpr std::array kMovers = {Mover::kStores, Mover::kLoads, Mover::kCopyEngine};

const char* name_of(Mover mover) {
  switch (mover) {
    case Mover::kStores:
      return "stores";
    case Mover::kLoads:
      return "loads";
    case Mover::kCopyEngine:
      return "copy engine";
  }
  return "?";
}

}  // namespace

void GpuMeter::verify(int from, int to) {
  for (const Mover mover : kMovers) {
    const GpuFlow flow{gpu_at(from), gpu_at(to), mover};
    auto wrong = bench_.verify(flow);
    if (!wrong.ok()) {
      if (wrong.status().cause() == Cause::kUnsupported) impossible_.insert({from, to, mover});
      judge(wrong.status(), words(flow));
      if (!usable()) return;
    } else if (!wrong->empty()) {
      std::string& fault = transfer(flow.from, flow.to).fault;
      fault += fmt::format("{}{}: {}", fault.empty() ? "" : "; ", name_of(mover), *wrong);
    }
  }
}

void GpuMeter::carry(const std::vector<GpuFlow>& flows, const char* figure) {
  const auto is_blocked = [this](const GpuFlow& flow) { return blocked(flow); };
  if (!usable() || flows.empty() || std::any_of(flows.begin(), flows.end(), is_blocked)) return;
  auto rates = sample(flows, kRule);
  if (!rates.ok()) return judge(rates.status(), words(flows.front()));
  for (std::size_t i = 0; i < flows.size(); ++i) {
    TopologyEdge& edge = transfer(flows[i].from, flows[i].to);
    (figure == nullptr ? edge.bandwidth_gbps : edge.figures[figure]) = (*rates)[i];
  }
}

void GpuMeter::delay(GpuPlace from, GpuPlace to, const std::vector<GpuFlow>& load,
                     const char* figure) {
  if (!usable()) return;
  Sampler sampler(os_, kLatencyRule);
  while (!sampler.done()) {
    auto ns = bench_.latency_ns(from, to, load);
    if (!ns.ok()) {
      return judge(ns.status(), places_.id(from) + " → " + places_.id(to) + ", latency");
    }
    sampler.add(*ns);
  }
  TopologyEdge& edge = transfer(from, to);
  (figure == nullptr ? edge.latency_ns : edge.figures[figure]) = sampler.take(Better::kLower);
}

Result<std::vector<Figure>> GpuMeter::sample(const std::vector<GpuFlow>& flows, StopRule rule) {
  std::vector<Sampler> samplers(flows.size(), Sampler(os_, rule));
  const auto is_open = [](Sampler& sampler) { return !sampler.done(); };
  // Every one is asked each time: that starts its clock.
  while (std::count_if(samplers.begin(), samplers.end(), is_open) > 0) {
    auto rates = bench_.move(flows);
    if (!rates.ok()) return rates.status();
    for (std::size_t i = 0; i < flows.size(); ++i) samplers[i].add((*rates)[i]);
  }
  std::vector<Figure> figures;
  for (Sampler& sampler : samplers) figures.push_back(sampler.take(Better::kHigher));
  return figures;
}

bool GpuMeter::blocked(const GpuFlow& flow) const {
  if (flow.from.kind != flow.to.kind) return false;
  const TopologyEdge* edge = known(flow.from, flow.to);
  return impossible_.contains({flow.from.index, flow.to.index, flow.mover}) ||
         (edge != nullptr && !edge->fault.empty());
}

const TopologyEdge* GpuMeter::known(GpuPlace from, GpuPlace to) const {
  const auto found = transfers_.find(ends(from, to));
  return found == transfers_.end() ? nullptr : &found->second;
}

std::vector<TopologyEdge> GpuMeter::take() {
  std::vector<TopologyEdge> edges;
  for (auto& [of, edge] : transfers_) edges.push_back(std::move(edge));
  transfers_.clear();
  return edges;
}

/// After a timeout or an error of the system the bench is of no more use.
void GpuMeter::judge(const Status& s, const std::string& what) {
  if (s.ok()) return;
  const bool dead = s.cause() == Cause::kTimeout || s.cause() == Cause::kSystem;
  if (dead) dead_ = s;
  if (dead || s.cause() == Cause::kResource) ++missing_;
  auto& [first, count] = failures_[s.text()];
  if (count++ == 0) first = what;
}

std::vector<std::string> GpuMeter::notes() const {
  std::vector<std::string> notes;
  for (const auto& [text, what] : failures_) {
    const std::string more = what.second > 1 ? fmt::format(" and {} more", what.second - 1) : "";
    notes.push_back(fmt::format("not measured: {} ({}{})", text, what.first, more));
  }
  return notes;
}

TopologyEdge& GpuMeter::transfer(GpuPlace from, GpuPlace to) {
  TopologyEdge& edge = transfers_[ends(from, to)];
  if (edge.kind.empty()) edge = {places_.id(from), places_.id(to), "transfer", {}, {}};
  return edge;
}

std::string GpuMeter::words(const GpuFlow& flow) const {
  return fmt::format("{} → {}, {}", places_.id(flow.from), places_.id(flow.to),
                     name_of(flow.mover));
}

}  // namespace topocoll
