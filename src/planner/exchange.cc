#include "planner/exchange.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/index.h"
#include "planner/bound.h"
#include "planner/min_tree.h"
#include "planner/simplex.h"

namespace topocoll {
namespace {

constexpr double kTolerance = 1e-7;
/// Up to so many ranks the program is solved to the end, beyond to this part of the bound.
constexpr int kExactRanks = 16;
constexpr double kGap = 0.002;
/// Work of the column generation: pivots, each the square of the rows, and how many an iteration
/// takes about.
constexpr double kMaxWork = 4e9;
constexpr double kPivots = 400;
/// Scales on which lengths are rounded to whole numbers; coarse ones give the simple fractions.
constexpr int kScales[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32, 48, 64, 4096};

/// Cheapest ways from every rank to every other, past switches and ranks.
struct Ways {
  std::vector<double> cost;  ///< ranks * ranks
  std::vector<int> before;   ///< the rank before the last hop, in the same order
  RankPaths hops;
};

/// Dijkstra's method from every rank over hops; of ways of equal cost the one of fewer hops.
Ways cheapest_ways(const Graph& graph, const std::vector<double>& price) {
  const int n = graph.ranks();
  Ways ways{std::vector<double>(at(n) * at(n), kNoArc), std::vector<int>(at(n) * at(n), -1),
            cheapest_paths(graph, price)};
  for (int s = 0; s < n; ++s) {
    double* const cost = &ways.cost[at(s) * at(n)];
    int* const before = &ways.before[at(s) * at(n)];
    std::vector<int> count(at(n), n + 1);
    std::vector<bool> done(at(n), false);
    cost[s] = 0;
    count[at(s)] = 0;
    for (int round = 0; round < n; ++round) {
      int near = -1;
      for (int r = 0; r < n; ++r) {
        if (done[at(r)] || cost[r] == kNoArc) continue;
        if (near < 0 || std::pair(cost[r], count[at(r)]) < std::pair(cost[near], count[at(near)])) {
          near = r;
        }
      }
      if (near < 0) break;
      done[at(near)] = true;
      for (int r = 0; r < n; ++r) {
        const double hop = ways.hops.cost[at(near) * at(n) + at(r)];
        if (done[at(r)] || hop == kNoArc) continue;
        const std::pair by{cost[near] + hop, count[at(near)] + 1};
        if (by >= std::pair(cost[r], count[at(r)])) continue;
        std::tie(cost[r], count[at(r)]) = by;
        before[r] = near;
      }
    }
  }
  return ways;
}

/// Prices of links with those of the groups that they are in.
std::vector<double> with_groups(const Graph& graph, const std::vector<double>& price) {
  std::vector<double> result(price.begin(), price.begin() + static_cast<long>(graph.links.size()));
  for (std::size_t g = 0; g < graph.groups.size(); ++g) {
    for (const int l : graph.groups[g].links) result[at(l)] += price[graph.links.size() + g];
  }
  return result;
}

std::vector<std::int64_t> capacities(const Graph& graph) {
  std::vector<std::int64_t> result;
  for (const GraphLink& link : graph.links) result.push_back(link.capacity);
  for (const SharedGroup& group : graph.groups) result.push_back(group.capacity);
  return result;
}

/// The least bound that lengths have proved so far.
class Proof {
 public:
  explicit Proof(const Graph& graph) : graph_(graph), capacity_(capacities(graph)) {
    for (const int node : graph.rank_nodes) {
      std::vector<double> out(capacity_.size(), 0);
      std::vector<double> in(capacity_.size(), 0);
      for (std::size_t l = 0; l < graph.links.size(); ++l) {
        out[l] = graph.links[l].from == node ? 1 : 0;
        in[l] = graph.links[l].to == node ? 1 : 0;
      }
      consider(out);
      consider(in);
    }
  }

  void consider_rounded(const std::vector<double>& price) {
    const double most = *std::max_element(price.begin(), price.end());
    if (most <= 0) return;
    for (const int scale : kScales) {
      std::vector<double> length;
      for (const double p : price) length.push_back(std::round(p / most * scale));
      consider(length);
    }
  }

  [[nodiscard]] const std::optional<Rational>& algbw() const { return algbw_; }

