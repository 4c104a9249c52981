#include "planner/ring_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/index.h"
#include "planner/steps.h"

namespace topocoll {
namespace {

constexpr int kMaxRings = 64;

constexpr ChunkRef input(int chunk) { return {BufferId::kInput, chunk}; }
constexpr ChunkRef output(int chunk) { return {BufferId::kOutput, chunk}; }
constexpr ChunkRef scratch(int chunk) { return {BufferId::kScratch, chunk}; }

/// Writes the programs of all ranks. Within a stage all rings send before any receives, so that no
/// ring holds up another.
class Writer {
 public:
  Writer(const std::vector<std::vector<int>>& orders, Plan& plan) : orders_(orders), plan_(plan) {
    plan_.steps.resize(at(n()));
    for (const auto& order : orders_) {
      positions_.emplace_back(order.size());
      for (int p = 0; p < n(); ++p) positions_.back()[at(order[at(p)])] = p;
    }
  }
  void write(CollectiveKind kind) {
    for (int rank = 0; rank < n(); ++rank) {
      steps_ = &plan_.steps[at(rank)];
      rank_ = rank;
      switch (kind) {
        case CollectiveKind::kAllReduce:
          reduce_scatter(true);
          all_gather(true);
          break;
        case CollectiveKind::kReduceScatter:
          reduce_scatter(false);
          break;
        case CollectiveKind::kAllGather:
          all_gather(false);
          break;
        case CollectiveKind::kBroadcast:
          broadcast();
          break;
        default:
          reduce();
          break;
      }
    }
  }

 private:
  [[nodiscard]] int n() const { return plan_.ranks; }
  [[nodiscard]] int rings() const { return static_cast<int>(orders_.size()); }
  /// The rank `hops` places further on ring `k`.
  [[nodiscard]] int ahead(int k, int hops) const {
    return orders_[at(k)][at((positions_[at(k)][at(rank_)] + hops + 2 * n()) % n())];
  }
  /// How many places this rank comes after the root on ring `k`.
  [[nodiscard]] int from_root(int k) const {
    const auto& position = positions_[at(k)];
    return (position[at(rank_)] - position[at(plan_.root)] + n()) % n();
  }
  /// The chunk that ring `k` carries of the block of `owner`.
  [[nodiscard]] int block(int k, int owner) const { return owner * rings() + k; }

  void send(int k, ChunkRef source) {
    steps_->push_back({StepKind::kSend, {source}, {}, ahead(k, 1), k});
  }
  void recv(int k, ChunkRef target) {
    steps_->push_back({StepKind::kRecv, {}, target, ahead(k, -1), k});
  }
  void copy(ChunkRef source, ChunkRef target) {
    steps_->push_back({StepKind::kCopy, {source}, target, -1, 0});
  }
  void combine(ChunkRef received, ChunkRef own, ChunkRef target) {
    steps_->push_back({StepKind::kReduce, {received, own}, target, -1, 0});
  }

  void reduce_scatter(bool into_whole) {
    if (n() == 1) return copy_own(into_whole);
    for (int s = 0; s + 1 < n(); ++s) {
      for (int k = 0; k < rings(); ++k) {
        send(k, s == 0 ? input(block(k, ahead(k, -1))) : scratch(2 * k + 1));
      }
      for (int k = 0; k < rings(); ++k) {
        const int arriving = block(k, ahead(k, -2 - s));
        recv(k, scratch(2 * k));
        const bool last = s + 2 == n();
        combine(scratch(2 * k), input(arriving),
                !last ? scratch(2 * k + 1) : output(into_whole ? arriving : k));
      }
    }
  }
  void all_gather(bool after_reduction) {
    if (!after_reduction) copy_own(true);
    for (int s = 0; s + 1 < n(); ++s) {
      for (int k = 0; k < rings(); ++k) send(k, output(block(k, ahead(k, -s))));
      for (int k = 0; k < rings(); ++k) recv(k, output(block(k, ahead(k, -1 - s))));
    }
  }
  /// The rank's own block, from where it is in the input to where it belongs in the output.
  void copy_own(bool whole_output) {
    const bool whole_input = plan_.kind != CollectiveKind::kAllGather;
    for (int k = 0; k < rings(); ++k) {
      copy(input(whole_input ? block(k, rank_) : k), output(whole_output ? block(k, rank_) : k));
    }
  }
  void broadcast() {
    for (int k = 0; k < rings(); ++k) {
      const int place = from_root(k);
      if (place > 0) recv(k, output(k));
      if (place + 1 < n()) send(k, place == 0 ? input(k) : output(k));
    }
    for (int k = 0; k < rings() && rank_ == plan_.root; ++k) copy(input(k), output(k));
  }
  void reduce() {
    for (int k = 0; k < rings(); ++k) {
      const int place = from_root(k);
      if (place == 1) send(k, input(k));
      if (place == 1 || n() == 1) continue;
      recv(k, scratch(2 * k));
      combine(scratch(2 * k), input(k), place == 0 ? output(k) : scratch(2 * k + 1));
      if (place != 0) send(k, scratch(2 * k + 1));
    }
    for (int k = 0; k < rings() && n() == 1; ++k) copy(input(k), output(k));
  }

