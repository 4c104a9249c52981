// Branch and bound over orders where hops share resources (PCIe trees, shared groups).
#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/index.h"
#include "planner/ring_search.h"

namespace topocoll {
namespace {

/// Which ranks may be exchanged: the transposition of the two maps routes to routes of the same
/// latency, and the resources can be renamed so that each keeps its capacity and its users.
class Twins {
 public:
  explicit Twins(const Routes& routes) : routes_(routes), users_(routes.capacities().size()) {
    for (int a = 0; a < routes.ranks(); ++a) {
      for (int b = 0; b < routes.ranks(); ++b) {
        const RankRoute* route = routes.find(a, b);
        if (route == nullptr) continue;
        for (const Load& l : route->loads) users_[at(l.resource)].push_back({a, b, l.load});
      }
    }
  }

  [[nodiscard]] bool interchangeable(int a, int b) const {
    const auto image = [a, b](int r) { return r == a ? b : r == b ? a : r; };
    for (int x = 0; x < routes_.ranks(); ++x) {
      for (int y = 0; y < routes_.ranks(); ++y) {
        const RankRoute* p = routes_.find(x, y);
        const RankRoute* q = routes_.find(image(x), image(y));
        if ((p == nullptr) != (q == nullptr)) return false;
        if (p != nullptr && p->latency_ns != q->latency_ns) return false;
      }
    }
    std::vector<Signature> before;
    std::vector<Signature> after;
    for (std::size_t r = 0; r < users_.size(); ++r) {
      Signature mapped = {routes_.capacities()[r], users_[r]};
      before.push_back(mapped);
      for (User& u : mapped.second) u = {image(u.from), image(u.to), u.load};
      std::sort(mapped.second.begin(), mapped.second.end());
      after.push_back(std::move(mapped));
    }
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    return before == after;
  }

 private:
  struct User {
    int from = 0;
    int to = 0;
    double load = 0;
    friend auto operator<=>(const User&, const User&) = default;
  };
  using Signature = std::pair<double, std::vector<User>>;

  const Routes& routes_;
  std::vector<std::vector<User>> users_;  ///< of each resource, ascending
};

class Search {
 public:
  Search(const Routes& routes, double upper_bound, std::int64_t max_nodes)
      : routes_(routes),
        n_(routes.ranks()),
        upper_bound_(upper_bound),
        budget_(max_nodes),
        loads_(routes.capacities().size(), 0),
        visited_(at(n_), 0),
        twin_(at(n_), -1) {
    find_twins();
    least_in_.assign(at(n_), std::numeric_limits<double>::infinity());
    for (int b = 0; b < n_; ++b) {
      for (int a = 0; a < n_; ++a) {
        if (routes_.find(a, b) == nullptr) continue;
        least_in_[at(b)] = std::min(least_in_[at(b)], routes_.latency_or_worst(a, b));
      }
    }
  }

  BranchResult run(const std::vector<int>& start) {
    if (!start.empty()) adopt(start);
    order_ = {0};
    visited_[0] = 1;
    const double rest = std::accumulate(least_in_.begin(), least_in_.end(), 0.0);
    // First the rate alone, which ends as soon as the bound is reached; then skew at that rate.
    rate_only_ = true;
    extend(std::numeric_limits<double>::infinity(), 0, 0, rest);
    BranchResult result;
    result.rate_is_proved = budget_ > 0;
    if (best_.empty()) return result;
    rate_only_ = false;
    extend(std::numeric_limits<double>::infinity(), 0, 0, rest);
    result.skew_is_proved = budget_ > 0;
    result.order = best_;
    return result;
  }

 private:
  void find_twins() {
    const Twins twins(routes_);
    for (int b = 2; b < n_; ++b) {
      for (int a = b - 1; a > 0 && twin_[at(b)] < 0; --a) {
        if (twins.interchangeable(a, b)) twin_[at(b)] = a;
      }
    }
  }

