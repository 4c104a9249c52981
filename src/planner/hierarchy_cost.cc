#include "planner/hierarchy_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/index.h"
#include "planner/node_tree.h"
#include "planner/simulator.h"

namespace topocoll {
namespace {

constexpr int kMostWindows = 1 << 16;
constexpr int kSimulatedWindows = 16;
/// Ranks of the larger small cluster, where two nodes are enough.
constexpr int kSmallRanks = 48;
/// Larger nodes make small clusters that are none.
constexpr int kMostGpus = 32;

bool is_path(NodeShape shape) { return shape == NodeShape::kRing || shape == NodeShape::kChain; }

int depth_of(const HierarchicalPlan& plan) {
  int deepest = 0;
  for (const int item : {0, plan.items() - 1}) {
    const NodeTree tree(plan, item);
    for (int p = 0; p < plan.cluster.nodes; ++p) deepest = std::max(deepest, tree.depth(p));
  }
  return deepest;
}

/// Nodes of the two small clusters.
std::pair<int, int> small_sizes(const HierarchicalPlan& plan) {
  const int gpus = plan.cluster.gpus();
  if (is_path(plan.shape)) {
    const int larger = std::clamp(kSmallRanks / gpus, 4, 16);
    return {larger / 2, larger};
  }
  // Full binary trees of depth 1 and 2, or 2 and 3.
  return 15 * gpus <= 2 * kSmallRanks ? std::pair(7, 15) : std::pair(3, 7);
}

/// Latency of spines, spread over all edges of the tree over nodes.
double spine_latency_ns(const HierarchicalPlan& plan) {
  const Cluster& c = plan.cluster;
  if (c.spines == 0) return 0;
  const std::size_t uplink = c.cell.links.size() - 2 * at(c.rails);
  const double whole = 2 * c.cell.links[uplink].latency_ns.value_or(0);
  const NodeTree tree(plan, 0);
  int edges = 0;
  int across = 0;
  for (int p = 0; p < c.nodes; ++p) {
    for (const int child : tree.children(p)) {
      ++edges;
      if (c.leaf_of(plan.order[at(p)]) != c.leaf_of(plan.order[at(child)])) ++across;
    }
  }
  return whole * across / std::max(1, edges);
}

}  // namespace

Result<HierarchyCost::Small> HierarchyCost::shrink(const HierarchicalPlan& plan, int nodes) {
  HierarchicalPlan less = plan;
  Cluster& cluster = less.cluster;
  if (nodes < plan.cluster.nodes) {
    // All below one leaf, in the order of numbers: the hops that were left out had no other cost
    // than these.
    const double more_ns = spine_latency_ns(plan);
    for (const CellPort& port : cluster.ports) {
      if (port.out < 0) continue;
      std::optional<double>& latency = cluster.cell.links[at(port.out)].latency_ns;
      if (more_ns > 0) latency = latency.value_or(0) + more_ns;
    }
    cluster.nodes = nodes;
    cluster.nodes_per_leaf = nodes;
    less.order.resize(at(nodes));
    std::iota(less.order.begin(), less.order.end(), 0);
    less.root = plan.root % cluster.gpus();
    if (plan.shape == NodeShape::kRing) less.message_chunks = less.items();
  }
  Small small;
  small.message_chunks = less.message_chunks;
  small.depth = depth_of(less);
  auto expanded = expand(less);
  if (!expanded.ok()) return expanded.status();
  small.plan = std::move(*expanded);
  auto graph = flat_graph(cluster);
  if (!graph.ok()) return graph.status();
  small.graph = std::move(*graph);
  small.routes = std::make_shared<const Routes>(small.graph);
  return small;
}

Result<HierarchyCost> HierarchyCost::make(const HierarchicalPlan& plan, int most_nodes) {
  if (plan.cluster.gpus() > kMostGpus) {
    return Status(
        Cause::kUnsupported,
        fmt::format("clusters of nodes with {} GPUs are planned, but not simulated: {} at most",
                    plan.cluster.gpus(), kMostGpus));
  }
  HierarchyCost cost(plan);
  cost.depth_ = depth_of(plan);
  const auto [smaller, larger] = small_sizes(plan);
  std::vector<int> sizes{smaller, larger};
  if (plan.cluster.nodes <= std::max(larger, most_nodes)) sizes = {plan.cluster.nodes};
  for (const int nodes : sizes) {
    auto small = shrink(plan, nodes);
    if (!small.ok()) return small.status();
    cost.small_.push_back(std::move(*small));
  }
  return cost;
}

Result<HierarchyCost::Time> HierarchyCost::run(const Small& small, double chunk_bytes,
                                               int windows) {
  SimulationOptions options;
  options.bytes = chunk_bytes * windows * static_cast<double>(small.message_chunks);
  options.windows = windows;
  options.slots += 4 * small.depth;
  auto run = simulate(small.plan, small.graph, *small.routes, CostModel::declared(), options);
  if (!run.ok()) return run.status();
  return Time{run->time_ns, run->spread_ns};
}

Result<double> HierarchyCost::interval_ns(double chunk_bytes) const {
  auto fewer = run(small_.back(), chunk_bytes, kSimulatedWindows / 2);
  if (!fewer.ok()) return fewer.status();
  auto more = run(small_.back(), chunk_bytes, kSimulatedWindows);
  if (!more.ok()) return more.status();
  return std::max(0.0, more->ns - fewer->ns) / (kSimulatedWindows / 2);
}

Result<HierarchyCost::Time> HierarchyCost::deepened(double chunk_bytes, int windows) const {
  auto larger = run(small_.back(), chunk_bytes, windows);
  if (!larger.ok() || small_.size() == 1) return larger;
  auto smaller = run(small_[0], chunk_bytes, windows);
  if (!smaller.ok()) return smaller;
  const double further =
      static_cast<double>(depth_ - small_[1].depth) / (small_[1].depth - small_[0].depth);
  const auto extended = [&](double a, double b) { return b + std::max(0.0, b - a) * further; };
  return Time{extended(smaller->ns, larger->ns), extended(smaller->spread_ns, larger->spread_ns)};
}

Result<HierarchyCost::Time> HierarchyCost::time(double chunk_bytes, int windows) const {
  const bool simulated = plan_->shape == NodeShape::kRing || small_.size() == 1;
  if (windows == 1 || (simulated && windows <= kSimulatedWindows))
    return deepened(chunk_bytes, windows);
  auto time = deepened(chunk_bytes, simulated ? kSimulatedWindows : 1);
  if (!time.ok()) return time;
  auto interval = interval_ns(chunk_bytes);
  if (!interval.ok()) return interval.status();
  if (simulated) {
    time->ns += *interval * (windows - kSimulatedWindows);
  } else {
    const int ways = plan_->shape == NodeShape::kDoubleTree ? 2 : 1;
    time->ns = std::max(time->ns + *interval * (windows - 1) / ways, *interval * windows);
  }
  return time;
}

Result<PlanPrediction> HierarchyCost::predict(std::uint64_t bytes) const {
  const double chunk_bytes =
      static_cast<double>(bytes) / static_cast<double>(plan_->message_chunks);
  const Cluster& c = plan_->cluster;
  const int worst = plan_->bottleneck();
  const GraphLink& link = c.cell.links[at(worst)];
  const double busy_ns = chunk_bytes * static_cast<double>(plan_->load[at(worst)]) /
                         c.cell.gbps(static_cast<double>(link.capacity));
  // Around a long ring windows meet at every hop, so they are simulated.
  const int most =
      plan_->shape == NodeShape::kRing && small_.size() > 1 ? kSimulatedWindows : kMostWindows;
  PlanPrediction best;
  for (int windows = 1; windows <= most; windows *= 2) {
    auto now = time(chunk_bytes / windows, windows);
    if (!now.ok()) return now.status();
    const double ns = std::max(now->ns, busy_ns);
    if (windows > 1 && ns / 1e3 >= best.time_us) break;
    best = {bytes,
            windows,
            ns / 1e3,
            ns > 0 ? static_cast<double>(bytes) / ns : 0,
            now->spread_ns / 1e3,
            fmt::format("{} -> {}", c.cell.nodes[at(link.from)].id, c.cell.nodes[at(link.to)].id),
            ns > 0 ? busy_ns / ns : 0};
  }
  return best;
}

}  // namespace topocoll
