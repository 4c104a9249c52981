// Ranks, nodes, GPUs and resources are int in interfaces; containers want std::size_t.
// Thread rule: a free function on a value. Failure rule: `i` must not be negative.
#pragma once

#include <cstddef>

namespace topocoll {

constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace topocoll
