#include "planner/hierarchy.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/index.h"
#include "planner/lanes.h"
#include "planner/node_template.h"
#include "planner/node_tree.h"

namespace topocoll {
namespace {

constexpr int kChunkCounts[] = {1, 2, 3, 4, 6, 8, 12, 16};
/// Finer chunks must be worth this much.
constexpr double kWorthFiner = 1.005;
/// Of the bound; with this a plan is good enough.
constexpr double kGoodEnough = 0.99;

Status unsupported(std::string text) { return Status(Cause::kUnsupported, std::move(text)); }

bool serves(NodeShape shape, CollectiveKind kind) {
  switch (shape) {
    case NodeShape::kRing:
      return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
             kind == CollectiveKind::kReduceScatter;
    case NodeShape::kDoubleTree:
      return kind == CollectiveKind::kAllReduce;
    default:
      return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
  }
}

/// What a template's parts are used for, at the node (or leaf) where they are used most.
struct Usage {
  TemplateUse first;  ///< the node where items begin
  TemplateUse others;
  std::int64_t across = 0;  ///< times each slot's item leaves, and enters, a leaf
};

Usage usage_of(const Cluster& cluster, const HierarchyRequest& request) {
  const std::int64_t further = cluster.nodes - 1;
  const bool leaves = cluster.leaves() > 1;
  switch (request.shape) {
    case NodeShape::kRing: {
      const TemplateUse use{1, further, further, further};
      return {use, use, leaves ? further : 0};
    }
    case NodeShape::kChain:
      return {{1, 0, 1, 0}, {0, 1, 1, 1}, leaves ? 1 : 0};
    default: {
      const NodeTree::Degrees degrees = NodeTree::degrees(request.shape, cluster, request.order);
      const TemplateUse use{0, degrees.trees, degrees.children, degrees.trees};
      const TemplateUse first{1, 0, degrees.children, 0};
      return {request.shape == NodeShape::kDoubleTree ? use : first, use, degrees.across};
    }
  }
}

/// Adds what a template loads on each link, mirrored or not: links keep their numbers.
void add_loads(const Cluster& cluster, const NodeTemplate& made, const Usage& usage,
               std::vector<std::int64_t>& load) {
  std::vector<std::int64_t> first = template_loads(cluster, made, usage.first);
  const std::vector<std::int64_t> others = template_loads(cluster, made, usage.others);
  for (std::size_t l = 0; l < load.size(); ++l) load[l] += std::max(first[l], others[l]);
  if (cluster.spines == 0) return;
  const int uplinks = static_cast<int>(cluster.cell.links.size()) - 2 * cluster.rails;
  for (const int lane : made.lane) {
    const int rail = made.lanes[at(lane)].rail;
    load[at(uplinks + 2 * rail)] += usage.across;
    load[at(uplinks + 2 * rail + 1)] += usage.across;
  }
}

class Planner {
 public:
  Planner(const Cluster& cluster, const HierarchyRequest& request)
      : cluster_(cluster), request_(request), usage_(usage_of(cluster, request)) {}

  Result<HierarchicalPlan> best() {
    std::optional<HierarchicalPlan> best;
    for (const int chunks : kChunkCounts) {
      auto plan = with_chunks(chunks);
      if (!plan.ok()) {
        if (best) break;
        return plan.status();
      }
      const double now = plan->algbw()->to_double();
      if (!best || now > best->algbw()->to_double() * kWorthFiner) best = std::move(*plan);
      if (best->algbw()->to_double() >= request_.enough * kGoodEnough) break;
    }
    return std::move(*best);
  }

 private:
  Result<HierarchicalPlan> with_chunks(int chunks) const {
    HierarchicalPlan plan;
    plan.kind = request_.kind;
    plan.shape = request_.shape;
    plan.root = has_root(request_.kind) ? request_.root : 0;
    plan.cluster = cluster_;
    plan.order = request_.order;
    plan.chunks = chunks;
    plan.load.assign(cluster_.cell.links.size(), 0);
    const bool reduces = topocoll::reduces(request_.kind);
    const bool spreads =
        request_.kind != CollectiveKind::kReduceScatter && request_.kind != CollectiveKind::kReduce;
    if (reduces) {
      auto made = make(reversed(cluster_), chunks, nullptr);
      if (!made.ok()) return made.status();
      add_loads(cluster_, *made, usage_, plan.load);
      plan.reduces = std::move(*made);
    }
    if (spreads) {
      // Trees over nodes turn round where they began.
      const bool turns = request_.shape == NodeShape::kDoubleTree;
      auto made = make(cluster_, chunks, turns ? &*plan.reduces : nullptr);
      if (!made.ok()) return made.status();
      add_loads(cluster_, *made, usage_, plan.load);
      plan.spreads = std::move(*made);
    }
    plan.message_chunks = request_.shape == NodeShape::kRing
                              ? std::int64_t{cluster_.nodes} * plan.slots()
                          : request_.shape == NodeShape::kDoubleTree ? 2 * plan.slots()
                                                                     : plan.slots();
    if (plan.message_chunks > kMaxMessageChunks)
      return unsupported("the message would have too many chunks");
    if (!plan.algbw()) return unsupported("the plan's rate does not fit 64-bit fractions");
    return plan;
  }

