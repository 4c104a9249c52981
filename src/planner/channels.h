// What the writers of plans share: channels by path, and scratch chunks.
//
// Thread rule: one thread at a time. Failure rule: nothing fails.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "planner/graph.h"
#include "planner/trees.h"
#include "topocoll/plan.h"

namespace topocoll {

/// Each path between two ranks is a channel; paths of a pair are numbered as they come up.
class ChannelTable {
 public:
  int of(const Hop& hop) { return entry(hop).channel; }
  /// The same, for a hop that carries one more chunk.
  int carry(const Hop& hop) {
    Use& use = entry(hop);
    ++use.chunks;
    return use.channel;
  }
  /// Channels that a pair has at most, 1 at least.
  [[nodiscard]] int most() const;
  /// Plan::routes; a chunk's share of the message takes `chunk_gbps`.
  [[nodiscard]] std::vector<Route> routes(const Graph& graph, double chunk_gbps) const;

 private:
  struct Use {
    int channel = 0;
    int chunks = 0;
  };
  Use& entry(const Hop& hop);

  std::map<std::pair<int, int>, std::map<std::vector<int>, Use>>
      paths_;  ///< by sender and receiver
};

/// The scratch chunks of one rank; the lowest free one is taken.
class ScratchPool {
 public:
  int take();
  void give_back(int chunk) { used_[static_cast<std::size_t>(chunk)] = false; }
  /// How many were in use at once.
  [[nodiscard]] int most() const { return static_cast<int>(used_.size()); }

 private:
  std::vector<bool> used_;
};

}  // namespace topocoll
