#include "planner/cycle_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/index.h"

namespace topocoll {
namespace {

constexpr int kMaxSegment = 3;
constexpr int kMaxRounds = 1000;

class CycleSearch {
 public:
  CycleSearch(const std::vector<double>& cost, std::vector<int> order)
      : cost_(cost), order_(std::move(order)) {}

  std::vector<int> run() {
    bool improved = true;
    for (int round = 0; improved && round < kMaxRounds; ++round) {
      improved = false;
      for (int length = 1; length <= std::min(kMaxSegment, n() - 2); ++length) {
        for (int i = 0; i < n(); ++i) improved = move_first(length) || improved;
      }
      for (int i = 0; i < n(); ++i) improved = reverse_first() || improved;
    }
    std::rotate(order_.begin(), std::find(order_.begin(), order_.end(), 0), order_.end());
    return order_;
  }

 private:
  [[nodiscard]] int n() const { return static_cast<int>(order_.size()); }
  [[nodiscard]] double hop(int i, int j) const {
    return cost_[at(order_[at(i)]) * at(n()) + at(order_[at(j)])];
  }
  /// Both may be infinite, and then the difference is no number and no gain.
  [[nodiscard]] static bool gains(double before, double after) {
    return before - after > 1e-12 * (1 + std::abs(after));
  }
  void turn() { std::rotate(order_.begin(), order_.begin() + 1, order_.end()); }

  /// Takes the first `length` vertices to the best place among the others; else turns the order by
  /// one, so that the next call looks at the next segment.
  bool move_first(int length) {
    const int last = n() - 1;
    const double leaving = hop(last, 0) + hop(length - 1, length);
    const double closing = hop(last, length);
    double forth = 0;
    double back = 0;
    for (int k = 0; k + 1 < length; ++k) {
      forth += hop(k, k + 1);
      back += hop(k + 1, k);
    }
    double best = std::numeric_limits<double>::infinity();
    int place = -1;
    bool reversed = false;
    for (int j = length; j < last; ++j) {
      const double kept = hop(j, j + 1);
      const double before = leaving + kept + forth;
      const double straight = closing + hop(j, 0) + hop(length - 1, j + 1) + forth;
      const double turned = closing + hop(j, length - 1) + hop(0, j + 1) + back;
      for (const bool turn_it : {false, true}) {
        const double after = turn_it ? turned : straight;
        if (!gains(before, after) || !(after - kept < best)) continue;
        best = after - kept;
        place = j;
        reversed = turn_it;
      }
    }
    if (place < 0) {
      turn();
      return false;
    }
    if (reversed) std::reverse(order_.begin(), order_.begin() + length);
    std::rotate(order_.begin(), order_.begin() + length, order_.begin() + place + 1);
    return true;
  }

  /// Reverses the best segment that begins with the first vertex; else turns the order.
  bool reverse_first() {
    const int last = n() - 1;
    double forth = 0;
    double back = 0;
    double best = 0;
    int end = -1;
    for (int j = 1; j < last; ++j) {
      forth += hop(j - 1, j);
      back += hop(j, j - 1);
      const double before = hop(last, 0) + forth + hop(j, j + 1);
      const double after = hop(last, j) + back + hop(0, j + 1);
      if (!gains(before, after) || !(before - after > best)) continue;
      best = before - after;
      end = j;
    }
    if (end < 0) {
      turn();
      return false;
    }
    std::reverse(order_.begin(), order_.begin() + end + 1);
    return true;
  }

  const std::vector<double>& cost_;
  std::vector<int> order_;
};

std::vector<int> greedy(const std::vector<double>& cost, int n) {
  std::vector<int> order = {0};
  std::vector<char> visited(at(n), 0);
  visited[0] = 1;
  while (order.size() < at(n)) {
    int next = -1;
    for (int w = 0; w < n; ++w) {
      if (visited[at(w)] != 0) continue;
      const std::size_t row = at(order.back()) * at(n);
      if (next < 0 || cost[row + at(w)] < cost[row + at(next)]) next = w;
    }
    visited[at(next)] = 1;
    order.push_back(next);
  }
  return order;
}

}  // namespace

double cycle_cost(const std::vector<double>& cost, const std::vector<int>& order) {
  double sum = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    sum += cost[at(order[i]) * order.size() + at(order[(i + 1) % order.size()])];
  }
  return sum;
}

std::vector<int> cheap_cycle(const std::vector<double>& cost, int n,
                             const std::vector<std::vector<int>>& starts) {
  std::vector<int> best;
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::vector<int>> all = starts;
  all.push_back(greedy(cost, n));
  for (std::vector<int>& start : all) {
    std::vector<int> order = CycleSearch(cost, std::move(start)).run();
    const double sum = cycle_cost(cost, order);
    if (!(sum < least)) continue;
    least = sum;
    best = std::move(order);
  }
  return best;
}

}  // namespace topocoll