  [[nodiscard]] Result<NodeTemplate> make(const Cluster& cluster, int chunks,
                                          const NodeTemplate* like) const {
    TemplateRequest request;
    request.slots = cluster.gpus() * chunks;
    for (int s = 0; s < request.slots; ++s) {
      const bool rooted = has_root(request_.kind);
      request.root.push_back(rooted ? request_.root % cluster.gpus() : s / chunks);
    }
    request.use = usage_.others;
    request.use.own = usage_.first.own;
    request.first_is_apart = has_root(request_.kind);
    request.own_is_transit = request_.shape == NodeShape::kDoubleTree;
    request.across = usage_.across;
    request.like = like;
    return make_template(cluster, request);
  }

  static constexpr std::int64_t kMaxMessageChunks = std::int64_t{1} << 30;
  const Cluster& cluster_;
  const HierarchyRequest& request_;
  Usage usage_;
};

}  // namespace

std::string_view name(NodeShape shape) {
  constexpr std::string_view kNames[] = {"hierarchical_ring", "hierarchical_double_tree",
                                         "hierarchical_chain", "hierarchical_tree"};
  return kNames[static_cast<std::size_t>(shape)];
}

std::vector<NodeShape> shapes_of(CollectiveKind kind) {
  if (kind == CollectiveKind::kAllReduce) return {NodeShape::kRing, NodeShape::kDoubleTree};
  if (has_root(kind)) return {NodeShape::kChain, NodeShape::kBinaryTree};
  return {NodeShape::kRing};
}

int HierarchicalPlan::items() const {
  switch (shape) {
    case NodeShape::kRing:
      return cluster.nodes * slots();
    case NodeShape::kDoubleTree:
      return 2 * slots();
    default:
      return slots();
  }
}

int HierarchicalPlan::bottleneck() const {
  int worst = 0;
  for (std::size_t l = 1; l < load.size(); ++l) {
    const auto& links = cluster.cell.links;
    if (Int128{load[l]} * links[at(worst)].capacity > Int128{load[at(worst)]} * links[l].capacity) {
      worst = static_cast<int>(l);
    }
  }
  return worst;
}

std::optional<Rational> HierarchicalPlan::algbw() const {
  const int worst = bottleneck();
  auto chunk = Rational::make(cluster.cell.links[at(worst)].capacity, load[at(worst)]);
  for (const SharedGroup& group : cluster.cell.groups) {
    std::int64_t sum = 0;
    for (const int l : group.links) sum += load[at(l)];
    const auto shared = Rational::make(group.capacity, sum);
    if (shared && chunk && *shared < *chunk) chunk = shared;
  }
  const auto message = chunk ? chunk->times(Rational(message_chunks)) : std::nullopt;
  return message ? message->times(cluster.cell.unit) : std::nullopt;
}

Result<HierarchicalPlan> plan_hierarchy(const Cluster& cluster, const HierarchyRequest& request) {
  if (!serves(request.shape, request.kind)) {
    return unsupported(fmt::format("{} serves no {}", name(request.shape), name(request.kind)));
  }
  if (request.root < 0 || request.root >= cluster.ranks()) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("root {} is not among the {} ranks", request.root, cluster.ranks()));
  }
  HierarchyRequest wanted = request;
  if (wanted.order.empty()) {
    wanted.order.resize(at(cluster.nodes));
    std::iota(wanted.order.begin(), wanted.order.end(), 0);
  }
  if (static_cast<int>(wanted.order.size()) != cluster.nodes) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("an order of {} nodes for {}", wanted.order.size(), cluster.nodes));
  }
  if (!request.order.empty() && cluster.leaves() > 1) {
    return unsupported(
        "below several leaves nodes follow each other by number: a given order serves one leaf");
  }
  if (has_root(wanted.kind)) {
    const auto home =
        std::find(wanted.order.begin(), wanted.order.end(), wanted.root / cluster.gpus());
    std::rotate(wanted.order.begin(), home, wanted.order.end());
  }
  return Planner(cluster, wanted).best();
}

}  // namespace topocoll
