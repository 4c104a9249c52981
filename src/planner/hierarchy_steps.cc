// Steps of hierarchical plans: of one rank when asked for, or of all ranks of a small cluster.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/index.h"
#include "planner/channels.h"
#include "planner/hierarchy.h"
#include "planner/hierarchy_walk.h"
#include "planner/steps.h"

namespace topocoll {
namespace {

/// Where a plan keeps an item's chunk.
class Chunks {
 public:
  Chunks(const HierarchicalPlan& plan, const HierarchyWalk& walk) : plan_(plan), walk_(walk) {}

  /// Contributed by every rank, or sent by the root.
  [[nodiscard]] int input(int item) const {
    return plan_.kind == CollectiveKind::kAllGather ? piece(item) : whole(item);
  }
  [[nodiscard]] int output(int item) const {
    return plan_.kind == CollectiveKind::kReduceScatter ? piece(item) : whole(item);
  }

 private:
  /// Within the block of the rank that the item belongs to.
  [[nodiscard]] int piece(int item) const { return walk_.slot(item) % plan_.chunks; }
  [[nodiscard]] int whole(int item) const {
    if (plan_.shape != NodeShape::kRing) return item;
    const int rank = walk_.root(plan_.spreads ? walk_.spreads() : walk_.reduces(), item);
    return rank * plan_.chunks + piece(item);
  }

  const HierarchicalPlan& plan_;
  const HierarchyWalk& walk_;
};

/// Writes one rank's steps. Within a stage it sends first; both ends of a channel go through items
/// in order.
class RankProgram {
 public:
  RankProgram(const HierarchicalPlan& plan, const HierarchyWalk& walk, int rank)
      : plan_(plan), walk_(walk), chunks_(plan, walk), rank_(rank) {}

  std::vector<Step> write() {
    if (plan_.reduces) collect();
    if (plan_.spreads) distribute();
    return std::move(steps_);
  }
  [[nodiscard]] int scratch() const { return scratch_.most(); }

 private:
  struct Move {
    int stage = 0;
    bool receives = false;
    int item = 0;
    int peer = 0;
    int channel = 0;
    friend auto operator<=>(const Move&, const Move&) = default;
  };

