#include "planner/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/index.h"
#include "planner/max_flow.h"

namespace topocoll {
namespace {

/// Part of the capacity between two nodes that takes one path.
struct Strand {
  std::vector<int> path;
  std::int64_t amount = 0;
};

class Splitter {
 public:
  Splitter(const Graph& graph, const SplitRequest& request)
      : graph_(graph),
        nodes_(static_cast<int>(graph.nodes.size())),
        demand_(request.demand),
        total_demand_(std::accumulate(demand_.begin(), demand_.end(), std::int64_t{0})),
        capacity_(at(nodes_) * at(nodes_), 0) {
    for (std::size_t l = 0; l < graph.links.size(); ++l) {
      const GraphLink& link = graph.links[l];
      const std::int64_t amount = request.capacity[l];
      if (amount <= 0) continue;
      capacity(link.from, link.to) += amount;
      strands_[{link.from, link.to}].push_back({{static_cast<int>(l)}, amount});
    }
  }

  Result<std::vector<LogicalLink>> run() {
    if (lacking(total_demand_) > 0) return unserved("the links are too slow");
    std::vector<int> switches;
    for (int i = 0; i < nodes_; ++i) {
      if (!graph_.is_rank(i)) switches.push_back(i);
    }
    std::stable_sort(switches.begin(), switches.end(),
                     [&](int a, int b) { return neighbours(a) < neighbours(b); });
    for (const int w : switches) {
      if (!balance(w))
        return unserved(fmt::format("switch \"{}\" takes in and gives out too unequally",
                                    graph_.nodes[at(w)].id));
    }
    for (const int w : switches) {
      for (const bool far_only : {true, false}) join_evenly(w, far_only);
      join_rest(w);
      if (!drop(w))
        return unserved(fmt::format("switch \"{}\" cannot be split", graph_.nodes[at(w)].id));
    }
    return links();
  }

 private:
  std::int64_t& capacity(int from, int to) { return capacity_[at(from) * at(nodes_) + at(to)]; }

  [[nodiscard]] static Status unserved(const std::string& why) {
    return Status(Cause::kUnsupported, "the demand cannot be packed into trees: " + why);
  }

  [[nodiscard]] int neighbours(int w) {
    int count = 0;
    for (int i = 0; i < nodes_; ++i)
      count += (capacity(i, w) > 0 ? 1 : 0) + (capacity(w, i) > 0 ? 1 : 0);
    return count;
  }

  /// What the total demand lacks at the rank that gets least; stops looking at `enough`.
  std::int64_t lacking(std::int64_t enough) {
    MaxFlow network(nodes_ + 1);
    for (int a = 0; a < nodes_; ++a) {
      for (int b = 0; b < nodes_; ++b) {
        if (a < b && (capacity(a, b) > 0 || capacity(b, a) > 0)) {
          network.add_arc(a, b, capacity(a, b), capacity(b, a));
        }
      }
    }
    for (int r = 0; r < graph_.ranks(); ++r) {
      if (demand_[at(r)] > 0) network.add_arc(nodes_, graph_.rank_nodes[at(r)], demand_[at(r)]);
    }
    std::int64_t worst = 0;
    // The rank that was worst last time probably is again.
    const int first = suspect_;
    for (int k = 0; k < graph_.ranks() && worst < enough; ++k) {
      const int r = k == 0 ? first : k <= first ? k - 1 : k;
      const std::int64_t lack =
          total_demand_ - network.run(nodes_, graph_.rank_nodes[at(r)], total_demand_);
      if (lack <= worst) continue;
      worst = lack;
      suspect_ = r;
    }
    return worst;
  }

  /// Lowers the larger of what `w` takes in and gives out until they are equal.
  bool balance(int w) {
    std::int64_t in = 0;
    std::int64_t out = 0;
    for (int i = 0; i < nodes_; ++i) {
      in += capacity(i, w);
      out += capacity(w, i);
    }
    const bool incoming = in > out;
    std::int64_t excess = incoming ? in - out : out - in;
    const std::int64_t sum = incoming ? in : out;
    for (const bool evenly : {true, false}) {
      const std::int64_t all = excess;
      for (int i = 0; i < nodes_ && excess > 0; ++i) {
        const std::int64_t present = incoming ? capacity(i, w) : capacity(w, i);
        const std::int64_t part =
            evenly ? static_cast<std::int64_t>(Int128{present} * all / sum) : present;
        excess -= trim(incoming ? i : w, incoming ? w : i, std::min({part, excess, present}));
      }
    }
    return excess == 0;
  }

  /// Lowers a capacity by `amount` or what is possible; returns by how much.
  std::int64_t trim(int from, int to, std::int64_t amount) {
    if (amount == 0) return 0;
    capacity(from, to) -= amount;
    const std::int64_t back = std::min(amount, lacking(amount));
    capacity(from, to) += back;
    take_strands(from, to, amount - back);
    return amount - back;
  }

  struct Join {
    int from = 0;
    int to = 0;
    std::int64_t amount = 0;
  };

  /// Whether `a` reaches `b` without `w`, directly or through one switch.
  bool is_near(int a, int b, int w) {
    if (capacity(a, b) > 0) return true;
    for (int s = 0; s < nodes_; ++s) {
      if (s != w && !graph_.is_rank(s) && capacity(a, s) > 0 && capacity(s, b) > 0) return true;
    }
    return false;
  }

