// Who is to blame for pairs that are slower than their equals: the pair, or one of its ends.
// Thread rule: free functions on values. Failure rule: none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "topocoll/topology.h"

namespace topocoll {

/// Both directions between two ends.
struct PairFigures {
  std::string a;
  std::string b;
  double gbps = 0;  ///< of the slower direction
  double high = 0;  ///< the upper end of its confidence interval
  std::string evidence;

  /// Takes one direction in; `figure` is measured.
  void add(const std::string& from, const std::string& to, const Figure& figure);
};

/// Refers to the members that it was made of.
struct SlowOnes {
  std::map<std::string, const PairFigures*> ends;  ///< slow with all of several: their worst pair
  std::vector<const PairFigures*> pairs;           ///< the other slow pairs
};

SlowOnes find_slow(const std::vector<PairFigures>& members,
                   const std::function<bool(const PairFigures&)>& is_slow);

}  // namespace topocoll