  /// All moves of a phase; toward the root stages count backwards.
  std::vector<Move> moves(HierarchyWalk::Phase phase) const {
    std::vector<Move> result;
    const bool toward = phase.mirrored;
    for (int item = 0; item < plan_.items(); ++item) {
      const HierarchyWalk::Links links = walk_.links(phase, item, rank_);
      const auto add = [&](const HierarchyWalk::Link& link, bool receives) {
        result.push_back(
            {toward ? -link.stage : link.stage, receives, item, link.peer, link.channel});
      };
      if (links.parent) add(*links.parent, !toward);
      for (const HierarchyWalk::Link& child : links.children) add(child, toward);
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  void collect() {
    for (const Move& move : moves(walk_.reduces())) {
      if (move.receives) {
        const int slot = scratch_.take();
        parts_[move.item].emplace_back(move.peer, slot);
        steps_.push_back(
            {StepKind::kRecv, {}, {BufferId::kScratch, slot}, move.peer, move.channel});
      } else {
        const ChunkRef sum = reduce(move.item, nullptr);
        steps_.push_back({StepKind::kSend, {sum}, {}, move.peer, move.channel});
      }
    }
    for (int item = 0; item < plan_.items(); ++item) {
      if (walk_.root(walk_.reduces(), item) != rank_) continue;
      const ChunkRef target{BufferId::kOutput, chunks_.output(item)};
      reduce(item, &target);
    }
  }

  /// Own input and parts into `target`, else into the place of the first part; its send is the next
  /// step.
  ChunkRef reduce(int item, const ChunkRef* target) {
    const ChunkRef own{BufferId::kInput, chunks_.input(item)};
    const auto found = parts_.find(item);
    if (found == parts_.end()) return own;
    std::sort(found->second.begin(), found->second.end());
    Step step{StepKind::kReduce, {own}, {}, -1, 0};
    for (const auto& [peer, slot] : found->second) {
      step.source.push_back({BufferId::kScratch, slot});
      scratch_.give_back(slot);
    }
    step.target = target != nullptr ? *target : step.source[1];
    steps_.push_back(step);
    parts_.erase(found);
    return step.target;
  }

  void distribute() {
    if (!plan_.reduces) {
      for (int item = 0; item < plan_.items(); ++item) {
        if (walk_.root(walk_.spreads(), item) != rank_) continue;
        steps_.push_back({StepKind::kCopy,
                          {{BufferId::kInput, chunks_.input(item)}},
                          {BufferId::kOutput, chunks_.output(item)},
                          -1,
                          0});
      }
    }
    for (const Move& move : moves(walk_.spreads())) {
      const ChunkRef chunk{BufferId::kOutput, chunks_.output(move.item)};
      if (move.receives) {
        steps_.push_back({StepKind::kRecv, {}, chunk, move.peer, move.channel});
        continue;
      }
      const bool first = !plan_.reduces && walk_.root(walk_.spreads(), move.item) == rank_;
      const ChunkRef source = first ? ChunkRef{BufferId::kInput, chunks_.input(move.item)} : chunk;
      steps_.push_back({StepKind::kSend, {source}, {}, move.peer, move.channel});
    }
  }

  const HierarchicalPlan& plan_;
  const HierarchyWalk& walk_;
  Chunks chunks_;
  int rank_;
  std::vector<Step> steps_;
  ScratchPool scratch_;
  std::map<int, std::vector<std::pair<int, int>>> parts_;  ///< by item: peer and scratch chunk
};

/// Ids of the flat graph's nodes that a channel passes.
std::vector<std::string> path_of(const HierarchicalPlan& plan, const HierarchyWalk& walk, int from,
                                 int to, int channel) {
  const Cluster& c = plan.cluster;
  const int gpus = c.gpus();
  const int here = from / gpus;
  const int there = to / gpus;
  std::vector<std::string> path{fmt::format("{}/{}", here, c.cell.rank_id(from % gpus))};
  bool arrived = here == there;
  const auto leaf_id = [&](int node, int rail) {
    const std::string& id = c.cell.nodes[at(c.leaf_node(rail))].id;
    return c.leaves() > 1 ? fmt::format("leaf{}/{}", c.leaf_of(node), id) : id;
  };
  for (const int l : walk.way(from % gpus, to % gpus, channel, here != there)) {
    const int next = c.cell.links[at(l)].to;
    if (next < c.host_nodes) {
      path.push_back(fmt::format("{}/{}", arrived ? there : here, c.cell.nodes[at(next)].id));
      continue;
    }
    const int rail = next - c.host_nodes;
    path.push_back(leaf_id(here, rail));
    arrived = true;
    if (c.leaf_of(here) == c.leaf_of(there)) continue;
    path.push_back(c.cell.nodes[at(c.leaf_node(c.rails + (c.spines == 1 ? 0 : rail)))].id);
    path.push_back(leaf_id(there, rail));
  }
  return path;
}

}  // namespace

Result<std::vector<Step>> rank_steps(const HierarchicalPlan& plan, int rank) {
  if (rank < 0 || rank >= plan.cluster.ranks()) {
    return Status(Cause::kInvalidArgument, fmt::format("rank {} is not among the {} of the cluster",
                                                       rank, plan.cluster.ranks()));
  }
  const HierarchyWalk walk(plan);
  return RankProgram(plan, walk, rank).write();
}

Result<Plan> expand(const HierarchicalPlan& plan) {
  Plan result;
  result.kind = plan.kind;
  result.algorithm = name(plan.shape);
  result.ranks = plan.cluster.ranks();
  result.root = plan.root;
  result.chunks = plan.shape == NodeShape::kRing && plan.kind != CollectiveKind::kAllReduce
                      ? plan.chunks
                      : static_cast<int>(plan.message_chunks);
  const auto cells =
      static_cast<std::uint64_t>(plan.items()) * static_cast<std::uint64_t>(result.ranks);
  if (cells * 2 > kMaxPlanCells) {
    return Status(
        Cause::kUnsupported,
        fmt::format("{} ranks with {} chunks each are too many for one plan: rank_steps() of "
                    "topocoll/cluster.h gives a program the steps of one rank",
                    result.ranks, plan.items()));
  }
  const HierarchyWalk walk(plan);
  std::map<std::tuple<int, int, int>, std::int64_t> sends;
  for (int rank = 0; rank < result.ranks; ++rank) {
    RankProgram program(plan, walk, rank);
    result.steps.push_back(program.write());
    result.scratch_chunks = std::max(result.scratch_chunks, program.scratch());
    for (const Step& step : result.steps.back()) {
      if (step.kind == StepKind::kSend) ++sends[{rank, step.peer, step.channel}];
    }
  }
  result.channels = walk.channels();
  const double chunk_gbps = plan.algbw()->to_double() / static_cast<double>(plan.message_chunks);
  for (const auto& [channel, count] : sends) {
    const auto& [from, to, number] = channel;
    result.routes.push_back({from, to, number, path_of(plan, walk, from, to, number),
                             chunk_gbps * static_cast<double>(count)});
  }
  return result;
}

}  // namespace topocoll
