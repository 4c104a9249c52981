#include "planner/node_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/index.h"
#include "planner/lanes.h"

namespace topocoll {
namespace {

constexpr int kMostMoves = 16;     ///< of slots between lanes
constexpr int kMostTrials = 2000;  ///< of such moves; each costs the max-flows of a node

class TemplateMaker {
 public:
  TemplateMaker(const Cluster& cluster, const TemplateRequest& request)
      : cluster_(cluster), request_(request) {}

  Result<NodeTemplate> make() {
    auto lanes = find_lanes(cluster_);
    if (!lanes.ok()) return lanes.status();
    made_.lanes = std::move(*lanes);
    if (Status s = check_lanes(); !s.ok()) return s;
    auto graph = tree_graph(cluster_, made_.lanes);
    if (!graph.ok()) return graph.status();
    graph_ = std::move(*graph);
    if (request_.like != nullptr) {
      if (Status s = follow(*request_.like); !s.ok()) return s;
    } else {
      share_out();
      improve();
      give_lanes();
    }
    if (Status s = plant(); !s.ok()) return s;
    return std::move(made_);
  }

 private:
  [[nodiscard]] Status check_lanes() const {
    if (made_.lanes.empty())
      return Status(Cause::kUnsupported, "fabric: no rail joins a sender with a receiver");
    for (const Lane& lane : made_.lanes) {
      if (!request_.own_is_transit || lane.exit == lane.entrance) continue;
      return Status(
          Cause::kUnsupported,
          fmt::format(
              "on rail {} \"{}\" sends and \"{}\" receives; trees over nodes need one GPU for both",
              lane.rail, cluster_.cell.rank_id(lane.exit), cluster_.cell.rank_id(lane.entrance)));
    }
    return Status();
  }

  Status follow(const NodeTemplate& like) {
    count_.assign(made_.lanes.size(), 0);
    for (const int wanted : like.lane) {
      const Lane& model = like.lanes[at(wanted)];
      const auto same = std::find_if(made_.lanes.begin(), made_.lanes.end(), [&](const Lane& lane) {
        return lane.rail == model.rail && lane.exit == model.entrance &&
               lane.entrance == model.exit;
      });
      if (same == made_.lanes.end()) {
        return Status(Cause::kUnsupported,
                      fmt::format("rail {} serves \"{}\" in one direction only", model.rail,
                                  cluster_.cell.rank_id(model.exit)));
      }
      made_.lane.push_back(static_cast<int>(same - made_.lanes.begin()));
      ++count_[at(made_.lane.back())];
    }
    return Status();
  }

  /// In proportion to bandwidth, largest remainders first.
  void share_out() {
    double all = 0;
    for (const Lane& lane : made_.lanes) all += lane.capacity;
    std::vector<std::pair<double, int>> rest;
    int left = request_.slots;
    for (std::size_t l = 0; l < made_.lanes.size(); ++l) {
      const double exact = request_.slots * made_.lanes[l].capacity / all;
      count_.push_back(static_cast<int>(exact + 1e-9));
      left -= count_.back();
      rest.emplace_back(count_.back() - exact, static_cast<int>(l));
    }
    std::stable_sort(rest.begin(), rest.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first - 1e-9; });
    for (int i = 0; i < left; ++i) ++count_[at(rest[at(i)].second)];
  }

  /// Chunks per unit of time that lanes and uplinks allow.
  [[nodiscard]] double lane_limit() const {
    double limit = std::numeric_limits<double>::infinity();
    std::vector<double> across(at(cluster_.rails), 0);
    for (std::size_t l = 0; l < count_.size(); ++l) {
      const auto use = static_cast<double>(std::max(request_.use.out, request_.use.in));
      if (count_[l] > 0) limit = std::min(limit, made_.lanes[l].capacity / (count_[l] * use));
      across[at(made_.lanes[l].rail)] += static_cast<double>(request_.across * count_[l]);
    }
    if (cluster_.spines == 0) return limit;
    const std::size_t uplinks = cluster_.cell.links.size() - 2 * at(cluster_.rails);
    for (std::size_t r = 0; r < across.size(); ++r) {
      if (across[r] <= 0) continue;
      for (const std::size_t l : {uplinks + 2 * r, uplinks + 2 * r + 1}) {
        limit = std::min(limit, static_cast<double>(cluster_.cell.links[l].capacity) / across[r]);
      }
    }
    return limit;
  }

  /// Roots of transit trees, and of own trees where both share a node.
  [[nodiscard]] std::vector<std::int64_t> blocks() const {
    std::vector<std::int64_t> blocks(at(cluster_.gpus()), 0);
    for (std::size_t l = 0; l < count_.size(); ++l) {
      blocks[at(made_.lanes[l].entrance)] += request_.use.transit * count_[l];
    }
    if (request_.first_is_apart) return blocks;
    for (const int root : request_.root) blocks[at(root)] += request_.use.own;
    return blocks;
  }
  [[nodiscard]] double tree_limit() const {
    RankBlocks ranks{blocks(), std::vector<int>(at(cluster_.gpus()))};
    std::iota(ranks.receivers.begin(), ranks.receivers.end(), 0);
    const auto bound = allgather_bound(graph_.graph, ranks);
    return bound.ok() ? bound->rank_rate.to_double() : 0;
  }