  const std::vector<std::vector<int>>& orders_;
  Plan& plan_;
  std::vector<std::vector<int>> positions_;  ///< of each rank on each ring
  std::vector<Step>* steps_ = nullptr;
  int rank_ = 0;
};

Status check_orders(const std::vector<std::vector<int>>& orders) {
  if (orders.empty() || orders.size() > at(kMaxRings)) {
    return Status(Cause::kInvalidArgument, fmt::format("ring plan: {} rings, 1 to {} are possible",
                                                       orders.size(), kMaxRings));
  }
  const std::size_t n = orders.front().size();
  if (n == 0 || n > at(kMaxPlanRanks)) {
    return Status(Cause::kInvalidArgument, fmt::format("ring plan: ring 0 has {} ranks", n));
  }
  for (std::size_t k = 0; k < orders.size(); ++k) {
    std::vector<char> seen(n, 0);
    for (int rank : orders[k]) {
      if (rank < 0 || at(rank) >= n || seen[at(rank)] != 0) {
        return Status(
            Cause::kInvalidArgument,
            fmt::format("ring plan: ring {}: rank {} is {}; list each of 0 to {} once", k, rank,
                        rank < 0 || at(rank) >= n ? "none of the group" : "there twice", n - 1));
      }
      seen[at(rank)] = 1;
    }
    if (orders[k].size() != n) {
      return Status(
          Cause::kInvalidArgument,
          fmt::format("ring plan: ring {} has {} ranks, ring 0 {}", k, orders[k].size(), n));
    }
  }
  return Status();
}

}  // namespace

Result<Plan> make_ring_plan(CollectiveKind kind, const std::vector<std::vector<int>>& orders,
                            int root) {
  if (Status s = check_orders(orders); !s.ok()) return s;
  const bool blocks = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
  const bool chain = kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
  if (!blocks && !chain && kind != CollectiveKind::kAllReduce) {
    return Status(Cause::kUnsupported, fmt::format("rings serve all_reduce, all_gather, "
                                                   "reduce_scatter, broadcast and reduce, not {}",
                                                   name(kind)));
  }
  const int rings = static_cast<int>(orders.size());
  const int n = static_cast<int>(orders.front().size());
  if (chain && (root < 0 || root >= n)) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("ring plan: root {} is not a rank of 0 to {}", root, n - 1));
  }
  Plan plan;
  plan.kind = kind;
  plan.algorithm = rings == 1 ? "ring" : "multi_ring";
  plan.ranks = n;
  plan.root = chain ? root : 0;
  plan.chunks = kind == CollectiveKind::kAllReduce ? n * rings : rings;
  plan.channels = rings;
  plan.scratch_chunks = reduces(kind) && n > 1 ? 2 * rings : 0;
  Writer(orders, plan).write(kind);
  return plan;
}

Status set_routes(Plan& plan, const Graph& graph, const Routes& routes, double gbps) {
  std::set<std::tuple<int, int, int>> channels;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (const Step& step : plan.steps[at(rank)]) {
      if (step.kind == StepKind::kSend) channels.insert({rank, step.peer, step.channel});
    }
  }
  plan.routes.clear();
  for (const auto& [from, to, channel] : channels) {
    const RankRoute* way = routes.find(from, to);
    if (way == nullptr) {
      return Status(Cause::kUnsupported,
                    fmt::format("rank {} has no way to rank {} that avoids other ranks", from, to));
    }
    Route route{from, to, channel, {}, gbps};
    for (int node : way->nodes) route.path.push_back(graph.nodes[at(node)].id);
    plan.routes.push_back(std::move(route));
  }
  return Status();
}

}  // namespace topocoll
