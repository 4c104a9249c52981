// The proof of a hierarchical plan for any number of nodes: the conditions that hierarchy.h lists.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/index.h"
#include "planner/hierarchy.h"
#include "planner/node_tree.h"

namespace topocoll {
namespace {

Status wrong(std::string text) {
  return Status(Cause::kInternal, "hierarchical plan: " + std::move(text));
}

class Check {
 public:
  explicit Check(const HierarchicalPlan& plan) : plan_(plan), gpus_(plan.cluster.gpus()) {}

  Status run() const {
    if (Status s = check_order(); !s.ok()) return s;
    if (plan_.reduces.has_value() != topocoll::reduces(plan_.kind))
      return wrong("the wrong templates are there");
    if (!plan_.reduces && !plan_.spreads) return wrong("it has no template");
    if (plan_.reduces) {
      if (Status s = check_template(reversed(plan_.cluster), *plan_.reduces); !s.ok()) return s;
    }
    if (plan_.spreads) {
      if (Status s = check_template(plan_.cluster, *plan_.spreads); !s.ok()) return s;
    }
    if (plan_.reduces && plan_.spreads) {
      if (plan_.reduces->own.size() != plan_.spreads->own.size())
        return wrong("its templates have different slots");
      for (std::size_t s = 0; s < plan_.spreads->own.size(); ++s) {
        if (plan_.reduces->own[s].root != plan_.spreads->own[s].root) {
          return wrong(fmt::format("slot {} is reduced at one GPU and spread from another", s));
        }
      }
    }
    for (const int item : {0, plan_.items() - 1}) {
      if (Status s = check_nodes(item); !s.ok()) return s;
    }
    return Status();
  }

 private:
  [[nodiscard]] Status check_order() const {
    std::vector<int> order = plan_.order;
    std::sort(order.begin(), order.end());
    for (std::size_t p = 0; p < order.size(); ++p) {
      if (order[p] != static_cast<int>(p)) return wrong("its order of nodes is no permutation");
    }
    if (static_cast<int>(order.size()) != plan_.cluster.nodes)
      return wrong("its order misses nodes");
    if (!has_root(plan_.kind) || plan_.order[0] == plan_.root / gpus_) return Status();
    return wrong("its order does not begin at the root's node");
  }

  [[nodiscard]] Status check_template(const Cluster& cluster, const NodeTemplate& made) const {
    const std::size_t slots = made.lane.size();
    if (slots == 0 || made.own.size() != slots || made.transit.size() != slots)
      return wrong("slots are incomplete");
    if (plan_.shape == NodeShape::kRing && slots != at(gpus_) * at(plan_.chunks))
      return wrong("slots are missing");
    for (const Lane& lane : made.lanes) {
      if (Status s = check_lane(cluster, lane); !s.ok()) return s;
    }
    const Graph host = host_graph(cluster);
    // Only the form of the trees counts here, so they weigh nothing.
    if (Status s = check_packing(host, {false, made.own, Rational(0), Rational(0)}); !s.ok())
      return s;
    if (Status s = check_packing(host, {false, made.transit, Rational(0), Rational(0)}); !s.ok())
      return s;
    for (std::size_t s = 0; s < slots; ++s) {
      if (made.lane[s] < 0 || at(made.lane[s]) >= made.lanes.size())
        return wrong(fmt::format("slot {} has no lane", s));
      if (made.transit[s].root != made.lanes[at(made.lane[s])].entrance) {
        return wrong(fmt::format("slot {} does not go on from where it enters a node", s));
      }
      const int begins = plan_.shape == NodeShape::kRing ? static_cast<int>(s) / plan_.chunks
                         : plan_.shape == NodeShape::kDoubleTree ? made.transit[s].root
                                                                 : plan_.root % gpus_;
      if (made.own[s].root != begins)
        return wrong(fmt::format("slot {} begins at the wrong GPU", s));
    }
    return Status();
  }

  /// From the exit through switches to the leaf, and from the leaf to the entrance.
  [[nodiscard]] static Status check_lane(const Cluster& cluster, const Lane& lane) {
    if (lane.rail < 0 || lane.rail >= cluster.rails)
      return wrong(fmt::format("there is no rail {}", lane.rail));
    for (const int gpu : {lane.exit, lane.entrance}) {
      if (gpu < 0 || gpu >= cluster.gpus()) return wrong(fmt::format("there is no GPU {}", gpu));
    }
    const int leaf = cluster.leaf_node(lane.rail);
    if (leads(cluster, lane.out, cluster.cell.rank_nodes[at(lane.exit)], leaf) &&
        leads(cluster, lane.in, leaf, cluster.cell.rank_nodes[at(lane.entrance)])) {
      return Status();
    }
    return wrong(fmt::format("the lane from GPU {} to {} on rail {} is broken", lane.exit,
                             lane.entrance, lane.rail));
  }
  [[nodiscard]] static bool leads(const Cluster& cluster, const std::vector<int>& way, int from,
                                  int to) {
    int node = from;
    for (const int l : way) {
      if (l < 0 || at(l) >= cluster.cell.links.size() || cluster.cell.links[at(l)].from != node)
        return false;
      if (node != from && cluster.cell.is_rank(node)) return false;
      node = cluster.cell.links[at(l)].to;
    }
    return node == to && !way.empty();
  }

  /// The tree over nodes: every place but the root hangs below exactly one other, one deeper.
  [[nodiscard]] Status check_nodes(int item) const {
    const NodeTree tree(plan_, item);
    std::vector<int> parents(at(plan_.cluster.nodes), 0);
    for (int p = 0; p < plan_.cluster.nodes; ++p) {
      for (const int child : tree.children(p)) {
        ++parents[at(child)];
        if (tree.parent(child) != p || tree.depth(child) != tree.depth(p) + 1) {
          return wrong(fmt::format("the node at place {} does not hang below {}", child, p));
        }
      }
    }
    for (int p = 0; p < plan_.cluster.nodes; ++p) {
      if (parents[at(p)] != (p == tree.root() ? 0 : 1))
        return wrong(fmt::format("place {} is not reached once", p));
    }
    return Status();
  }

  const HierarchicalPlan& plan_;
  int gpus_;
};

}  // namespace

Status check(const HierarchicalPlan& plan) { return Check(plan).run(); }

}  // namespace topocoll
