#include "planner/rounding.h"

#include <algorithm>
#include <cmath>

#include "base/index.h"

namespace topocoll {
namespace {

/// Numbers of chunks above the small ones, all of which are tried.
constexpr int kAllUpTo = 32;
constexpr int kLarger[] = {35,  36,  40,  42,  45,  48,  50,  54,  56,  60,  63,  64,
                           70,  72,  75,  80,  84,  90,  96,  100, 105, 112, 120, 126,
                           128, 144, 150, 160, 168, 180, 192, 200, 210, 224, 240, 256,
                           280, 320, 352, 384, 420, 448, 480, 512, 576, 640, 768, 896, 1024};
/// Moves of single chunks for each number of chunks.
constexpr int kMaxMoves = 200;

class Rounder {
 public:
  Rounder(const std::vector<Share>& shares, const std::vector<double>& capacity, int most_trees)
      : shares_(shares), capacity_(capacity), users_(capacity.size()) {
    int groups = 0;
    for (const Share& share : shares) groups = std::max(groups, share.group + 1);
    members_.resize(at(groups));
    for (int i = 0; i < static_cast<int>(shares.size()); ++i) {
      members_[at(shares[at(i)].group)].push_back(i);
      for (const auto& [resource, uses] : shares[at(i)].loads) users_[at(resource)].push_back(i);
    }
    exact_ = rate(loads(parts()));
    for (std::vector<int>& members : members_) {
      std::stable_sort(members.begin(), members.end(),
                       [&](int a, int b) { return shares[at(a)].weight > shares[at(b)].weight; });
      if (members.size() > at(most_trees)) members.resize(at(most_trees));
    }
    kept_.assign(shares.size(), false);
    for (const std::vector<int>& members : members_) {
      for (const int i : members) kept_[at(i)] = true;
    }
    part_ = parts();
  }

  [[nodiscard]] double exact() const { return exact_; }

  /// Counts for `chunks` chunks and the rate they allow.
  [[nodiscard]] std::pair<std::vector<int>, double> round(int chunks) const {
    std::vector<int> count = by_remainder(chunks);
    std::vector<double> load = loads({count.begin(), count.end()});
    for (int k = 0; k < kMaxMoves && move_one(count, load); ++k) {
    }
    return {std::move(count), rate(load) * chunks};
  }

 private:
  [[nodiscard]] std::vector<double> parts() const {
    std::vector<double> result(shares_.size(), 0);
    for (const std::vector<int>& members : members_) {
      double sum = 0;
      for (const int i : members) sum += shares_[at(i)].weight;
      for (const int i : members) result[at(i)] = shares_[at(i)].weight / sum;
    }
    return result;
  }

  [[nodiscard]] std::vector<int> by_remainder(int chunks) const {
    std::vector<int> result(shares_.size(), 0);
    for (const std::vector<int>& members : members_) {
      int given = 0;
      std::vector<std::pair<double, int>> rest;  // what is lost by rounding down, more first
      for (const int i : members) {
        const double wanted = part_[at(i)] * chunks;
        result[at(i)] = static_cast<int>(std::floor(wanted + 1e-9));
        given += result[at(i)];
        rest.push_back({result[at(i)] - wanted, i});
      }
      std::sort(rest.begin(), rest.end());
      for (std::size_t k = 0; given < chunks; ++k, ++given) {
        ++result[at(rest[k % rest.size()].second)];
      }
    }
    return result;
  }

  [[nodiscard]] std::vector<double> loads(const std::vector<double>& amount) const {
    std::vector<double> load(capacity_.size(), 0);
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      for (const auto& [resource, uses] : shares_[i].loads) {
        load[at(resource)] += amount[i] * uses / capacity_[at(resource)];
      }
    }
    return load;
  }

  [[nodiscard]] static double rate(const std::vector<double>& load) {
    const double worst = *std::max_element(load.begin(), load.end());
    return worst > 0 ? 1 / worst : 0;
  }

  /// Moves a chunk off the most loaded resource, to the tree of the same message where the
  /// resources that change end up least loaded. False if that does not lower what was highest.
  bool move_one(std::vector<int>& count, std::vector<double>& load) const {
    const auto worst = std::max_element(load.begin(), load.end());
    const double limit = *worst * (1 - 1e-9);
    int from = -1;
    int to = -1;
    double best = limit;
    for (const int i : users_[static_cast<std::size_t>(worst - load.begin())]) {
      if (!kept_[at(i)] || count[at(i)] == 0) continue;
      shift(load, i, -1);
      for (const int j : members_[at(shares_[at(i)].group)]) {
        if (j == i) continue;
        double highest = *worst;
        for (const auto& [resource, uses] : shares_[at(j)].loads) {
          highest = std::max(highest, load[at(resource)] + uses / capacity_[at(resource)]);
        }
        if (highest >= best) continue;
        best = highest;
        from = i;
        to = j;
      }
      shift(load, i, 1);
    }
    if (from < 0) return false;
    shift(load, from, -1);
    shift(load, to, 1);
    --count[at(from)];
    ++count[at(to)];
    return true;
  }

  void shift(std::vector<double>& load, int share, int by) const {
    for (const auto& [resource, uses] : shares_[at(share)].loads) {
      load[at(resource)] += by * uses / capacity_[at(resource)];
    }
  }

  const std::vector<Share>& shares_;
  const std::vector<double>& capacity_;
  std::vector<std::vector<int>> users_;    ///< shares that load each resource
  std::vector<std::vector<int>> members_;  ///< shares of each group that are kept
  std::vector<bool> kept_;
  std::vector<double> part_;
  double exact_ = 0;
};

}  // namespace

Rounding round_shares(const std::vector<Share>& shares, const std::vector<double>& capacity,
                      const RoundingLimits& limits) {
  std::vector<int> candidates;
  for (int chunks = 1; chunks <= std::min(kAllUpTo, limits.chunks); ++chunks) {
    candidates.push_back(chunks);
  }
  for (const int chunks : kLarger) {
    if (chunks <= limits.chunks) candidates.push_back(chunks);
  }
  Rounding best;
  for (const int trees : {limits.trees, static_cast<int>(shares.size())}) {
    const Rounder rounder(shares, capacity, trees);
    best.exact_rate = rounder.exact();
    for (const int chunks : candidates) {
      auto [count, rate] = rounder.round(chunks);
      if (rate <= best.rate * (1 + 1e-9)) continue;
      best.chunks = chunks;
      best.count = std::move(count);
      best.rate = rate;
      if (rate >= limits.wanted * best.exact_rate) return best;
    }
  }
  return best;
}

}  // namespace topocoll
