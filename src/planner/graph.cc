#include "planner/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace topocoll {
namespace {

/// Six decimals and fewer are taken as they are.
constexpr std::int64_t kMostDecimals = 1'000'000;

class GraphMaker {
 public:
  GraphMaker(const GraphDescription& description, std::string_view what)
      : in_(description), what_(what) {}

  Result<Graph> make() {
    for (const auto step :
         {&GraphMaker::check_sizes, &GraphMaker::add_nodes, &GraphMaker::add_links,
          &GraphMaker::add_groups, &GraphMaker::set_capacities, &GraphMaker::check_groups,
          &GraphMaker::check_reachable}) {
      if (Status s = (this->*step)(); !s.ok()) return s;
    }
    return std::move(graph_);
  }

 private:
  [[nodiscard]] Status refuse(std::string_view where, const std::string& why) const {
    return Status(Cause::kInvalidArgument,
                  fmt::format("{}: {}{}{}", what_, where, where.empty() ? "" : ": ", why));
  }

  Status check_sizes() {
    const auto limit = [&](std::string_view list, std::size_t given, int allowed) {
      if (given <= static_cast<std::size_t>(allowed)) return Status();
      return refuse(list, fmt::format("{} are given, {} are allowed", given, allowed));
    };
    const auto ranks = static_cast<std::size_t>(std::count_if(
        in_.nodes.begin(), in_.nodes.end(), [](const auto& node) { return node.is_rank; }));
    if (ranks > static_cast<std::size_t>(kMaxGraphRanks)) {
      return refuse(
          "nodes",
          fmt::format(
              "{} ranks, {} are allowed: plan one host as a cluster of them (--nodes, --fabric)",
              ranks, kMaxGraphRanks));
    }
    if (Status s = limit("nodes", in_.nodes.size(), kMaxGraphNodes); !s.ok()) return s;
    if (Status s = limit("edges", in_.links.size(), kMaxGraphLinks); !s.ok()) return s;
    if (Status s = limit("shared", in_.groups.size(), kMaxGraphLinks); !s.ok()) return s;
    if (ranks >= 2) return Status();
    return refuse("nodes", fmt::format("{} of them can be ranks, a plan needs 2 or more", ranks));
  }

  Status add_nodes() {
    for (const auto& node : in_.nodes) {
      if (node.id.empty()) return refuse(node.where, "the id is empty");
      const auto [known, added] = index_.try_emplace(node.id, graph_.nodes.size());
      if (!added) {
        return refuse(node.where, fmt::format("node \"{}\" was given before, as {}", node.id,
                                              in_.nodes[known->second].where));
      }
      if (node.is_rank) graph_.rank_nodes.push_back(static_cast<int>(graph_.nodes.size()));
      graph_.nodes.push_back({node.id, node.is_rank ? graph_.ranks() - 1 : -1});
    }
    return Status();
  }

  Status add_links() {
    for (const auto& link : in_.links) {
      GraphLink result;
      for (const auto& [id, end] : {std::pair(&link.from, &result.from), {&link.to, &result.to}}) {
        const auto found = index_.find(*id);
        if (found == index_.end()) {
          return refuse(link.where, fmt::format("no node is called \"{}\"", *id));
        }
        *end = static_cast<int>(found->second);
      }
      if (result.from == result.to) {
        return refuse(link.where, fmt::format("a link from \"{}\" to itself", link.from));
      }
      if (link.latency_ns && !(*link.latency_ns >= 0 && *link.latency_ns <= 1e12)) {
        return refuse(link.where,
                      fmt::format("latency {} ns, expected 0 to 1e12", *link.latency_ns));
      }
      result.latency_ns = link.latency_ns;
      if (Status s = take(link.gbps, link.measured, link.where); !s.ok()) return s;
      graph_.links.push_back(result);
    }
    return Status();
  }

  Status add_groups() {
    for (const auto& group : in_.groups) {
      SharedGroup result{group.name, {}, 0};
      for (const std::int64_t link : group.links) {
        if (link < 0 || link >= static_cast<std::int64_t>(in_.links.size())) {
          return refuse(group.where, fmt::format("there is no link {}, only 0 to {}", link,
                                                 static_cast<std::int64_t>(in_.links.size()) - 1));
        }
        result.links.push_back(static_cast<int>(link));
      }
      std::sort(result.links.begin(), result.links.end());
      const auto twice = std::adjacent_find(result.links.begin(), result.links.end());
      if (twice != result.links.end()) {
        return refuse(group.where, fmt::format("link {} is named twice", *twice));
      }
      if (result.links.size() < 2) {
        return refuse(group.where,
                      fmt::format("{} links, a shared group has 2 or more", result.links.size()));
      }
      if (Status s = take(group.gbps, group.measured, group.where); !s.ok()) return s;
      graph_.groups.push_back(std::move(result));
    }
    return Status();
  }

