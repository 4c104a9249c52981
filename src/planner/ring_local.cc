// Local search over ring orders, for graphs that are too large for the exact methods.
//
// Moves: a segment of up to three ranks goes elsewhere, either way round (Or 1976), and, for up to
// 128 ranks, a segment of any length is reversed (2-opt). Three descents follow each other: the
// rates, as the sum of the eighth powers of the loads, which the most loaded resource dominates;
// the longest hop latency likewise, without a slower resource; and the sum of latencies, without a
// slower resource or a longer hop. The scan is in a fixed order and takes the first improvement.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/index.h"
#include "planner/ring_search.h"

namespace topocoll {
namespace {

constexpr int kMaxSegment = 3;
constexpr int kMaxReversalRanks = 128;
constexpr double kMissing = 1e12;  ///< energy of a hop that has no route

double eighth(double x) { return x * x * x * x * x * x * x * x; }

using Hop = std::pair<int, int>;
enum class Goal { kRate, kLongestHop, kSumOfHops };

class LocalSearch {
 public:
  LocalSearch(const Routes& routes, std::vector<int> order, std::int64_t max_moves)
      : routes_(routes), order_(std::move(order)), budget_(max_moves) {
    loads_.assign(routes.capacities().size(), 0);
    scale_ = 0;
    for (int a = 0; a < n(); ++a) {
      for (int b = 0; b < n(); ++b) {
        const RankRoute* route = routes.find(a, b);
        if (route != nullptr) scale_ = std::max(scale_, route->rate);
      }
    }
    for (int i = 0; i < n(); ++i) change(hop(i), 1);
  }

  std::vector<int> run() {
    descend(Goal::kRate);
    if (missing_ > 0) return {};
    limit_load_ = worst_load();
    descend(Goal::kLongestHop);
    limit_latency_ = ring_cost(routes_, order_).max_latency_ns;
    descend(Goal::kSumOfHops);
    const auto zero = std::find(order_.begin(), order_.end(), 0);
    std::rotate(order_.begin(), zero, order_.end());
    return order_;
  }

 private:
  [[nodiscard]] int n() const { return static_cast<int>(order_.size()); }
  [[nodiscard]] int rank(int i) const { return order_[at((i + n()) % n())]; }
  [[nodiscard]] Hop hop(int i) const { return {rank(i), rank(i + 1)}; }
  [[nodiscard]] double load_of(int resource) const {
    return loads_[at(resource)] * scale_ / routes_.capacities()[at(resource)];
  }
  [[nodiscard]] double worst_load() const {
    double worst = 0;
    for (int r = 0; r < routes_.resources(); ++r) worst = std::max(worst, load_of(r));
    return worst;
  }

  /// Adds or removes a hop and returns by how much the sum of eighth powers changes.
  double change(Hop hop, int sign) {
    const RankRoute* route = routes_.find(hop.first, hop.second);
    if (route == nullptr) {
      missing_ += sign;
      return sign * kMissing;
    }
    double delta = 0;
    for (const Load& l : route->loads) {
      delta -= eighth(load_of(l.resource));
      loads_[at(l.resource)] = std::max(0.0, loads_[at(l.resource)] + sign * l.load);
      delta += eighth(load_of(l.resource));
    }
    return delta;
  }
  [[nodiscard]] bool overloads(Hop hop) const {
    const RankRoute* route = routes_.find(hop.first, hop.second);
    if (route == nullptr) return true;
    return std::any_of(route->loads.begin(), route->loads.end(), [this](const Load& l) {
      return load_of(l.resource) > limit_load_ * (1 + 1e-9);
    });
  }
  [[nodiscard]] double latency(Hop hop, Goal goal) const {
    const double latency = routes_.latency_or_worst(hop.first, hop.second);
    return goal == Goal::kLongestHop ? eighth(latency) : latency;
  }

  /// Exchanges hops if that is an improvement.
  bool accept(std::span<const Hop> removed, std::span<const Hop> added, Goal goal) {
    --budget_;
    double gain = 0;
    double size = 0;
    if (goal != Goal::kRate) {
      double after = 0;
      for (const Hop& h : removed) size += latency(h, goal);
      for (const Hop& h : added) {
        if (goal == Goal::kSumOfHops &&
            routes_.latency_or_worst(h.first, h.second) > limit_latency_ * (1 + 1e-9)) {
          return false;
        }
        after += latency(h, goal);
      }
      gain = size - after;
      if (gain <= 1e-9 * size) return false;
    }
    double delta = 0;
    for (const Hop& h : removed) delta += change(h, -1);
    const double base = delta;
    for (const Hop& h : added) delta += change(h, 1);
    const bool fine = goal == Goal::kRate
                          ? delta < -1e-9 * std::abs(base)
                          : std::none_of(added.begin(), added.end(),
                                         [this](const Hop& h) { return overloads(h); });
    if (fine) return true;
    for (const Hop& h : added) change(h, -1);
    for (const Hop& h : removed) change(h, 1);
    return false;
  }

