#include "planner/ring_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/index.h"
#include "planner/ring_columns.h"

namespace topocoll {
namespace {

constexpr int kMaxChannels = 64;
constexpr double kRounding = 1e-6;
/// Steps of pricing that the rounding may cost in all; a linear program costs one or more pricings
/// of 2^(n-1) n^2 steps.
constexpr double kMaxPricingSteps = 1e9;
constexpr double kMaxPricings = 2000;
/// The same where local search prices, at about n^3 steps each.
constexpr double kMaxHeuristicSteps = 4e6;

/// Packs whole rings into whole capacities: depth first, the rings of the fractional optimum first,
/// cut off where the bound of the rest shows no gain. A proof comes from reaching the bound.
class IntegerPacking {
 public:
  IntegerPacking(RingColumns& columns, std::size_t most, double& pricings)
      : columns_(columns), most_(most), pricings_(pricings) {}

  /// Looks for the largest number of rings that fit into `capacity`, at most the `most` given.
  Status run(const std::vector<double>& capacity) { return dive(capacity, {}); }
  /// Indices into the pool.
  [[nodiscard]] const std::vector<std::size_t>& best() const { return best_; }
  /// No more rings than this fit.
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  /// Extends `chosen`, which leaves `left`.
  Status dive(std::vector<double> left, std::vector<std::size_t> chosen) {
    for (;;) {
      if (chosen.size() > best_.size()) best_ = chosen;
      if (best_.size() >= most_ || pricings_ <= 0) return Status();
      const Result<RingColumns::Optimum> relaxed = columns_.solve(left);
      if (!relaxed.ok()) return relaxed.status();
      pricings_ -= relaxed->iterations;
      // Where local search prices, there is no bound; the value over the known rings stands in.
      const double fit = std::isfinite(relaxed->upper_bound) ? relaxed->upper_bound : relaxed->rate;
      const double more = std::min(fit + kRounding, double{kMaxChannels});
      const std::size_t bound = chosen.size() + static_cast<std::size_t>(more);
      if (chosen.empty()) most_ = std::min(most_, bound);
      if (bound <= best_.size()) return Status();
      std::vector<std::pair<double, std::size_t>> fractions;
      const std::size_t before = chosen.size();
      for (std::size_t k = 0; k < relaxed->x.size(); ++k) {
        const auto copies = static_cast<std::size_t>(relaxed->x[k] + kRounding);
        for (std::size_t c = 0; c < copies && chosen.size() < most_; ++c) {
          take(k, left);
          chosen.push_back(k);
        }
        if (copies == 0 && relaxed->x[k] > kRounding) fractions.emplace_back(-relaxed->x[k], k);
      }
      if (chosen.size() == before) return branch(left, chosen, std::move(fractions));
    }
  }
  Status branch(const std::vector<double>& left, const std::vector<std::size_t>& chosen,
                std::vector<std::pair<double, std::size_t>> fractions) {
    std::sort(fractions.begin(), fractions.end());
    for (const auto& [x, k] : fractions) {
      if (!fits(k, left)) continue;
      std::vector<double> rest = left;
      take(k, rest);
      std::vector<std::size_t> more = chosen;
      more.push_back(k);
      if (Status s = dive(std::move(rest), std::move(more)); !s.ok()) return s;
      if (best_.size() >= most_ || pricings_ <= 0) break;
    }
    return Status();
  }
  [[nodiscard]] bool fits(std::size_t k, const std::vector<double>& left) const {
    const std::vector<double>& loads = columns_.loads(k);
    for (std::size_t r = 0; r < left.size(); ++r) {
      if (loads[r] > left[r] + kRounding) return false;
    }
    return true;
  }
  void take(std::size_t k, std::vector<double>& left) const {
    const std::vector<double>& loads = columns_.loads(k);
    for (std::size_t r = 0; r < left.size(); ++r)
      left[r] = left[r] - loads[r] > kRounding ? left[r] - loads[r] : 0;
  }

  RingColumns& columns_;
  std::size_t most_;
  double& pricings_;
  std::vector<std::size_t> best_;
};

/// Which resources are loaded in whole numbers only; trunks always are.
std::vector<char> whole_loads(const Routes& routes) {
  std::vector<char> whole(routes.capacities().size(), 1);
  for (int a = 0; a < routes.ranks(); ++a) {
    for (int b = 0; b < routes.ranks(); ++b) {
      const RankRoute* route = routes.find(a, b);
      if (route == nullptr) continue;
      for (const Load& l : route->loads) {
        if (l.load != std::floor(l.load)) whole[at(l.resource)] = 0;
      }
    }
  }
  return whole;
}

/// Capacities in rings of rate `rate`, rounded down where loads are whole.
std::vector<double> capacities_at(const Routes& routes, const std::vector<char>& whole,
                                  double rate) {
  std::vector<double> result;
  for (std::size_t r = 0; r < whole.size(); ++r) {
    const double times = routes.capacities()[r] / rate;
    result.push_back(whole[r] != 0 ? std::floor(times + kRounding) : times);
  }
  return result;
}

/// Rates that a channel may have: those at which some resource is full with whole rings.
std::vector<double> candidate_rates(const Routes& routes, int channels, double single) {
  std::vector<double> rates;
  for (double c : routes.capacities()) {
    for (int k = 1; k <= channels * routes.ranks(); ++k) {
      // At less than this even all channels together would be slower than the single ring.
      if (c / k * channels < single * (1 - kRounding)) break;
      rates.push_back(c / k);
    }
  }
  std::sort(rates.begin(), rates.end(), std::greater<>());
  rates.erase(
      std::unique(rates.begin(), rates.end(), [](double a, double b) { return a - b <= 1e-9 * a; }),
      rates.end());
  return rates;
}

struct CandidateRate {
  double rate = 0;
  std::size_t most = 0;  ///< no more rings than this can have it

