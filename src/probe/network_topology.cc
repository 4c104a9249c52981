#include "probe/network_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/plain_text.h"
#include "probe/network_session.h"
#include "probe/statistics.h"

namespace topocoll {
namespace network_probe {
namespace {

/// Both directions at once carry less than this share of what each carries alone: they share
/// something.
constexpr double kShared = 0.9;

std::string host_of(const std::string& port) { return port.substr(0, port.rfind("/port:")); }

void add_port(Topology& topology, const std::string& host, const InterfaceFacts& facts) {
  TopologyNode port;
  port.id = port_id(host, from_text(facts.name));
  port.kind = NodeKind::kNicPort;
  port.label = from_text(facts.name);
  if (facts.mbit > 0) port.attributes["speed"] = std::to_string(facts.mbit);
  std::string addresses;
  for (const auto& address : facts.address) {
    const std::string text = from_text(address);
    if (!text.empty()) addresses += (addresses.empty() ? "" : " ") + text;
  }
  if (!addresses.empty()) port.attributes["addresses"] = addresses;
  topology.edges.push_back({host + "/host", port.id, "contains", {}, {}});
  topology.nodes.push_back(std::move(port));
}

struct Sum {
  double low = 0;
  double middle = 0;
  double high = 0;
};

Sum sum(const Figure& a, const Figure& b) {
  Sum sum;
  for (const Figure* figure : {&a, &b}) {
    const double middle = figure->measured.value_or(0);
    sum.middle += middle;
    sum.low += figure->spread ? figure->spread->low : middle;
    sum.high += figure->spread ? figure->spread->high : middle;
  }
  return sum;
}

/// Figures under load as a capacity that both directions share, where they surely do.
void add_shared(Topology& topology, const NetworkPair& pair) {
  const Sum alone = sum(pair.forward_gbps, pair.backward_gbps);
  const Sum both = sum(pair.forward_both_gbps, pair.backward_both_gbps);
  if (both.middle <= 0 || both.middle >= kShared * alone.middle || both.high >= alone.low) return;
  CapacityGroup group;
  group.id = fmt::format("{} and {}", pair.from, pair.to);
  group.bandwidth_gbps.measured = both.middle;
  group.members = {{pair.from, pair.to, "network"}, {pair.to, pair.from, "network"}};
  topology.groups.push_back(std::move(group));
}

/// Which hosts a port does not reach by any of their ports, and what was tried.
void add_unreached(Topology& topology, const std::vector<NetworkPair>& pairs) {
  std::map<std::pair<std::string, std::string>, std::string> failures;
  std::set<std::pair<std::string, std::string>> reached;
  const auto note = [&](const std::string& port, const std::string& other, const auto& pair) {
    const std::pair key(port, host_of(other));
    if (pair.failure.empty()) {
      reached.insert(key);
      return;
    }
    std::string& text = failures[key];
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", other, pair.failure);
  };
  for (const NetworkPair& pair : pairs) {
    note(pair.from, pair.to, pair);
    note(pair.to, pair.from, pair);
  }
  for (TopologyNode& node : topology.nodes) {
    for (const auto& [key, text] : failures) {
      if (key.first != node.id || reached.contains(key)) continue;
      node.attributes["unreached " + key.second] = text;
    }
  }
}

}  // namespace

std::string port_id(const std::string& host, const std::string& interface) {
  return host + "/port:" + interface;
}

NetworkPair to_pair(const std::string& from, const std::string& to, const Measurement& m) {
  NetworkPair pair{from, to, "", {}, {}, {}, {}, {}};
  if (m.reached == 0) {
    pair.failure = from_text(m.reason);
    if (pair.failure.empty()) pair.failure = "no reason given";
    return pair;
  }
  pair.latency_ns = summarize(from_samples(m.latency_ns, kLatencyNs), Better::kLower);
  pair.forward_gbps = summarize(from_samples(m.forward_gbps, kGbps), Better::kHigher);
  pair.backward_gbps = summarize(from_samples(m.backward_gbps, kGbps), Better::kHigher);
  pair.forward_both_gbps = summarize(from_samples(m.forward_both_gbps, kGbps), Better::kHigher);
  pair.backward_both_gbps = summarize(from_samples(m.backward_both_gbps, kGbps), Better::kHigher);
  return pair;
}

Topology to_topology(const std::vector<Host>& hosts, const std::vector<NetworkPair>& pairs) {
  Topology topology;
  topology.host = hosts.front().name;
  for (const Host& host : hosts) {
    TopologyNode node;
    node.id = host.name + "/host";
    node.label = host.name;
    topology.nodes.push_back(std::move(node));
    for (std::uint32_t i = 0; i < host.description.interfaces; ++i) {
      add_port(topology, host.name, host.description.interface[i]);
    }
  }
  for (const NetworkPair& pair : pairs) {
    if (!pair.failure.empty()) continue;
    topology.edges.push_back({pair.from, pair.to, "network", pair.forward_gbps, pair.latency_ns});
    topology.edges.push_back({pair.to, pair.from, "network", pair.backward_gbps, pair.latency_ns});
    add_shared(topology, pair);
  }
  add_unreached(topology, pairs);
  return topology;
}

}  // namespace network_probe

namespace {

std::string cell(const Figure& figure, double unit) {
  if (!figure.measured) return "-";
  std::string text = fmt::format("{:.3g}", *figure.measured / unit);
  if (figure.spread) {
    text += fmt::format(" [{:.3g}, {:.3g}]", figure.spread->low / unit, figure.spread->high / unit);
  }
  return text;
}

}  // namespace

std::string render_text(const NetworkReport& report) {
  constexpr double kNanosecondsPerMicrosecond = 1000;
  std::size_t width = 4;
  for (const NetworkPair& pair : report.pairs) {
    width = std::max(width, pair.from.size() + pair.to.size() + 3);
  }
  constexpr const char* kRow = "{:<{}}  {:<20} {:<22} {:<22} {}\n";
  std::string text =
      fmt::format(kRow, "pair", width, "latency us", "to GB/s", "from GB/s", "both at once GB/s");
  for (const NetworkPair& pair : report.pairs) {
    const std::string ends = pair.from + " - " + pair.to;
    if (!pair.failure.empty()) {
      text += fmt::format("{:<{}}  not reached: {}\n", ends, width, pair.failure);
      continue;
    }
    text += fmt::format(
        kRow, ends, width, cell(pair.latency_ns, kNanosecondsPerMicrosecond),
        cell(pair.forward_gbps, 1), cell(pair.backward_gbps, 1),
        fmt::format("{} + {}", cell(pair.forward_both_gbps, 1), cell(pair.backward_both_gbps, 1)));
  }
  return plain_text(text + "each: median [95 % interval]; latency is half of a round trip\n");
}

}  // namespace topocoll
