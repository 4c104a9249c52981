// What the writers of plans share: channels by path, and scratch chunks.
//
//   ChannelTable channels;
//   channels.divide(hops, 8);                       // optional: one hop for each chunk to come
//   int channel = channels.carry(hop);              // for each send
//   int same = channels.take(hop);                  // for each receive, in the order of the sends
//
// Thread rule: one thread at a time. Failure rule: nothing fails.
#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/graph.h"
#include "planner/trees.h"
#include "topocoll/plan.h"

namespace topocoll {

/// Each path between two ranks is a channel, or several that its chunks take in turn; channels of a
/// pair are numbered as its paths come up.
class ChannelTable {
 public:
  /// Gives each path channels in proportion to the chunks that it is to carry, `most` at most.
  /// Channels share a link evenly, whatever they carry: a path with much to carry needs more of
  /// them to keep up with the others. Before all else; without it each path has one.
  void divide(const std::vector<const Hop*>& chunks, int most);
  /// The channel on which the next chunk of the path is sent.
  int carry(const Hop& hop) {
    Use& use = entry(hop);
    return use.first + use.sent++ % use.channels;
  }
  /// The channel from which the next chunk of the path is received.
  int take(const Hop& hop) {
    Use& use = entry(hop);
    return use.first + use.taken++ % use.channels;
  }
  /// Channels that a pair has at most, 1 at least.
  [[nodiscard]] int most() const;
  /// Plan::routes; a chunk's share of the message takes `chunk_gbps`.
  [[nodiscard]] std::vector<Route> routes(const Graph& graph, double chunk_gbps) const;

 private:
  struct Use {
    int first = 0;
    int channels = 1;
    int sent = 0;
    int taken = 0;
  };
  struct Pair {
    std::map<std::vector<int>, Use> paths;
    int channels = 0;
  };
  using Path = std::tuple<int, int, std::vector<int>>;
  Use& entry(const Hop& hop);

  std::map<std::pair<int, int>, Pair> pairs_;  ///< by sender and receiver
  std::map<Path, int> divided_;                ///< channels of paths that have several
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
