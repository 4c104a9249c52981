#include "probe/statistics.h"

#include <algorithm>
#include <cmath>

namespace topocoll {
namespace {

/// What an interval may miss on either side, so that it holds the median 95 times of 100.
constexpr double kTail = 0.025;

}  // namespace

std::pair<int, int> median_ranks(int samples) {
  // The k lowest samples all lie below the median with the probability that a fair coin shows fewer
  // than k heads in `samples` throws.
  double exactly = std::pow(0.5, samples);
  double below = 0;
  int low = 0;
  while (low < samples && below + exactly <= kTail) {
    below += exactly;
    exactly *= static_cast<double>(samples - low) / (low + 1);
    ++low;
  }
  low = std::max(low, 1);
  return {low, samples + 1 - low};
}

Figure summarize(std::vector<double> samples, Better better) {
  Figure figure;
  if (samples.empty()) return figure;
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  figure.measured =
      samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  const auto [low, high] = median_ranks(static_cast<int>(samples.size()));
  figure.spread = Spread{samples[static_cast<std::size_t>(low) - 1],
                         samples[static_cast<std::size_t>(high) - 1],
                         better == Better::kLower ? samples.front() : samples.back(),
                         static_cast<int>(samples.size())};
  return figure;
}

bool Sampler::done() {
  if (!start_) start_ = os_.now();
  const auto count = static_cast<int>(samples_.size());
  if (count == 0) return false;
  if (count >= rule_.most || os_.now() - *start_ >= rule_.time) return true;
  if (count < rule_.least) return false;
  const Figure so_far = summarize(samples_, Better::kLower);
  const double width = so_far.spread->high - so_far.spread->low;
  return width / 2 <= rule_.half_width * *so_far.measured;
}

}  // namespace topocoll
