// Thread rule: a free function. Failure rule: `values` must not be empty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace topocoll {

/// The upper one of an even number.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace topocoll