  void improve() {
    double best = std::min(lane_limit(), tree_limit());
    int trials = 0;
    for (int move = 0; move < kMostMoves && best < lane_limit(); ++move) {
      std::pair<int, int> taken{-1, -1};
      for (int from = 0; from < static_cast<int>(count_.size()); ++from) {
        for (int to = 0; to < static_cast<int>(count_.size()); ++to) {
          if (from == to || count_[at(from)] == 0) continue;
          shift(from, to);
          const double lanes = lane_limit();
          const bool worth = lanes > best * (1 + 1e-9) && trials++ < kMostTrials;
          const double now = worth ? std::min(lanes, tree_limit()) : 0;
          shift(to, from);
          if (now <= best * (1 + 1e-9)) continue;
          best = now;
          taken = {from, to};
        }
      }
      if (taken.first < 0) return;
      shift(taken.first, taken.second);
    }
  }
  void shift(int from, int to) {
    --count_[at(from)];
    ++count_[at(to)];
  }

  /// A slot prefers a lane that leaves from the GPU where it begins.
  void give_lanes() {
    std::vector<int> left = count_;
    made_.lane.assign(at(request_.slots), -1);
    for (const bool own : {true, false}) {
      std::size_t next = 0;
      for (int s = 0; s < request_.slots; ++s) {
        int& lane = made_.lane[at(s)];
        if (lane >= 0) continue;
        for (std::size_t l = 0; own && l < left.size(); ++l) {
          if (left[l] > 0 && made_.lanes[l].exit == request_.root[at(s)]) {
            next = l;
            break;
          }
        }
        if (own && (left[next] == 0 || made_.lanes[next].exit != request_.root[at(s)])) continue;
        while (left[next] == 0) ++next;
        lane = static_cast<int>(next);
        --left[next];
      }
    }
  }

  /// Trees for all slots, the frequent ones first.
  Status plant() {
    const auto shared = pack_weighted(graph_.graph, blocks());
    if (!shared.ok()) return shared.status();
    load_.assign(cluster_.cell.links.size(), 0);
    for (const int lane : made_.lane) {
      for (const int l : made_.lanes[at(lane)].out)
        load_[at(l)] += static_cast<double>(request_.use.out);
      for (const int l : made_.lanes[at(lane)].in)
        load_[at(l)] += static_cast<double>(request_.use.in);
    }
    for (const int lane : made_.lane) {
      made_.transit.push_back(take(*shared, made_.lanes[at(lane)].entrance, request_.use.transit));
    }
    if (request_.own_is_transit) {
      made_.own = made_.transit;
      return Status();
    }
    if (request_.first_is_apart) {
      const auto first = pack_broadcast(graph_.graph, request_.root[0]);
      if (!first.ok()) return first.status();
      load_.assign(cluster_.cell.links.size(), 0);
      for (const int root : request_.root)
        made_.own.push_back(take(*first, root, request_.use.own));
      return Status();
    }
    for (const int root : request_.root) made_.own.push_back(take(*shared, root, request_.use.own));
    return Status();
  }

  /// The tree from `root` that leaves the fullest of its links emptiest.
  Tree take(const Packing& packing, int root, std::int64_t uses) {
    const Tree* best = nullptr;
    double least = 0;
    for (const Tree& tree : packing.trees) {
      if (tree.root != root) continue;
      const double fullest = fullest_with(tree, uses);
      if (best != nullptr && fullest >= least - 1e-12) continue;
      best = &tree;
      least = fullest;
    }
    Tree result = *best;
    result.weight = 1;
    for (Hop& hop : result.hops) {
      for (int& l : hop.path) {
        l = graph_.link[at(l)];
        load_[at(l)] += static_cast<double>(uses);
      }
    }
    return result;
  }
  [[nodiscard]] double fullest_with(const Tree& tree, std::int64_t uses) const {
    double fullest = 0;
    for (const Hop& hop : tree.hops) {
      for (const int l : hop.path) {
        const int link = graph_.link[at(l)];
        fullest =
            std::max(fullest, (load_[at(link)] + static_cast<double>(uses)) /
                                  static_cast<double>(cluster_.cell.links[at(link)].capacity));
      }
    }
    return fullest;
  }

  const Cluster& cluster_;
  const TemplateRequest& request_;
  NodeTemplate made_;
  TreeGraph graph_;
  std::vector<int> count_;    ///< slots of each lane
  std::vector<double> load_;  ///< chunks over each link of the cell
};

}  // namespace

Result<NodeTemplate> make_template(const Cluster& cluster, const TemplateRequest& request) {
  return TemplateMaker(cluster, request).make();
}

std::vector<std::int64_t> template_loads(const Cluster& cluster, const NodeTemplate& made,
                                         const TemplateUse& use) {
  std::vector<std::int64_t> load(cluster.cell.links.size(), 0);
  for (std::size_t s = 0; s < made.lane.size(); ++s) {
    const Lane& lane = made.lanes[at(made.lane[s])];
    for (const int l : lane.out) load[at(l)] += use.out;
    for (const int l : lane.in) load[at(l)] += use.in;
    for (const auto& [tree, uses] :
         {std::pair(&made.own[s], use.own), std::pair(&made.transit[s], use.transit)}) {
      for (const Hop& hop : tree->hops) {
        for (const int l : hop.path) load[at(l)] += uses;
      }
    }
  }
  return load;
}

}  // namespace topocoll
