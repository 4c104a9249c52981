// Statistics of repeated timings, without assuming how they are distributed: the median, its
// confidence interval by order statistics, and when to stop.
//
// Thread rule: free functions on values; a Sampler belongs to one thread. Failure rule: no samples
// give no figure.
#pragma once

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/os.h"
#include "topocoll/topology.h"

namespace topocoll {

/// Which of `samples` sorted samples, counted from 1, bound the median with 95 % confidence: the
/// narrowest symmetric pair. Fewer than 6 samples cannot; then 1 and `samples`.
std::pair<int, int> median_ranks(int samples);

enum class Better { kLower, kHigher };

/// Median, interval and best sample, as a measured figure; empty without samples.
Figure summarize(std::vector<double> samples, Better better);

/// When a series of samples ends.
struct StopRule {
  int least = 9;
  int most = 99;
  double half_width = 0.03;  ///< of the confidence interval, as a share of the median
  std::chrono::milliseconds time{50};
};

/// Collects samples until the rule is met.
class Sampler {
 public:
  Sampler(Os& os, StopRule rule) : os_(os), rule_(rule) {}
  void add(double sample) { samples_.push_back(sample); }
  /// Ask before each sample. Never true before the first, and always after `rule.time` since the
  /// first call.
  [[nodiscard]] bool done();
  [[nodiscard]] Figure take(Better better) { return summarize(std::move(samples_), better); }

 private:
  Os& os_;
  StopRule rule_;
  std::optional<TimePoint> start_;
  std::vector<double> samples_;
};

}  // namespace topocoll
