// Stages: turns trees, one or two for each chunk, into the steps of all ranks. emit.h says how hops
// are ordered. Thread rule: one thread at a time. Failure rule: the trees must span the ranks;
// nothing else is checked here, verify() does that.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "planner/channels.h"
#include "planner/trees.h"
#include "topocoll/plan.h"

namespace topocoll {

/// One chunk's way: reduced along `in` (if given), then spread along `out` (if given).
struct ChunkTrees {
  const Tree* in = nullptr;
  const Tree* out = nullptr;
  int input = 0;        ///< chunk of the input that ranks contribute, or the root sends
  int root_output = 0;  ///< chunk of the root's output
  int output = 0;       ///< chunk of the others' output, if `out`
};

class StageWriter {
 public:
  /// `plan` has its header; steps, scratch_chunks and channels are written. `path_channels`: what
  /// ChannelTable::divide() may give a path at most.
  StageWriter(Plan& plan, const std::vector<ChunkTrees>& chunks, int path_channels = 1);

  void write();

  [[nodiscard]] const ChannelTable& channels() const { return channels_; }

 private:
  struct Move {
    int stage = 0;
    std::size_t chunk = 0;  ///< index into chunks_
    const Hop* hop = nullptr;
  };
  /// What a rank holds of a chunk while it is reduced.
  struct Partial {
    std::vector<std::pair<int, int>> parts;  ///< child and scratch chunk
  };

  /// Sorts moves by stage, keeping their order within each, and returns the stages.
  static std::vector<std::span<const Move>> stages_of(std::vector<Move>& moves);
  void collect();
  void distribute();
  void send(const Hop& hop, ChunkRef source);
  void recv(const Hop& hop, ChunkRef target);
  /// Reduces own input and parts into `target`, or into a part's place if there is none.
  ChunkRef reduce(int rank, std::size_t chunk, const ChunkRef* target);
  std::vector<Step>& steps(int rank) { return plan_.steps[static_cast<std::size_t>(rank)]; }

  Plan& plan_;
  const std::vector<ChunkTrees>& chunks_;
  ChannelTable channels_;
  std::vector<ScratchPool> scratch_;  ///< by rank
  std::map<std::pair<int, std::size_t>, Partial> partial_;  ///< by rank and chunk
};

}  // namespace topocoll