  /// Remembers a bandwidth as an exact number.
  Status take(double gbps, bool measured, const std::string& where) {
    const double value = measured ? quantised(gbps) : gbps;
    std::optional<Rational> exact;
    if (value >= kMinGraphGbps && value <= kMaxGraphGbps) exact = Rational::from_decimal(value);
    if (!exact) {
      return refuse(where,
                    fmt::format("bandwidth {} GB/s, expected {} to {} with at most 15 digits", gbps,
                                kMinGraphGbps, kMaxGraphGbps));
    }
    values_.push_back(*exact);
    return Status();
  }

  /// Bandwidths that follow from a rate and a code, such as 15.753846153846155 of a PCIe slot, have
  /// no common unit with others as decimals, but as the fractions that they are, here 1024/65.
  Status set_capacities() {
    if (take_common_unit()) return Status();
    for (Rational& value : values_) {
      if (value.den() <= kMostDecimals) continue;
      value = Rational::simplest(value.to_double()).value_or(value);
    }
    if (take_common_unit()) return Status();
    return refuse("edges",
                  "the bandwidths have no common unit that is coarse enough: give them with fewer "
                  "digits");
  }

  /// unit = gcd of numerators / lcm of denominators, over all values in lowest terms. Whether there
  /// is one that keeps the capacities within their limit.
  bool take_common_unit() {
    if (values_.empty()) return true;
    Int128 den = 1;
    for (const Rational& value : values_) {
      den = den / gcd(den, value.den()) * value.den();
      if (den > kMaxTotalCapacity) return false;
    }
    Int128 num = 0;
    for (const Rational& value : values_) num = gcd(num, den / value.den() * value.num());
    graph_.unit = *Rational::make(num, den);
    Int128 total = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const Int128 capacity = den / values_[i].den() * values_[i].num() / num;
      total += capacity;
      if (total > kMaxTotalCapacity) return false;
      const std::size_t links = graph_.links.size();
      (i < links ? graph_.links[i].capacity : graph_.groups[i - links].capacity) =
          static_cast<std::int64_t>(capacity);
    }
    return true;
  }

  Status check_groups() {
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) {
      const SharedGroup& group = graph_.groups[g];
      const std::string& where = in_.groups[g].where;
      std::int64_t sum = 0;
      for (const int l : group.links) {
        const std::int64_t capacity = graph_.links[static_cast<std::size_t>(l)].capacity;
        sum += capacity;
        if (capacity <= group.capacity) continue;
        return refuse(where, fmt::format("{} GB/s for the group, but link {} of it alone has {}",
                                         graph_.gbps(static_cast<double>(group.capacity)), l,
                                         graph_.gbps(static_cast<double>(capacity))));
      }
      if (group.capacity > sum) {
        return refuse(where, fmt::format("{} GB/s for links that have {} together limits nothing: "
                                         "leave the group out",
                                         graph_.gbps(static_cast<double>(group.capacity)),
                                         graph_.gbps(static_cast<double>(sum))));
      }
    }
    return Status();
  }

  Status check_reachable() {
    for (const bool forward : {true, false}) {
      const std::vector<bool> reached = reach(graph_.rank_nodes[0], forward);
      for (const int node : graph_.rank_nodes) {
        if (reached[static_cast<std::size_t>(node)]) continue;
        const std::string& first = graph_.rank_id(0);
        const std::string& other = graph_.nodes[static_cast<std::size_t>(node)].id;
        return refuse("edges", fmt::format("\"{}\" cannot reach \"{}\"", forward ? first : other,
                                           forward ? other : first));
      }
    }
    return Status();
  }

  [[nodiscard]] std::vector<bool> reach(int start, bool forward) const {
    std::vector<std::vector<int>> next(graph_.nodes.size());
    for (const GraphLink& link : graph_.links) {
      const auto from = static_cast<std::size_t>(forward ? link.from : link.to);
      next[from].push_back(forward ? link.to : link.from);
    }
    std::vector<bool> reached(graph_.nodes.size(), false);
    std::vector<int> open{start};
    reached[static_cast<std::size_t>(start)] = true;
    while (!open.empty()) {
      const auto node = static_cast<std::size_t>(open.back());
      open.pop_back();
      for (const int n : next[node]) {
        if (reached[static_cast<std::size_t>(n)]) continue;
        reached[static_cast<std::size_t>(n)] = true;
        open.push_back(n);
      }
    }
    return reached;
  }

  const GraphDescription& in_;
  std::string what_;
  Graph graph_;
  std::map<std::string, std::size_t> index_;
  std::vector<Rational> values_;  ///< GB/s of the links, then of the groups
};

}  // namespace

const std::string& Graph::rank_id(int rank) const {
  return nodes[static_cast<std::size_t>(rank_nodes[static_cast<std::size_t>(rank)])].id;
}

Result<Graph> make_graph(const GraphDescription& description, std::string_view what) {
  return GraphMaker(description, what).make();
}

}  // namespace topocoll
