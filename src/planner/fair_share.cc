#include "planner/fair_share.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/index.h"

namespace topocoll {

FairShare::FairShare(std::vector<double> capacities) : resources_(capacities.size()) {
  for (std::size_t r = 0; r < capacities.size(); ++r) resources_[r].capacity = capacities[r];
}

void FairShare::touch(int resource) {
  if (resources_[at(resource)].dirty) return;
  resources_[at(resource)].dirty = true;
  dirty_.push_back(resource);
}

int FairShare::add(std::span<const Load> loads) {
  int flow = static_cast<int>(flows_.size());
  if (free_.empty()) {
    flows_.emplace_back();
  } else {
    flow = free_.back();
    free_.pop_back();
  }
  Flow& f = flows_[at(flow)];
  f.loads.assign(loads.begin(), loads.end());
  f.active = true;
  f.rate = 0;
  for (const Load& l : f.loads) {
    resources_[at(l.resource)].flows.push_back(flow);
    touch(l.resource);
  }
  return flow;
}

void FairShare::remove(int flow) {
  Flow& f = flows_[at(flow)];
  f.active = false;
  for (const Load& l : f.loads) {
    auto& users = resources_[at(l.resource)].flows;
    *std::find(users.begin(), users.end(), flow) = users.back();
    users.pop_back();
    touch(l.resource);
  }
  free_.push_back(flow);
}

/// The flows and resources that are connected to a dirty resource.
void FairShare::collect() {
  part_flows_.clear();
  part_resources_.clear();
  for (int r : dirty_) {
    resources_[at(r)].dirty = false;
    resources_[at(r)].visited = true;
    part_resources_.push_back(r);
  }
  dirty_.clear();
  for (std::size_t i = 0; i < part_resources_.size(); ++i) {
    for (int flow : resources_[at(part_resources_[i])].flows) {
      Flow& f = flows_[at(flow)];
      if (f.visited) continue;
      f.visited = true;
      part_flows_.push_back(flow);
      for (const Load& l : f.loads) {
        if (resources_[at(l.resource)].visited) continue;
        resources_[at(l.resource)].visited = true;
        part_resources_.push_back(l.resource);
      }
    }
  }
  std::sort(part_flows_.begin(), part_flows_.end());
  std::sort(part_resources_.begin(), part_resources_.end());
}

/// Raises all rates together; the flows of a resource that is full stay where they are.
void FairShare::fill() {
  for (int r : part_resources_) {
    Resource& resource = resources_[at(r)];
    resource.left = resource.capacity;
    resource.weight = 0;
  }
  for (int flow : part_flows_) {
    Flow& f = flows_[at(flow)];
    f.fixed = false;
    for (const Load& l : f.loads) resources_[at(l.resource)].weight += l.load;
  }
  std::size_t open = part_flows_.size();
  while (open > 0) {
    double level = std::numeric_limits<double>::infinity();
    for (int r : part_resources_) {
      const Resource& resource = resources_[at(r)];
      if (resource.weight > 0) level = std::min(level, resource.left / resource.weight);
    }
    std::vector<int> full;
    for (int r : part_resources_) {
      const Resource& resource = resources_[at(r)];
      if (resource.weight > 0 && resource.left / resource.weight <= level * (1 + 1e-12)) {
        full.push_back(r);
      }
    }
    for (int r : full) {
      for (int flow : resources_[at(r)].flows) {
        Flow& f = flows_[at(flow)];
        if (f.fixed) continue;
        f.fixed = true;
        --open;
        if (f.rate != level) changed_.push_back(flow);
        f.rate = level;
        for (const Load& l : f.loads) {
          Resource& resource = resources_[at(l.resource)];
          resource.left = std::max(0.0, resource.left - level * l.load);
          resource.weight -= l.load;
          if (resource.weight < 1e-9) resource.weight = 0;
        }
      }
      resources_[at(r)].weight = 0;
    }
  }
}

const std::vector<int>& FairShare::update() {
  changed_.clear();
  collect();
  fill();
  for (int flow : part_flows_) flows_[at(flow)].visited = false;
  for (int r : part_resources_) resources_[at(r)].visited = false;
  std::sort(changed_.begin(), changed_.end());
  return changed_;
}

}  // namespace topocoll