  [[nodiscard]] double total() const { return rate * static_cast<double>(most); }
};

/// The most promising first. `limit`: no rings together are faster.
std::vector<CandidateRate> ranked_rates(const Routes& routes, int channels, double single,
                                        double limit) {
  std::vector<CandidateRate> result;
  for (double rate : candidate_rates(routes, channels, single)) {
    const double most = std::min(limit / rate + kRounding, static_cast<double>(channels));
    result.push_back({rate, static_cast<std::size_t>(most)});
  }
  std::stable_sort(
      result.begin(), result.end(),
      [](const CandidateRate& a, const CandidateRate& b) { return a.total() > b.total(); });
  return result;
}

/// Looks for faster channels than `best`, which holds a single ring and the bound of the packing
/// `whole`.
Status improve(const Routes& routes, RingColumns& columns, const RingColumns::Optimum& whole,
               int channels, RingChannels& best) {
  const bool exact = routes.ranks() <= kMaxExactRing;
  const std::vector<char> integral = whole_loads(routes);
  double pricings = kMaxHeuristicSteps / std::pow(routes.ranks(), 3);
  if (exact) {
    pricings =
        std::min(kMaxPricings, kMaxPricingSteps / std::exp2(routes.ranks()) / routes.ranks());
  }
  double possible = 0;  // the highest total of a candidate that was not searched to its end
  const double limit = exact ? best.upper_bound : whole.rate;
  for (const CandidateRate& candidate : ranked_rates(routes, channels, best.rate_each, limit)) {
    if (candidate.total() <= best.rate() * (1 + kRounding)) continue;
    IntegerPacking packing(columns, candidate.most, pricings);
    if (Status s = packing.run(capacities_at(routes, integral, candidate.rate)); !s.ok()) return s;
    if (packing.best().size() < packing.most()) {
      possible = std::max(possible, candidate.rate * static_cast<double>(packing.most()));
    }
    const double total = candidate.rate * static_cast<double>(packing.best().size());
    if (total <= best.rate() * (1 + kRounding)) continue;
    best.orders.clear();
    for (std::size_t k : packing.best()) best.orders.push_back(columns.pool()[k]);
    best.rate_each = candidate.rate;
  }
  const bool all_rates = std::find(integral.begin(), integral.end(), 0) == integral.end();
  if (exact && all_rates) {
    best.upper_bound = std::min(best.upper_bound, std::max(possible, best.rate()));
  }
  best.exact = best.rate() >= best.upper_bound * (1 - kRounding);
  return Status();
}

}  // namespace

Result<std::vector<RingChannels>> round_rings(const Routes& routes, std::span<const int> counts) {
  for (int channels : counts) {
    if (channels >= 1 && channels <= kMaxChannels) continue;
    return Status(Cause::kInvalidArgument,
                  fmt::format("rings: {} channels are asked for, 1 to {} are possible", channels,
                              kMaxChannels));
  }
  const Result<RingResult> single = best_ring(routes);
  if (!single.ok()) return single.status();
  RingColumns columns(routes);
  columns.add(single->order);
  columns.add_reverse(single->order);
  const Result<RingColumns::Optimum> whole = columns.solve(routes.capacities());
  if (!whole.ok()) return whole.status();
  std::vector<RingChannels> result;
  for (int channels : counts) {
    RingChannels best;
    best.orders = {single->order};
    best.rate_each = single->cost.rate;
    best.upper_bound = channels == 1 ? single->upper_bound
                                     : std::min(whole->upper_bound, routes.degree_capacity());
    best.exact = best.rate() >= best.upper_bound * (1 - kRounding);
    if (!best.exact && channels > 1) {
      if (Status s = improve(routes, columns, *whole, channels, best); !s.ok()) return s;
    }
    result.push_back(std::move(best));
  }
  return result;
}

Result<RingChannels> round_rings(const Routes& routes, int channels) {
  Result<std::vector<RingChannels>> result = round_rings(routes, std::span(&channels, 1));
  if (!result.ok()) return result.status();
  return std::move(result->front());
}

}  // namespace topocoll