  void adopt(const std::vector<int>& order) {
    best_ = order;
    best_cost_ = ring_cost(routes_, order);
  }

  double add(const RankRoute& route, double rate) {
    for (const Load& l : route.loads) {
      double& load = loads_[at(l.resource)];
      load += l.load;
      rate = std::min(rate, routes_.capacities()[at(l.resource)] / load);
    }
    return rate;
  }
  void remove(const RankRoute& route) {
    for (const Load& l : route.loads) loads_[at(l.resource)] -= l.load;
  }

  /// Whether an order with at most this rate, and at least these latencies, could be an
  /// improvement.
  [[nodiscard]] bool hopeful(double rate, double longest, double sum) const {
    if (best_.empty()) return true;
    if (rate_only_) return rate > best_cost_.rate * (1 + 1e-9);
    const double slack = 1e-9;
    if (rate < best_cost_.rate * (1 - slack)) return false;
    if (longest > best_cost_.max_latency_ns * (1 + slack)) return false;
    if (longest < best_cost_.max_latency_ns * (1 - slack)) return true;
    if (sum > best_cost_.sum_latency_ns * (1 + slack)) return false;
    if (sum < best_cost_.sum_latency_ns * (1 - slack)) return true;
    return best_cost_.latency_variance > 1e-9 * longest * longest;
  }

  void close(double rate, double longest, double sum) {
    const RankRoute* last = routes_.find(order_.back(), order_.front());
    if (last == nullptr) return;
    const double total = add(*last, rate);
    remove(*last);
    const double latency = routes_.latency_or_worst(order_.back(), order_.front());
    if (!hopeful(total, std::max(longest, latency), sum + latency)) return;
    const RingCost cost = ring_cost(routes_, order_);
    if (best_.empty() || (rate_only_ ? cost.rate > best_cost_.rate : better(cost, best_cost_))) {
      adopt(order_);
    }
  }

  /// `rest`: the least latency of the hops to come, into all unvisited ranks and back to rank 0.
  void extend(double rate, double longest, double sum, double rest) {
    if (order_.size() == at(n_)) return close(rate, longest, sum);
    const int here = order_.back();
    for (int b = 1; b < n_; ++b) {
      if (budget_ <= 0 || done()) return;
      if (visited_[at(b)] != 0) continue;
      // Of interchangeable ranks the lower comes first: the other orders are mirror images.
      if (twin_[at(b)] >= 0 && visited_[at(twin_[at(b)])] == 0) continue;
      const RankRoute* route = routes_.find(here, b);
      if (route == nullptr) continue;
      --budget_;
      const double latency = routes_.latency_or_worst(here, b);
      const double after = rest - least_in_[at(b)];
      const double next = add(*route, rate);
      if (hopeful(next, std::max(longest, latency), sum + latency + after)) {
        visited_[at(b)] = 1;
        order_.push_back(b);
        extend(next, std::max(longest, latency), sum + latency, after);
        order_.pop_back();
        visited_[at(b)] = 0;
      }
      remove(*route);
    }
  }
  [[nodiscard]] bool done() const {
    return rate_only_ && !best_.empty() && best_cost_.rate >= upper_bound_ * (1 - 1e-9);
  }

  const Routes& routes_;
  int n_;
  double upper_bound_;
  std::int64_t budget_;
  bool rate_only_ = true;
  std::vector<double> loads_;
  std::vector<char> visited_;
  std::vector<int> twin_;  ///< must come earlier in the order, or -1
  std::vector<double> least_in_;
  std::vector<int> order_;
  std::vector<int> best_;
  RingCost best_cost_;
};

}  // namespace

BranchResult branch_and_bound_ring(const Routes& routes, const std::vector<int>& start,
                                   double upper_bound, std::int64_t max_nodes) {
  return Search(routes, upper_bound, max_nodes).run(start);
}

}  // namespace topocoll
