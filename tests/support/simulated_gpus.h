// SimulatedGpus: a machine of GPUs, memories and links with capacities, in the place of a GpuBench.
// Flows share links max-min fairly; every call moves the clock on.
//
//   FaultOs os;
//   os.set_clock(TimePoint{});
//   SimulatedGpus bench(os);
//   const int host = bench.add_switch(-1, 0, 0);
//   const int port = bench.add_switch(host, 25, 25);  // 25 GB/s up and down
//   bench.add_gpu(port, 25, 25);
//   bench.add_memory(host, 0, 300);
//
// Thread rule: one thread. Failure rule: calls fail as the test says.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "probe/gpu_bench.h"
#include "support/fault_os.h"

namespace topocoll::testing {

class SimulatedGpus : public GpuBench {
 public:
  explicit SimulatedGpus(FaultOs& os) : os_(&os) {}

  /// A place in the tree; GB/s of the link above it, to and from `above` (-1: the root).
  int add_switch(int above, double up_gbps, double down_gbps) {
    places_.push_back({above, link(up_gbps), link(down_gbps)});
    return static_cast<int>(places_.size()) - 1;
  }
  /// Another width of the link above a place.
  void widen(int place, double up_gbps, double down_gbps) {
    Place& p = places_[static_cast<std::size_t>(place)];
    p.up = link(up_gbps);
    p.down = link(down_gbps);
  }
  int add_gpu(int above, double up_gbps, double down_gbps) {
    const auto number = gpus_.size();
    gpus_.push_back({"0000:" + hex(number + 1) + ":00.0", "GPU-" + std::to_string(number)});
    gpu_places_.push_back(add_switch(above, up_gbps, down_gbps));
    return static_cast<int>(number);
  }
  /// `gbps`: what it gives, and what it takes.
  int add_memory(int above, int os_index, double gbps) {
    numa_.push_back(os_index);
    memory_places_.push_back(add_switch(above, gbps, gbps));
    return static_cast<int>(numa_.size()) - 1;
  }
  /// A link between two GPUs, which their transfers take; GB/s one way.
  void add_direct(int from, int to, double gbps) { direct_[{from, to}] = {link(gbps)}; }
  /// All GPUs at an NVSwitch; GB/s out of each and into each.
  void add_nvswitch(double gbps) {
    std::vector<int> out;
    std::vector<int> in;
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      out.push_back(link(gbps));
      in.push_back(link(gbps));
    }
    for (std::size_t a = 0; a < gpus_.size(); ++a) {
      for (std::size_t b = 0; b < gpus_.size(); ++b) {
        if (a != b) direct_[{static_cast<int>(a), static_cast<int>(b)}] = {out[a], in[b]};
      }
    }
  }
  /// One more link on the way between two GPUs.
  void narrow(int from, int to, double gbps) { direct_[{from, to}].push_back(link(gbps)); }
  /// Nothing runs on GPUs' processors: copy engines are all there is.
  void set_engines_only() { engines_only_ = true; }
  void set_unsupported(int from, int to) { unsupported_.push_back({from, to}); }
  void set_fault(int from, int to, Mover mover, std::string text) {
    faults_.push_back({{from, to}, mover, std::move(text)});
  }
  /// Every call from number `call` on, counted from 1, fails so.
  void fail_from(int call, Status status) { failure_ = {call, std::move(status)}; }
  /// Standard deviation of every sample, as a share of it.
  void set_noise(double sigma, std::uint64_t seed) {
    noise_ = sigma;
    state_ = seed * 0x9e3779b97f4a7c15U + 0x2545f4914f6cdd1dU;
  }
  /// Every rate from call number `call` on is `factor` times what it was.
  void drift_from(int call, double factor) { drift_ = {call, factor}; }
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] int moves() const { return moves_; }

  [[nodiscard]] const std::vector<BenchGpu>& gpus() const override { return gpus_; }
  [[nodiscard]] const std::vector<int>& numa_nodes() const override { return numa_; }

  Result<std::vector<double>> move(const std::vector<GpuFlow>& flows) override {
    ++moves_;
    if (Status s = call(std::chrono::microseconds(3000)); !s.ok()) return s;
    std::vector<std::vector<int>> ways;
    for (const GpuFlow& flow : flows) {
      if (!supports(flow)) return no_way();
      ways.push_back(way(flow.from, flow.to));
    }
    std::vector<double> rates = fair(ways);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      rates[i] *= share(flows[i]) * noisy();
      if (calls_ >= drift_.first) rates[i] *= drift_.second;
    }
    return rates;
  }

  Result<double> latency_ns(GpuPlace from, GpuPlace to, const std::vector<GpuFlow>& load) override {
    if (Status s = call(std::chrono::microseconds(500)); !s.ok()) return s;
    if (!supports({from, to, Mover::kStores})) return no_way();
    return (500 + 200.0 * static_cast<double>(way(from, to).size())) * noisy() *
           (load.empty() ? 1 : 3);
  }

  Result<std::string> verify(const GpuFlow& flow) override {
    if (Status s = call(std::chrono::microseconds(500)); !s.ok()) return s;
    if (!supports(flow)) return no_way();
    for (const Fault& fault : faults_) {
      if (fault.ends == std::pair(flow.from.index, flow.to.index) && fault.mover == flow.mover) {
        return fault.text;
      }
    }
    return std::string();
  }

  Status under_load(std::chrono::milliseconds time, const std::function<void()>& look) override {
    if (Status s = call(time); !s.ok()) return s;
    look();
    return Status();
  }

 private:
  struct Place {
    int above;
    int up;  ///< indices of links
    int down;
  };
  struct Fault {
    std::pair<int, int> ends;
    Mover mover;
    std::string text;
  };

  static std::string hex(std::size_t number) {
    constexpr const char* kDigits = "0123456789abcdef";
    return {kDigits[number / 16 % 16], kDigits[number % 16]};
  }
  int link(double gbps) {
    capacities_.push_back(gbps > 0 ? gbps : std::numeric_limits<double>::infinity());
    return static_cast<int>(capacities_.size()) - 1;
  }
  Status call(std::chrono::microseconds time) {
    ++calls_;
    os_->advance(time);
    if (failure_ && calls_ >= failure_->first) return failure_->second;
    return Status();
  }
  static bool between_gpus(GpuPlace from, GpuPlace to) {
    return from.kind == GpuPlace::Kind::kGpu && to.kind == GpuPlace::Kind::kGpu;
  }
  [[nodiscard]] bool supports(const GpuFlow& flow) const {
    if (engines_only_ && flow.mover != Mover::kCopyEngine) return false;
    return !between_gpus(flow.from, flow.to) ||
           std::find(unsupported_.begin(), unsupported_.end(),
                     std::pair(flow.from.index, flow.to.index)) == unsupported_.end();
  }
  static Status no_way() {
    return Status(Cause::kUnsupported, "peer access is not supported between the two");
  }
  [[nodiscard]] int place(GpuPlace end) const {
    const auto& places = end.kind == GpuPlace::Kind::kGpu ? gpu_places_ : memory_places_;
    return places[static_cast<std::size_t>(end.index)];
  }
  /// The links from one end to the other: up to where the ways to the root meet, and down.
  [[nodiscard]] std::vector<int> way(GpuPlace from, GpuPlace to) const {
    if (between_gpus(from, to)) {
      const auto found = direct_.find({from.index, to.index});
      if (found != direct_.end()) return found->second;
    }
    const auto path = [&](int start) {
      std::vector<int> up;
      for (int p = start; p >= 0; p = places_[static_cast<std::size_t>(p)].above) up.push_back(p);
      return up;
    };
    std::vector<int> up = path(place(from));
    std::vector<int> down = path(place(to));
    while (!up.empty() && !down.empty() && up.back() == down.back()) up.pop_back(), down.pop_back();
    std::vector<int> links;
    for (const int p : up) links.push_back(places_[static_cast<std::size_t>(p)].up);
    for (const int p : down) links.push_back(places_[static_cast<std::size_t>(p)].down);
    return links;
  }
  /// Raises all rates together; flows over a link that is full stay where they are.
  [[nodiscard]] std::vector<double> fair(const std::vector<std::vector<int>>& ways) const {
    std::vector<double> rates(ways.size(), 0);
    std::vector<bool> fixed(ways.size(), false);
    std::vector<double> left = capacities_;
    for (std::size_t open = ways.size(); open > 0;) {
      std::vector<int> users(left.size(), 0);
      for (std::size_t f = 0; f < ways.size(); ++f) {
        for (const int l : ways[f]) users[static_cast<std::size_t>(l)] += fixed[f] ? 0 : 1;
      }
      std::size_t full = 0;
      double step = std::numeric_limits<double>::infinity();
      for (std::size_t l = 0; l < left.size(); ++l) {
        if (users[l] > 0 && left[l] / users[l] < step) step = left[l] / users[l], full = l;
      }
      for (std::size_t f = 0; f < ways.size(); ++f) {
        if (fixed[f]) continue;
        rates[f] += step;
        for (const int l : ways[f]) left[static_cast<std::size_t>(l)] -= step;
      }
      for (std::size_t f = 0; f < ways.size(); ++f) {
        const bool stops =
            std::find(ways[f].begin(), ways[f].end(), static_cast<int>(full)) != ways[f].end();
        if (!fixed[f] && stops) fixed[f] = true, --open;
      }
    }
    return rates;
  }
  static double share(const GpuFlow& flow) {
    if (!between_gpus(flow.from, flow.to)) return 1;
    return flow.mover == Mover::kLoads ? 0.9 : flow.mover == Mover::kStores ? 0.95 : 1;
  }
  double uniform() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }
  double noisy() {
    if (noise_ <= 0) return 1;
    double total = -6;  // of twelve: close to normal, and no further out than six deviations
    for (int i = 0; i < 12; ++i) total += uniform();
    return 1 + noise_ * total;
  }

  FaultOs* os_;
  std::vector<Place> places_;
  std::vector<double> capacities_;
  std::vector<BenchGpu> gpus_;
  std::vector<int> gpu_places_;
  std::vector<int> numa_;
  std::vector<int> memory_places_;
  std::map<std::pair<int, int>, std::vector<int>> direct_;
  std::vector<std::pair<int, int>> unsupported_;
  std::vector<Fault> faults_;
  std::optional<std::pair<int, Status>> failure_;
  std::pair<int, double> drift_{std::numeric_limits<int>::max(), 1};
  bool engines_only_ = false;
  double noise_ = 0;
  std::uint64_t state_ = 1;
  int calls_ = 0;
  int moves_ = 0;
};

/// Four GPUs in pairs below two switches that share one way to the host, and two at the host itself.
inline void build_nested_switches(SimulatedGpus& bench) {
  const int host = bench.add_switch(-1, 0, 0);
  bench.add_memory(host, 0, 500);
  const int far = bench.add_switch(host, 40, 40);
  for (int i = 0; i < 2; ++i) {
    const int port = bench.add_switch(far, 25, 25);
    for (int gpu = 0; gpu < 2; ++gpu) bench.add_gpu(port, 25, 25);
  }
  for (int gpu = 0; gpu < 2; ++gpu) bench.add_gpu(host, 25, 25);
}

}  // namespace topocoll::testing