  /// The nodes that the lengths leave together, if the cut between them and the rest proves as
  /// much.
  [[nodiscard]] std::vector<int> cut() const {
    for (int r = 0; r < graph_.ranks(); ++r) {
      const std::vector<bool> inside = at_no_distance(graph_.rank_nodes[at(r)]);
      const auto ranks = static_cast<std::int64_t>(
          std::count_if(graph_.rank_nodes.begin(), graph_.rank_nodes.end(),
                        [&](int node) { return inside[at(node)]; }));
      const std::int64_t pairs = ranks * (graph_.ranks() - ranks);
      const auto by_cut = algbw_of(leaving_capacity(graph_, inside), pairs);
      if (pairs == 0 || by_cut != algbw_) continue;
      std::vector<int> nodes;
      for (std::size_t i = 0; i < inside.size(); ++i) {
        if (inside[i]) nodes.push_back(static_cast<int>(i));
      }
      return nodes;
    }
    return {};
  }

 private:
  [[nodiscard]] std::optional<Rational> algbw_of(Int128 capacity, Int128 pairs) const {
    const auto units = Rational::make(capacity * graph_.ranks(), pairs);
    return units ? units->times(graph_.unit) : std::nullopt;
  }

  /// `length` holds small whole numbers, of which sums are exact.
  void consider(const std::vector<double>& length) {
    const std::vector<double> cost = cheapest_ways(graph_, with_groups(graph_, length)).cost;
    const double distances = std::accumulate(cost.begin(), cost.end(), 0.0);
    if (distances <= 0) return;
    Int128 total = 0;
    for (std::size_t i = 0; i < length.size(); ++i) {
      total += Int128{capacity_[i]} * static_cast<std::int64_t>(length[i]);
    }
    const auto algbw = algbw_of(total, static_cast<std::int64_t>(distances));
    if (!algbw || (algbw_ && !(*algbw < *algbw_))) return;
    algbw_ = algbw;
    length_ = with_groups(graph_, length);
  }

  [[nodiscard]] std::vector<bool> at_no_distance(int start) const {
    std::vector<bool> inside(graph_.nodes.size(), false);
    std::vector<int> open{start};
    inside[at(start)] = true;
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      for (std::size_t l = 0; l < graph_.links.size(); ++l) {
        const GraphLink& link = graph_.links[l];
        if (link.from != node || length_[l] > 0 || inside[at(link.to)]) continue;
        inside[at(link.to)] = true;
        open.push_back(link.to);
      }
    }
    return inside;
  }

  const Graph& graph_;
  std::vector<std::int64_t> capacity_;
  std::optional<Rational> algbw_;
  std::vector<double> length_;  ///< of links, that proved it
};

/// Rows: one for each sender, whose columns carry at least the common rate; then links and groups.
class ExchangeProgram {
 public:
  explicit ExchangeProgram(const Graph& graph) : graph_(graph), lp_(rows(graph)) {
    std::vector<LpEntry> common;
    for (int s = 0; s < graph.ranks(); ++s) common.push_back({s, 1.0});
    lp_.add_column(1, common);
  }

  Status run(Proof& proof) {
    const std::vector<std::int64_t> capacity = capacities(graph_);
    std::vector<double> price(capacity.size(), 0);
    std::vector<double> tightest = price;
    std::vector<double> worth(at(graph_.ranks()), std::numeric_limits<double>::infinity());
    const double gap = graph_.ranks() <= kExactRanks ? kTolerance : kGap;
    const double work = kPivots * std::pow(lp_.rows(), 2);
    double upper = std::numeric_limits<double>::infinity();
    for (double spent = 0; spent < kMaxWork; spent += work) {
      const Ways ways = cheapest_ways(graph_, with_groups(graph_, price));
      // What these prices prove (Lagrange); nothing if ways cost nothing.
      const double distances = std::accumulate(ways.cost.begin(), ways.cost.end(), 0.0);
      const double paid = std::inner_product(price.begin(), price.end(), capacity.begin(), 0.0);
      if (distances > 0 && paid / distances < upper) {
        upper = paid / distances;
        tightest = price;
      }
      if (rate() >= upper * (1 - gap)) break;
      bool grown = false;
      for (int s = 0; s < graph_.ranks(); ++s) grown |= add(ways, s, worth[at(s)]);
      if (!grown) break;
      Result<LpSolution> solution = lp_.solve();
      if (!solution.ok()) return solution.status();
      solution_ = std::move(*solution);
      const auto first = solution_.dual.begin();
      worth.assign(first, first + graph_.ranks());
      price.assign(first + graph_.ranks(), solution_.dual.end());
    }
    proof.consider_rounded(tightest);
    return Status();
  }

