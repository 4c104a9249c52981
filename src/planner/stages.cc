#include "planner/stages.h"

#include <algorithm>

#include "base/index.h"

namespace topocoll {
namespace {

/// Distance of every rank from the root; `away` says which way the hops point.
std::vector<int> depths(const Tree& tree, int ranks, bool away) {
  std::vector<int> depth(at(ranks), 0);
  for (std::size_t i = 0; i < tree.hops.size(); ++i) {
    const Hop& hop = tree.hops[away ? i : tree.hops.size() - 1 - i];
    depth[at(away ? hop.to : hop.from)] = depth[at(away ? hop.from : hop.to)] + 1;
  }
  return depth;
}

}  // namespace

StageWriter::StageWriter(Plan& plan, const std::vector<ChunkTrees>& chunks, int path_channels)
    : plan_(plan), chunks_(chunks), scratch_(at(plan.ranks)) {
  plan_.steps.assign(at(plan.ranks), {});
  if (path_channels == 1) return;
  std::vector<const Hop*> hops;
  for (const ChunkTrees& chunk : chunks) {
    for (const Tree* tree : {chunk.in, chunk.out}) {
      if (tree == nullptr) continue;
      for (const Hop& hop : tree->hops) hops.push_back(&hop);
    }
  }
  channels_.divide(hops, path_channels);
}

void StageWriter::write() {
  collect();
  distribute();
  plan_.channels = channels_.most();
  plan_.scratch_chunks = 0;
  for (const ScratchPool& pool : scratch_) {
    plan_.scratch_chunks = std::max(plan_.scratch_chunks, pool.most());
  }
}

void StageWriter::send(const Hop& hop, ChunkRef source) {
  steps(hop.from).push_back({StepKind::kSend, {source}, {}, hop.to, channels_.carry(hop)});
}

void StageWriter::recv(const Hop& hop, ChunkRef target) {
  steps(hop.to).push_back({StepKind::kRecv, {}, target, hop.from, channels_.take(hop)});
}

ChunkRef StageWriter::reduce(int rank, std::size_t chunk, const ChunkRef* target) {
  const ChunkRef own{BufferId::kInput, chunks_[chunk].input};
  Partial& partial = partial_[{rank, chunk}];
  std::sort(partial.parts.begin(), partial.parts.end());
  if (partial.parts.empty()) {
    if (target == nullptr) return own;
    steps(rank).push_back({StepKind::kCopy, {own}, *target, -1, 0});
    return *target;
  }
  Step step{StepKind::kReduce, {own}, {}, -1, 0};
  for (const auto& [child, slot] : partial.parts) {
    step.source.push_back({BufferId::kScratch, slot});
    scratch_[at(rank)].give_back(slot);
  }
  step.target = target != nullptr ? *target : step.source[1];
  const ChunkRef result = step.target;
  steps(rank).push_back(std::move(step));
  partial_.erase({rank, chunk});
  return result;
}

std::vector<std::span<const StageWriter::Move>> StageWriter::stages_of(std::vector<Move>& moves) {
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Move& a, const Move& b) { return a.stage < b.stage; });
  std::vector<std::span<const Move>> stages;
  for (auto first = moves.begin(); first != moves.end();) {
    const auto last = std::find_if(first, moves.end(),
                                   [&](const Move& move) { return move.stage != first->stage; });
    stages.emplace_back(first, last);
    first = last;
  }
  return stages;
}

// The deepest hops come first, so that a rank has all its children's sums when its turn comes. A
// partial sum lies in the scratch chunk of its first part, which is free again: its send is the
// very next step.
void StageWriter::collect() {
  std::vector<Move> moves;
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    if (chunks_[c].in == nullptr) continue;
    const std::vector<int> depth = depths(*chunks_[c].in, plan_.ranks, false);
    for (const Hop& hop : chunks_[c].in->hops) moves.push_back({-depth[at(hop.from)], c, &hop});
  }
  for (const std::span<const Move> stage : stages_of(moves)) {
    for (const Move& move : stage) {
      send(*move.hop, reduce(move.hop->from, move.chunk, nullptr));
    }
    for (const Move& move : stage) {
      const int slot = scratch_[at(move.hop->to)].take();
      partial_[{move.hop->to, move.chunk}].parts.push_back({move.hop->from, slot});
      recv(*move.hop, {BufferId::kScratch, slot});
    }
  }
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    if (chunks_[c].in == nullptr) continue;
    const ChunkRef target{BufferId::kOutput, chunks_[c].root_output};
    reduce(chunks_[c].in->root, c, &target);
  }
}

void StageWriter::distribute() {
  std::vector<Move> moves;
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const Tree* out = chunks_[c].out;
    if (out == nullptr) continue;
    const std::vector<int> depth = depths(*out, plan_.ranks, true);
    for (const Hop& hop : out->hops) moves.push_back({depth[at(hop.to)], c, &hop});
    if (chunks_[c].in != nullptr) continue;
    steps(out->root).push_back({StepKind::kCopy,
                                {{BufferId::kInput, chunks_[c].input}},
                                {BufferId::kOutput, chunks_[c].root_output},
                                -1,
                                0});
  }
  for (const std::span<const Move> stage : stages_of(moves)) {
    for (const Move& move : stage) {
      const ChunkTrees& trees = chunks_[move.chunk];
      ChunkRef source{BufferId::kOutput, trees.output};
      if (move.hop->from == trees.out->root) {
        source = trees.in != nullptr ? ChunkRef{BufferId::kOutput, trees.root_output}
                                     : ChunkRef{BufferId::kInput, trees.input};
      }
      send(*move.hop, source);
    }
    for (const Move& move : stage) {
      recv(*move.hop, {BufferId::kOutput, chunks_[move.chunk].output});
    }
  }
}

}  // namespace topocoll
