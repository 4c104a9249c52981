#include "planner/host_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "base/index.h"
#include "planner/max_flow.h"
#include "planner/rings.h"
#include "planner/routes.h"

namespace topocoll {
namespace {

/// The graph with each host as one node: hosts first, then the network.
struct Contracted {
  int hosts = 0;
  int nodes = 0;
  std::vector<GraphLink> links;
};

Contracted contract(const Graph& graph, const HostSplit& split) {
  Contracted result;
  result.hosts = static_cast<int>(split.hosts.size());
  std::vector<int> now(graph.nodes.size(), -1);
  for (std::size_t h = 0; h < split.hosts.size(); ++h) {
    for (const int n : split.hosts[h]) now[at(n)] = static_cast<int>(h);
  }
  result.nodes = result.hosts;
  for (const int n : split.network) now[at(n)] = result.nodes++;
  for (GraphLink link : graph.links) {
    link.from = now[at(link.from)];
    link.to = now[at(link.to)];
    if (link.from != link.to) result.links.push_back(link);
  }
  return result;
}

/// Least latency from `source` to every node through the network; links without one count as the
/// slowest known.
std::vector<double> latencies(const Contracted& c, int source, double unknown) {
  std::vector<double> least(at(c.nodes), std::numeric_limits<double>::infinity());
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  least[at(source)] = 0;
  open.push({0, source});
  std::vector<std::vector<std::pair<int, double>>> next(at(c.nodes));
  for (const GraphLink& l : c.links)
    next[at(l.from)].emplace_back(l.to, l.latency_ns.value_or(unknown));
  while (!open.empty()) {
    const auto [ns, node] = open.top();
    open.pop();
    if (ns > least[at(node)] || (node < c.hosts && node != source)) continue;
    for (const auto& [to, more] : next[at(node)]) {
      if (ns + more >= least[at(to)]) continue;
      least[at(to)] = ns + more;
      open.push({ns + more, to});
    }
  }
  return least;
}

}  // namespace

Result<std::vector<int>> order_hosts(const Graph& graph, const HostSplit& split) {
  const Contracted c = contract(graph, split);
  if (c.hosts > kMaxOrderedHosts) {
    return Status(Cause::kUnsupported,
                  fmt::format("{} hosts, the order is looked for among {} at most", c.hosts,
                              kMaxOrderedHosts));
  }
  double unknown = 0;
  bool measured = false;
  for (const GraphLink& l : c.links) {
    unknown = std::max(unknown, l.latency_ns.value_or(0));
    measured = measured || l.latency_ns.has_value();
  }
  Graph mesh;
  mesh.unit = graph.unit;
  for (int h = 0; h < c.hosts; ++h) {
    mesh.rank_nodes.push_back(h);
    mesh.nodes.push_back({fmt::format("host {}", h), h});
  }
  for (int from = 0; from < c.hosts; ++from) {
    // Other hosts pass nothing on here: only what leaves `from` itself, and the network.
    MaxFlow network(c.nodes);
    for (const GraphLink& l : c.links) {
      if (l.from >= c.hosts || l.from == from) network.add_arc(l.from, l.to, l.capacity);
    }
    const std::vector<double> ns = latencies(c, from, unknown);
    for (int to = 0; to < c.hosts; ++to) {
      if (to == from) continue;
      const std::int64_t flow = network.run(from, to);
      if (flow > 0)
        mesh.links.push_back({from, to, flow, measured ? std::optional(ns[at(to)]) : std::nullopt});
    }
  }
  auto ring = best_ring(Routes(mesh));
  if (!ring.ok()) return ring.status();
  return std::move(ring->order);
}

}  // namespace topocoll
