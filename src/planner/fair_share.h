// Max-min fair sharing of resources among flows: every flow gets as much as it can without taking
// from one that has less (progressive filling, Bertsekas and Gallager 1992).
//
//   FairShare shares(capacities);
//   int flow = shares.add(loads);
//   for (int changed : shares.update()) ... shares.rate(changed) ...
//
// A flow of rate x loads a resource with load * x. After some flows came and went, update() solves
// again only the flows that are connected to them through resources in use.
// Thread rule: one thread at a time. Failure rule: nothing fails; capacities and loads are
// positive. Deterministic: flows are visited by number.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "planner/routes.h"

namespace topocoll {

class FairShare {
 public:
  explicit FairShare(std::vector<double> capacities);

  /// A flow over the resources of `loads` (at least one); its number may have been one of a removed
  /// flow. Its rate is known after update().
  int add(std::span<const Load> loads);
  void remove(int flow);
  /// Flows whose rate is new, ascending.
  const std::vector<int>& update();
  [[nodiscard]] double rate(int flow) const { return flows_[static_cast<std::size_t>(flow)].rate; }

 private:
  struct Flow {
    std::vector<Load> loads;
    double rate = 0;
    bool active = false;
    bool visited = false;
    bool fixed = false;
  };
  struct Resource {
    double capacity = 0;
    std::vector<int> flows;  ///< active ones, in no particular order
    bool dirty = false;
    bool visited = false;
    double left = 0;
    double weight = 0;  ///< loads of the flows that are not fixed yet
  };
  void touch(int resource);
  void collect();
  void fill();

  std::vector<Resource> resources_;
  std::vector<Flow> flows_;
  std::vector<int> free_;
  std::vector<int> dirty_;
  std::vector<int> part_flows_;  ///< of the part being solved
  std::vector<int> part_resources_;
  std::vector<int> changed_;
};

}  // namespace topocoll
