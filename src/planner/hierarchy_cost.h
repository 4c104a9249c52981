// Cost of hierarchical plans: simulated where clusters are small, extended from there.
//
//   Result<HierarchyCost> cost = HierarchyCost::make(plan);
//   Result<PlanPrediction> at = cost->predict(1 << 20);
//
// A plan of few nodes is written out and run by the simulator. For a larger one two small clusters
// with the same templates, chunks and bytes a chunk are. What one window takes grows from one to
// the other with the depth of the tree over nodes (nodes - 1 around a ring or along a chain, log2
// in a binary tree), and so it goes on, since every further node does what those before it did.
// Around a ring windows are part of what is extended. In trees and chains a further window adds the
// interval at which a small cluster finishes windows; where data goes up and comes down again,
// windows meet only half of it until the first comes down, and all of it from then on:
//   time = max(L + (w - 1) I / 2, w I), with L for one window and I the interval.
// As many windows are under way as the way up and down the tree needs. The time is never below what
// the most loaded link takes, uplinks of leaves included; the latency of spines is spread over the
// hops that pass them. Tests hold this to flat simulations. Thread rule: one thread at a time.
// Failure rule: errors of the simulator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/cost.h"
#include "planner/graph.h"
#include "planner/hierarchy.h"
#include "planner/routes.h"
#include "topocoll/planning.h"
#include "topocoll/status.h"

namespace topocoll {

class HierarchyCost {
 public:
  /// `plan` must outlive the result. Clusters of at most `most_nodes` are simulated whole.
  static Result<HierarchyCost> make(const HierarchicalPlan& plan, int most_nodes = 0);

  [[nodiscard]] Result<PlanPrediction> predict(std::uint64_t bytes) const;

 private:
  /// A small cluster with the plan's templates, written out.
  struct Small {
    Plan plan;
    Graph graph;
    std::shared_ptr<const Routes> routes;
    std::int64_t message_chunks = 1;
    int depth = 0;
  };
  explicit HierarchyCost(const HierarchicalPlan& plan) : plan_(&plan) {}
  [[nodiscard]] static Result<Small> shrink(const HierarchicalPlan& plan, int nodes);
  struct Time {
    double ns = 0;
    double spread_ns = 0;
  };
  /// In `windows` windows of so many bytes a chunk, simulated.
  [[nodiscard]] static Result<Time> run(const Small& small, double chunk_bytes, int windows);
  /// The interval at which the largest simulated cluster finishes windows.
  [[nodiscard]] Result<double> interval_ns(double chunk_bytes) const;
  /// Extended to the plan's depth.
  [[nodiscard]] Result<Time> deepened(double chunk_bytes, int windows) const;
  /// Of the plan.
  [[nodiscard]] Result<Time> time(double chunk_bytes, int windows) const;

  const HierarchicalPlan* plan_;
  std::vector<Small> small_;  ///< one if it is the plan itself, else two
  int depth_ = 0;
};

}  // namespace topocoll
