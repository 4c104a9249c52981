// GpuMeter: takes series of samples from a GpuBench and keeps their figures as "transfer" edges.
//
// It knows which ways there are not and which change data, and measures neither. Thread rule: one
// thread. Failure rule: what fails is remembered, once for each reason; after a failure that the
// bench does not survive nothing more is done.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/os.h"
#include "probe/gpu_bench.h"
#include "probe/gpu_places.h"
#include "probe/statistics.h"
#include "topocoll/topology.h"

namespace topocoll {

class GpuMeter {
 public:
  GpuMeter(Os& os, GpuBench& bench, const GpuPlaces& places)
      : os_(os), bench_(bench), places_(places) {}

  /// Sends patterns from one GPU to another by all movers; what is wrong becomes the way's fault.
  void verify(int from, int to);
  /// Lets the flows run at once and keeps what each carries as `figure`; null: as bandwidth.
  /// Nothing happens if one of them is blocked.
  void carry(const std::vector<GpuFlow>& flows, const char* figure);
  /// Keeps the latency as `figure`; null: as latency.
  void delay(GpuPlace from, GpuPlace to, const std::vector<GpuFlow>& load, const char* figure);
  /// What each flow carries while all of them run.
  Result<std::vector<Figure>> sample(const std::vector<GpuFlow>& flows, StopRule rule);

  /// There is no such way between GPUs, or it changes data.
  [[nodiscard]] bool blocked(const GpuFlow& flow) const;
  /// What is known so far; null: nothing.
  [[nodiscard]] const TopologyEdge* known(GpuPlace from, GpuPlace to) const;
  /// All that is known, GPUs before memories; the meter forgets it.
  std::vector<TopologyEdge> take();

  /// What a failure means for the rest; `what` failed.
  void judge(const Status& s, const std::string& what);
  [[nodiscard]] bool usable() const { return dead_.ok(); }
  /// Failures that another time may not see.
  [[nodiscard]] std::size_t missing() const { return missing_; }
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  using Ends = std::pair<std::pair<GpuPlace::Kind, int>, std::pair<GpuPlace::Kind, int>>;

  static Ends ends(GpuPlace from, GpuPlace to) {
    return {{from.kind, from.index}, {to.kind, to.index}};
  }
  TopologyEdge& transfer(GpuPlace from, GpuPlace to);
  [[nodiscard]] std::string words(const GpuFlow& flow) const;

  Os& os_;
  GpuBench& bench_;
  const GpuPlaces& places_;
  std::map<Ends, TopologyEdge> transfers_;
  std::set<std::tuple<int, int, Mover>> impossible_;
  /// By their text: what failed first, and how often.
  std::map<std::string, std::pair<std::string, int>> failures_;
  std::size_t missing_ = 0;
  Status dead_;
};

/// The places of a bench.
inline GpuPlace gpu_at(int index) { return {GpuPlace::Kind::kGpu, index}; }
inline GpuPlace memory_at(int index) { return {GpuPlace::Kind::kMemory, index}; }

}  // namespace topocoll
