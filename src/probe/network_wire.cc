#include "probe/network_wire.h"

#include <algorithm>
#include <vector>

namespace topocoll::network_probe {

Samples to_samples(const std::vector<double>& values) {
  Samples samples;
  samples.count = static_cast<std::uint32_t>(std::min(values.size(), kMaxSamples));
  std::copy_n(values.begin(), samples.count, samples.value);
  return samples;
}

std::vector<double> from_samples(const Samples& samples, FigureRange range) {
  std::vector<double> values;
  const std::size_t count = std::min<std::size_t>(samples.count, kMaxSamples);
  std::copy_if(samples.value, samples.value + count, std::back_inserter(values),
               [&](double value) { return value >= range.low && value <= range.high; });
  return values;
}

}  // namespace topocoll::network_probe