  /// Joins all arcs at `w` at once, each pair in proportion, if that serves the demand.
  void join_evenly(int w, bool far_only) {
    std::vector<std::int64_t> left(at(nodes_));
    for (int i = 0; i < nodes_; ++i) left[at(i)] = capacity(w, i);
    std::vector<Join> joins;
    for (int a = 0; a < nodes_; ++a) {
      if (capacity(a, w) == 0) continue;
      std::vector<int> targets;
      std::int64_t sum = 0;
      for (int b = 0; b < nodes_; ++b) {
        if (b == a || capacity(w, b) == 0 || (far_only && is_near(a, b, w))) continue;
        targets.push_back(b);
        sum += capacity(w, b);
      }
      for (const int b : targets) {
        const auto share = static_cast<std::int64_t>(Int128{capacity(a, w)} * capacity(w, b) / sum);
        const std::int64_t amount = std::min(share, left[at(b)]);
        left[at(b)] -= amount;
        if (amount > 0) joins.push_back({a, b, amount});
      }
    }
    if (joins.empty()) return;
    for (const Join& j : joins) shift(w, j);
    if (lacking(1) == 0) {
      for (const Join& j : joins) join_strands(w, j);
    } else {
      for (const Join& j : joins) shift(w, {j.from, j.to, -j.amount});
    }
  }

  /// Pair by pair, as much as possible. A pair that comes back where it came from is worth nothing
  /// and comes last.
  void join_rest(int w) {
    for (const bool loops : {false, true}) {
      for (int step = 1; step <= nodes_; ++step) {
        for (int b = 0; b < nodes_; ++b) {
          const int a = (b + step) % nodes_;
          if ((a == b) != loops) continue;
          try_join(w, {a, b, std::min(capacity(a, w), capacity(w, b))});
        }
      }
    }
  }

  void try_join(int w, Join join) {
    if (join.amount == 0) return;
    shift(w, join);
    const std::int64_t back = std::min(join.amount, lacking(join.amount));
    shift(w, {join.from, join.to, -back});
    join.amount -= back;
    if (join.amount > 0) join_strands(w, join);
  }

  void shift(int w, const Join& join) {
    capacity(join.from, w) -= join.amount;
    capacity(w, join.to) -= join.amount;
    if (join.from != join.to) capacity(join.from, join.to) += join.amount;
  }

  /// What could not be joined must not be needed.
  bool drop(int w) {
    bool any = false;
    for (int i = 0; i < nodes_; ++i) {
      any = any || capacity(i, w) > 0 || capacity(w, i) > 0;
      capacity(i, w) = capacity(w, i) = 0;
    }
    return !any || lacking(1) == 0;
  }

  std::vector<Strand> take_strands(int from, int to, std::int64_t amount) {
    std::vector<Strand> taken;
    auto& list = strands_[{from, to}];
    while (amount > 0) {
      Strand& first = list.front();
      const std::int64_t part = std::min(amount, first.amount);
      taken.push_back({first.path, part});
      first.amount -= part;
      amount -= part;
      if (first.amount == 0) list.erase(list.begin());
    }
    return taken;
  }

  void join_strands(int w, const Join& join) {
    const std::vector<Strand> in = take_strands(join.from, w, join.amount);
    std::vector<Strand> out = take_strands(w, join.to, join.amount);
    if (join.from == join.to) return;
    auto& list = strands_[{join.from, join.to}];
    std::size_t o = 0;
    for (const Strand& first : in) {
      for (std::int64_t left = first.amount; left > 0;) {
        const std::int64_t part = std::min(left, out[o].amount);
        std::vector<int> path = first.path;
        path.insert(path.end(), out[o].path.begin(), out[o].path.end());
        const auto same =
            std::find_if(list.begin(), list.end(), [&](const Strand& s) { return s.path == path; });
        if (same != list.end()) {
          same->amount += part;
        } else {
          list.push_back({std::move(path), part});
        }
        left -= part;
        if ((out[o].amount -= part) == 0) ++o;
      }
    }
  }

  [[nodiscard]] std::vector<LogicalLink> links() const {
    std::vector<LogicalLink> result;
    for (const auto& [ends, list] : strands_) {
      const int from = graph_.nodes[at(ends.first)].rank;
      const int to = graph_.nodes[at(ends.second)].rank;
      if (from < 0 || to < 0) continue;
      for (const Strand& s : list) result.push_back({from, to, s.amount, s.path});
    }
    std::sort(result.begin(), result.end(), [](const LogicalLink& a, const LogicalLink& b) {
      return std::tie(a.from, a.to, a.path) < std::tie(b.from, b.to, b.path);
    });
    return result;
  }

  const Graph& graph_;
  int nodes_;
  std::vector<std::int64_t> demand_;
  std::int64_t total_demand_;
  std::vector<std::int64_t> capacity_;
  std::map<std::pair<int, int>, std::vector<Strand>> strands_;
  int suspect_ = 0;
};

}  // namespace

Result<std::vector<LogicalLink>> split_off_switches(const Graph& graph,
                                                    const SplitRequest& request) {
  return Splitter(graph, request).run();
}

}  // namespace topocoll