  [[nodiscard]] double rate() const { return solution_.objective; }  ///< of a pair, in units

  [[nodiscard]] std::vector<ExchangeWay> ways() const {
    std::map<std::pair<int, int>, std::map<std::vector<int>, ExchangeWay>> found;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const double share = solution_.x[c + 1] / rate();
      if (share < kTolerance) continue;
      const Column& column = columns_[c];
      for (int d = 0; d < graph_.ranks(); ++d) {
        if (d == column.from) continue;
        const std::vector<Hop>& hops = column.to[at(d)];
        std::vector<int> links;
        for (const Hop& hop : hops) links.insert(links.end(), hop.path.begin(), hop.path.end());
        auto& way = found[{column.from, d}][links];
        way.way = {column.from, 0, hops};
        way.to = d;
        way.share += share;
      }
    }
    std::vector<ExchangeWay> result;
    for (auto& [pair, ways] : found) {
      double sum = 0;
      for (const auto& [links, way] : ways) sum += way.share;
      for (auto& [links, way] : ways) {
        way.share /= sum;
        result.push_back(std::move(way));
      }
    }
    return result;
  }

 private:
  struct Column {
    int from = 0;
    std::vector<std::vector<Hop>> to;  ///< by receiver
  };

  static std::vector<double> rows(const Graph& graph) {
    std::vector<double> rhs(at(graph.ranks()), 0.0);
    for (const std::int64_t c : capacities(graph)) rhs.push_back(static_cast<double>(c));
    return rhs;
  }

  /// Adds the cheapest ways from `from` if they cost less than carrying from there is worth.
  bool add(const Ways& ways, int from, double worth) {
    const int n = graph_.ranks();
    const auto begin = ways.cost.begin() + static_cast<long>(at(from) * at(n));
    const double cost = std::accumulate(begin, begin + n, 0.0);
    if (cost > worth - kTolerance / n) return false;
    Column column{from, std::vector<std::vector<Hop>>(at(n))};
    std::map<int, double> load;
    for (int d = 0; d < n; ++d) {
      std::vector<Hop>& hops = column.to[at(d)];
      for (int r = d; r != from;) {
        const int before = ways.before[at(from) * at(n) + at(r)];
        hops.push_back({before, r, ways.hops.path[at(before) * at(n) + at(r)]});
        for (const int l : hops.back().path) ++load[l];
        r = before;
      }
      std::reverse(hops.begin(), hops.end());
    }
    const int links = static_cast<int>(graph_.links.size());
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) {
      for (const int l : graph_.groups[g].links) {
        if (load.contains(l)) load[links + static_cast<int>(g)] += load[l];
      }
    }
    std::vector<LpEntry> entries{{from, -1.0}};
    for (const auto& [resource, uses] : load) entries.push_back({n + resource, uses});
    lp_.add_column(0, entries);
    columns_.push_back(std::move(column));
    return true;
  }

  const Graph& graph_;
  LinearProgram lp_;
  std::vector<Column> columns_;
  LpSolution solution_;
};

}  // namespace

Result<Exchange> pack_exchange(const Graph& graph) {
  Proof proof(graph);
  ExchangeProgram program(graph);
  if (Status s = program.run(proof); !s.ok()) return s;
  if (!proof.algbw()) {
    return Status(
        Cause::kUnsupported,
        "the bound of this graph does not fit 64-bit fractions: give bandwidths with fewer digits");
  }
  Exchange result;
  result.ways = program.ways();
  result.algbw = graph.gbps(program.rate()) * graph.ranks();
  result.bound = *proof.algbw();
  result.reached = result.algbw >= result.bound.to_double() * (1 - 1e-6);
  result.cut = proof.cut();
  return result;
}

}  // namespace topocoll
