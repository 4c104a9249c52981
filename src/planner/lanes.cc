#include "planner/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/index.h"

namespace topocoll {
namespace {

/// One end of a lane: a GPU, its way to or from the leaf, and its part of the port.
struct End {
  int gpu = 0;
  std::vector<int> way;
  double capacity = 0;
};

/// The GPUs that are nearest to a node of the host through switches, each with its links in order
/// of the data.
std::vector<End> nearest_gpus(const Cluster& cluster, int node, bool outward) {
  struct Place {
    int node = 0;
    std::vector<int> way;
  };
  std::vector<End> ends;
  std::vector<bool> seen(at(cluster.host_nodes), false);
  std::vector<Place> wave{{node, {}}};
  seen[at(node)] = true;
  while (ends.empty() && !wave.empty()) {
    std::vector<Place> next;
    for (const Place& place : wave) {
      const int gpu = cluster.cell.nodes[at(place.node)].rank;
      if (gpu >= 0) {
        ends.push_back({gpu, place.way, 0});
        continue;
      }
      for (int l = 0; l < cluster.host_links; ++l) {
        const GraphLink& link = cluster.cell.links[at(l)];
        if ((outward ? link.to : link.from) != place.node) continue;
        const int further = outward ? link.from : link.to;
        if (seen[at(further)]) continue;
        seen[at(further)] = true;
        Place there{further, place.way};
        there.way.insert(outward ? there.way.begin() : there.way.end(), l);
        next.push_back(std::move(there));
      }
    }
    wave = std::move(next);
  }
  return ends;
}

Status unreachable(const Cluster& cluster, const CellPort& port, bool outward) {
  return Status(
      Cause::kUnsupported,
      fmt::format("fabric: no GPU {} the port at \"{}\" through switches",
                  outward ? "reaches" : "is reached from", cluster.cell.nodes[at(port.node)].id));
}

/// The ends of a rail in one direction.
Result<std::vector<End>> ends_of(const Cluster& cluster, int rail, bool outward) {
  std::vector<End> ends;
  for (const CellPort& port : cluster.ports) {
    const int link = outward ? port.out : port.in;
    if (port.rail != rail || link < 0) continue;
    std::vector<End> near = nearest_gpus(cluster, port.node, outward);
    if (near.empty()) return unreachable(cluster, port, outward);
    const auto part = static_cast<double>(cluster.cell.links[at(link)].capacity) /
                      static_cast<double>(near.size());
    for (End& end : near) {
      end.capacity = part;
      for (const int l : end.way) {
        end.capacity =
            std::min(end.capacity, static_cast<double>(cluster.cell.links[at(l)].capacity));
      }
      end.way.insert(outward ? end.way.end() : end.way.begin(), link);
      ends.push_back(std::move(end));
    }
  }
  return ends;
}

/// Pairs what is left of two ends.
void pair_up(int rail, End& out, End& in, std::vector<Lane>& lanes) {
  const double both = std::min(out.capacity, in.capacity);
  if (both <= 0) return;
  lanes.push_back({rail, out.gpu, in.gpu, out.way, in.way, both});
  out.capacity -= both;
  in.capacity -= both;
}

}  // namespace

Result<std::vector<Lane>> find_lanes(const Cluster& cluster) {
  std::vector<Lane> lanes;
  for (int rail = 0; rail < cluster.rails; ++rail) {
    auto outs = ends_of(cluster, rail, true);
    if (!outs.ok()) return outs.status();
    auto ins = ends_of(cluster, rail, false);
    if (!ins.ok()) return ins.status();
    for (End& out : *outs) {
      for (End& in : *ins) {
        if (in.gpu == out.gpu) pair_up(rail, out, in, lanes);
      }
    }
    for (End& out : *outs) {
      for (End& in : *ins) pair_up(rail, out, in, lanes);
    }
  }
  return lanes;
}

namespace {

/// Links with `part` of what lanes may need taken off.
TreeGraph without_lanes(const Cluster& cluster, const std::vector<Lane>& lanes, double part) {
  std::vector<double> needs(at(cluster.host_links), 0);
  for (const Lane& lane : lanes) {
    for (const std::vector<int>* way : {&lane.out, &lane.in}) {
      for (const int l : *way) {
        if (l < cluster.host_links) needs[at(l)] += lane.capacity * part;
      }
    }
  }
  TreeGraph result{host_graph(cluster), {}};
  const std::vector<GraphLink> all = std::move(result.graph.links);
  result.graph.links.clear();
  std::vector<int> now(all.size(), -1);
  for (std::size_t l = 0; l < all.size(); ++l) {
    GraphLink link = all[l];
    link.capacity -= static_cast<std::int64_t>(needs[l]);
    if (link.capacity <= 0) continue;
    now[l] = static_cast<int>(result.graph.links.size());
    result.graph.links.push_back(link);
    result.link.push_back(static_cast<int>(l));
  }
  for (SharedGroup& group : result.graph.groups) {
    std::vector<int> members;
    for (const int l : group.links) {
      if (now[at(l)] >= 0) members.push_back(now[at(l)]);
    }
    group.links = std::move(members);
  }
  std::erase_if(result.graph.groups, [](const SharedGroup& g) { return g.links.size() < 2; });
  return result;
}

}  // namespace

Result<TreeGraph> tree_graph(const Cluster& cluster, const std::vector<Lane>& lanes) {
  for (const double part : {1.0, 0.5, 0.0}) {
    TreeGraph result = without_lanes(cluster, lanes, part);
    if (auto bound = allgather_bound(result.graph); bound.ok() && bound->algbw > Rational(0))
      return result;
  }
  return Status(Cause::kUnsupported,
                "the GPUs of a node cannot all reach each other without the network");
}

}  // namespace topocoll
