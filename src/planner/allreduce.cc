#include "planner/allreduce.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/index.h"
#include "planner/bound.h"
#include "planner/min_tree.h"
#include "planner/simplex.h"
#include "planner/trees.h"

namespace topocoll {
namespace {

/// How much of the best prices so far goes into the next ones.
constexpr double kSmoothing = 0.5;

/// Hops of the tree that `parent` describes, parents first, along `paths`.
std::vector<Hop> hops_of(const std::vector<int>& parent, int root, const RankPaths& paths) {
  const int n = static_cast<int>(parent.size());
  std::vector<Hop> hops;
  std::vector<int> open{root};
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (int v = 0; v < n; ++v) {
      if (parent[at(v)] != open[i]) continue;
      hops.push_back({open[i], v, paths.path[at(open[i]) * at(n) + at(v)]});
      open.push_back(v);
    }
  }
  return hops;
}

class ColumnGeneration {
 public:
  ColumnGeneration(const Graph& graph, const AllReduceOptions& options)
      : graph_(graph), options_(options), groups_of_(graph.links.size()) {
    for (const GraphLink& link : graph.links) {
      capacity_.push_back(graph.gbps(static_cast<double>(link.capacity)));
    }
    for (std::size_t g = 0; g < graph.groups.size(); ++g) {
      for (const int l : graph.groups[g].links) groups_of_[at(l)].push_back(static_cast<int>(g));
      capacity_.push_back(graph.gbps(static_cast<double>(graph.groups[g].capacity)));
    }
    program_ = std::make_unique<LinearProgram>(capacity_);
  }

  Result<AllReduceTrees> run() {
    if (Status s = add_first_columns(); !s.ok()) return s;
    const Result<AllReduceBound> bound = allreduce_bound(graph_);
    if (!bound.ok()) return bound.status();
    result_.upper = bound->upper.to_double();
    const bool generate = graph_.ranks() <= options_.most_ranks;
    for (;;) {
      Result<LpSolution> solution = program_->solve();
      if (!solution.ok()) return solution.status();
      solution_ = std::move(*solution);
      if (!generate || result_.iterations >= options_.iterations || closed()) break;
      ++result_.iterations;
      if (!improve()) break;
    }
    extract();
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool closed() const {
    return solution_.objective >= result_.upper * (1 - options_.gap);
  }

  /// Trees of both packings with the same root are paired by weight.
  Status add_first_columns() {
    const Result<Packing> gather = pack_allgather(graph_);
    if (!gather.ok()) return gather.status();
    const Result<Packing> scatter = pack_reduce_scatter(graph_);
    if (!scatter.ok()) return scatter.status();
    for (int root = 0; root < graph_.ranks(); ++root) {
      const std::vector<std::pair<double, const Tree*>> in = trees_of(*scatter, root);
      const std::vector<std::pair<double, const Tree*>> out = trees_of(*gather, root);
      std::size_t i = 0;
      std::size_t o = 0;
      while (i < in.size() && o < out.size()) {
        add({0, *in[i].second, *out[o].second});
        const bool in_ends = in[i].first <= out[o].first + 1e-12;
        const bool out_ends = out[o].first <= in[i].first + 1e-12;
        i += in_ends ? 1 : 0;
        o += out_ends ? 1 : 0;
      }
    }
    return Status();
  }

  /// The trees of a root with the sum of weights up to and with each, as a part of all of them.
  static std::vector<std::pair<double, const Tree*>> trees_of(const Packing& packing, int root) {
    std::vector<std::pair<double, const Tree*>> result;
    double sum = 0;
    for (const Tree& tree : packing.trees) {
      if (tree.root != root) continue;
      sum += static_cast<double>(tree.weight);
      result.push_back({sum, &tree});
    }
    for (auto& [weight, tree] : result) weight /= sum;
    return result;
  }

  /// False if the pair is a column already.
  bool add(TreePair pair) {
    std::map<int, int> uses;
    for (const Tree* tree : {&pair.in, &pair.out}) {
      for (const Hop& hop : tree->hops) {
        for (const int l : hop.path) {
          ++uses[l];
          for (const int g : groups_of_[at(l)]) ++uses[static_cast<int>(graph_.links.size()) + g];
        }
      }
    }
    // Pairs that load the same links alike are the same column.
    if (!known_.insert({uses.begin(), uses.end()}).second) return false;
    std::vector<LpEntry> entries;
    for (const auto& [row, count] : uses) entries.push_back({row, static_cast<double>(count)});
    program_->add_column(1, entries);
    pairs_.push_back(std::move(pair));
    return true;
  }

  /// Adds columns that improve at smoothed prices, or else at the present ones. False if there are
  /// none.
  bool improve() {
    std::vector<double> smooth = solution_.dual;
    if (!best_price_.empty()) {
      for (std::size_t i = 0; i < smooth.size(); ++i) {
        smooth[i] = kSmoothing * best_price_[i] + (1 - kSmoothing) * smooth[i];
      }
      if (price(smooth)) return true;
    }
    return price(solution_.dual);
  }

  /// Finds the best pair of every root at prices `y`; adds those that are worth it at the present
  /// duals.
  bool price(const std::vector<double>& y) {
    const int n = graph_.ranks();
    const std::vector<double> asked = link_prices(y);
    const RankPaths paths = cheapest_paths(graph_, asked);
    std::vector<double> turned(paths.cost.size());
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) {
        turned[at(b) * at(n) + at(a)] = paths.cost[at(a) * at(n) + at(b)];
      }
    }
    const std::vector<double> real = link_prices(solution_.dual);
    bool any = false;
    double cheapest = kNoArc;
    for (int root = 0; root < n; ++root) {
      TreePair pair;
      pair.in.root = pair.out.root = root;
      const std::vector<int> in = cheapest_tree(turned, n, root);
      const std::vector<int> out = cheapest_tree(paths.cost, n, root);
      if (in.empty() || out.empty()) return false;
      pair.out.hops = hops_of(out, root, paths);
      pair.in.hops = turned_hops(in, root, paths);
      cheapest = std::min(cheapest, price_of(pair, asked));
      if (price_of(pair, real) < 1 - 1e-7) any |= add(std::move(pair));
    }
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += capacity_[i] * y[i];
    if (cheapest > 0 && sum / cheapest < best_value_) {
      best_value_ = sum / cheapest;
      best_price_ = y;
      result_.upper = std::min(result_.upper, best_value_);
    }
    return any;
  }

