// Rounding: how many chunks each tree carries, so that few whole chunks come close to exact
// weights.
//
//   std::vector<Share> shares = ...;                     // weights of the trees, and the links
//   they load Rounding r = round_shares(shares, capacity, {}); r.chunks // C; r.count[i] of them
//   for share i
//
// Shares belong to messages (one for each root of an all-gather, a single one of an all-reduce).
// Each message is cut into the same number C of chunks, and each of its trees gets a whole number
// of them: first by largest remainders, then chunks move from trees on the most loaded link to
// others while that helps. The rate is what the most loaded link allows. C is the first, of all
// small numbers and then some larger ones, that reaches the wanted part of the exact rate; else the
// best one. Thread rule: free functions on values. Failure rule: nothing fails.
#pragma once

#include <utility>
#include <vector>

namespace topocoll {

struct Share {
  int group = 0;                           ///< which message it is part of
  double weight = 0;                       ///< relative to the other shares of the group
  std::vector<std::pair<int, int>> loads;  ///< resource, and how often the tree uses it
};

struct RoundingLimits {
  int chunks = 128;      ///< of a message at most
  int trees = 32;        ///< of a message, those of largest weight; more if that is not good enough
  double wanted = 0.99;  ///< part of the exact rate that is enough
};

struct Rounding {
  int chunks = 1;
  std::vector<int> count;  ///< chunks of each share
  double rate = 0;         ///< messages per unit of time that the most loaded resource allows
  double exact_rate = 0;   ///< the same at the exact weights of all shares
};

/// `capacity` of each resource. Groups are numbered from 0 and each has a share.
Rounding round_shares(const std::vector<Share>& shares, const std::vector<double>& capacity,
                      const RoundingLimits& limits);

}  // namespace topocoll
