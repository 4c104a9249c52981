// Numbers of parts of a file that must differ though the topology's may not.
// Thread rule: one thread at a time. Failure rule: none; `wanted` is far from the largest int.
#pragma once

#include <unordered_map>
#include <vector>

namespace topocoll {

class FreeNumbers {
 public:
  /// The first that was not taken yet, from `wanted` on; quick however many were.
  int take(int wanted) {
    std::vector<int> taken;
    int number = wanted;
    for (auto next = next_.find(number); next != next_.end(); next = next_.find(number)) {
      taken.push_back(number);
      number = next->second;
    }
    // The next search passes all of them in one step.
    for (const int passed : taken) next_[passed] = number + 1;
    next_[number] = number + 1;
    return number;
  }

 private:
  std::unordered_map<int, int> next_;  ///< of a taken number, where to look on
};

}  // namespace topocoll