  /// Hops of a tree toward the root; `parent` comes from the costs turned round.
  static std::vector<Hop> turned_hops(const std::vector<int>& parent, int root,
                                      const RankPaths& paths) {
    std::vector<Hop> hops = hops_of(parent, root, paths);
    std::reverse(hops.begin(), hops.end());
    const std::size_t n = parent.size();
    for (Hop& hop : hops) {
      std::swap(hop.from, hop.to);
      hop.path = paths.path[at(hop.from) * n + at(hop.to)];
    }
    return hops;
  }

  [[nodiscard]] std::vector<double> link_prices(const std::vector<double>& y) const {
    std::vector<double> result(graph_.links.size());
    for (std::size_t l = 0; l < result.size(); ++l) {
      result[l] = std::max(0.0, y[l]);
      for (const int g : groups_of_[l]) result[l] += std::max(0.0, y[graph_.links.size() + at(g)]);
    }
    return result;
  }

  [[nodiscard]] static double price_of(const TreePair& pair, const std::vector<double>& price) {
    double sum = 0;
    for (const Tree* tree : {&pair.in, &pair.out}) {
      for (const Hop& hop : tree->hops) {
        for (const int l : hop.path) sum += price[at(l)];
      }
    }
    return sum;
  }

  void extract() {
    std::vector<double> load(capacity_.size(), 0);
    double sum = 0;
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      if (solution_.x[p] <= 1e-9 * solution_.objective) continue;
      TreePair pair = pairs_[p];
      pair.weight = solution_.x[p];
      sum += pair.weight;
      for (const Tree* tree : {&pair.in, &pair.out}) {
        for (const Hop& hop : tree->hops) {
          for (const int l : hop.path) {
            load[at(l)] += pair.weight;
            for (const int g : groups_of_[at(l)]) load[graph_.links.size() + at(g)] += pair.weight;
          }
        }
      }
      result_.pairs.push_back(std::move(pair));
    }
    double worst = 1;
    for (std::size_t i = 0; i < load.size(); ++i) worst = std::max(worst, load[i] / capacity_[i]);
    for (TreePair& pair : result_.pairs) pair.weight /= worst;
    result_.algbw = sum / worst;
    std::stable_sort(result_.pairs.begin(), result_.pairs.end(),
                     [](const TreePair& a, const TreePair& b) { return a.weight > b.weight; });
  }

  const Graph& graph_;
  AllReduceOptions options_;
  std::vector<std::vector<int>> groups_of_;
  std::vector<double> capacity_;  ///< of the rows, in GB/s
  std::unique_ptr<LinearProgram> program_;
  std::vector<TreePair> pairs_;  ///< of the columns
  std::set<std::vector<std::pair<int, int>>> known_;
  LpSolution solution_;
  std::vector<double> best_price_;
  double best_value_ = kNoArc;
  AllReduceTrees result_;
};

}  // namespace

Result<AllReduceTrees> pack_allreduce(const Graph& graph, const AllReduceOptions& options) {
  return ColumnGeneration(graph, options).run();
}

}  // namespace topocoll
