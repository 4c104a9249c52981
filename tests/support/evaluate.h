// A plan's evaluation order, applied to numbers.
#pragma once

#include <cstddef>
#include <string>

namespace topocoll::testing {

/// Evaluates "((0+1)+2)" with `leaf` for the numbers.
template <class T, class Leaf>
T evaluate(const std::string& text, std::size_t& at, const Leaf& leaf) {
  if (text[at] != '(') {
    int rank = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9')
      rank = rank * 10 + (text[at++] - '0');
    return leaf(rank);
  }
  ++at;
  const T left = evaluate<T>(text, at, leaf);
  ++at;  // '+'
  const T right = evaluate<T>(text, at, leaf);
  ++at;  // ')'
  return static_cast<T>(left + right);
}

}  // namespace topocoll::testing