  void descend(Goal goal) {
    for (bool improved = true; improved && budget_ > 0;) {
      improved = false;
      for (int length = 1; length <= std::min(kMaxSegment, n() - 2); ++length) {
        for (int i = 0; i < n() && budget_ > 0; ++i)
          improved = move_segment(i, length, goal) || improved;
      }
      if (n() > kMaxReversalRanks) continue;
      for (int i = 0; i < n() && budget_ > 0; ++i) improved = reverse_from(i, goal) || improved;
    }
  }

  /// Takes the `length` ranks from position i to the first better place among all others.
  bool move_segment(int i, int length, Goal goal) {
    std::rotate(order_.begin(), order_.begin() + i, order_.end());
    bool moved = false;
    // Now the segment is 0..length-1; it may go between j and j + 1.
    for (int j = length; j + 1 < n() && !moved && budget_ > 0; ++j) {
      for (const bool reversed : {false, true}) {
        if (reversed && length == 1) continue;
        moved = place(length, j, reversed, goal);
        if (moved) break;
      }
    }
    if (!moved) std::rotate(order_.begin(), order_.end() - i, order_.end());
    return moved;
  }
  bool place(int length, int j, bool reversed, Goal goal) {
    removed_ = {hop(-1), hop(length - 1), hop(j)};
    const int first = rank(reversed ? length - 1 : 0);
    const int last = rank(reversed ? 0 : length - 1);
    added_ = {{rank(-1), rank(length)}, {rank(j), first}, {last, rank(j + 1)}};
    for (int k = 0; reversed && k + 1 < length; ++k) {
      removed_.push_back(hop(k));
      added_.emplace_back(rank(k + 1), rank(k));
    }
    if (!accept(removed_, added_, goal)) return false;
    if (reversed) std::reverse(order_.begin(), order_.begin() + length);
    std::rotate(order_.begin(), order_.begin() + length, order_.begin() + j + 1);
    return true;
  }

  /// Reverses the first segment from position i on for which that is better.
  bool reverse_from(int i, Goal goal) {
    for (int j = i + 1; j < n() && budget_ > 0; ++j) {
      if (j - i + 1 > n() - 2) break;
      removed_ = {hop(i - 1), hop(j)};
      added_ = {{rank(i - 1), rank(j)}, {rank(i), rank(j + 1)}};
      for (int k = i; k < j; ++k) {
        removed_.push_back(hop(k));
        added_.emplace_back(rank(k + 1), rank(k));
      }
      if (!accept(removed_, added_, goal)) continue;
      std::reverse(order_.begin() + i, order_.begin() + j + 1);
      return true;
    }
    return false;
  }

  const Routes& routes_;
  std::vector<int> order_;
  std::int64_t budget_;
  std::vector<double> loads_;
  double scale_ = 1;  ///< so that loads are about 1
  int missing_ = 0;
  double limit_load_ = 0;
  double limit_latency_ = 0;
  std::vector<Hop> removed_;
  std::vector<Hop> added_;
};

/// From each rank to the unvisited one with the fastest route, then the least latency.
std::vector<int> greedy_order(const Routes& routes) {
  std::vector<int> order = {0};
  std::vector<char> visited(at(routes.ranks()), 0);
  visited[0] = 1;
  while (order.size() < at(routes.ranks())) {
    const int here = order.back();
    int next = -1;
    double rate = -1;
    double latency = 0;
    for (int b = 0; b < routes.ranks(); ++b) {
      if (visited[at(b)] != 0) continue;
      const RankRoute* route = routes.find(here, b);
      const double r = route == nullptr ? 0 : route->rate;
      const double l = routes.latency_or_worst(here, b);
      if (next < 0 || r > rate || (r == rate && l < latency)) {
        next = b;
        rate = r;
        latency = l;
      }
    }
    visited[at(next)] = 1;
    order.push_back(next);
  }
  return order;
}

}  // namespace

std::vector<int> local_search_ring(const Routes& routes, std::int64_t max_moves) {
  std::vector<int> identity(at(routes.ranks()));
  std::iota(identity.begin(), identity.end(), 0);
  std::vector<int> best;
  RingCost best_cost;
  for (std::vector<int> start : {identity, greedy_order(routes)}) {
    std::vector<int> order = LocalSearch(routes, std::move(start), max_moves / 2).run();
    if (order.empty()) continue;
    const RingCost cost = ring_cost(routes, order);
    if (best.empty() || better(cost, best_cost)) {
      best = std::move(order);
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace topocoll
