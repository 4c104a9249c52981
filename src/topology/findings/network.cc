// What a measured network says of itself: who is slower than its equals, who does not reach whom.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "topology/findings/rules.h"
#include "topology/findings/slow_pairs.h"

namespace topocoll {
namespace {

/// Of what equals reach, before a pair counts as slow. Streams of plain TCP vary by some tenths
/// where processors are shared.
constexpr double kEqualShare = 0.8;
/// With fewer pairs in a class nobody can say which of them is odd.
constexpr std::size_t kMinPairs = 3;
constexpr std::string_view kUnreached = "unreached ";

std::string host_of(const std::string& port) {
  const std::size_t slash = port.rfind("/port:");
  return slash == port.npos ? "" : port.substr(0, slash);
}

std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

/// What the upper quarter of a class reaches: a bad port makes many of its pairs slow, and can make
/// the median.
double upper_quarter(std::vector<double> sorted) {
  std::sort(sorted.begin(), sorted.end());
  return sorted[(3 * sorted.size() + 3) / 4 - 1];
}

}  // namespace

/// Pairs of ports with the same declared speed are equals.
void FindingRules::slow_network_pairs() {
  std::map<std::pair<std::string, std::string>, PairFigures> pairs;
  std::map<double, std::vector<PairFigures>> classes;
  for (const TopologyEdge& edge : topology_.edges) {
    if (edge.kind != "network" || !edge.bandwidth_gbps.measured) continue;
    const TopologyNode* from = find(edge.from);
    const TopologyNode* to = find(edge.to);
    if (from == nullptr || to == nullptr) continue;
    if (from->kind != NodeKind::kNicPort || to->kind != NodeKind::kNicPort) continue;
    pairs[std::minmax(edge.from, edge.to)].add(edge.from, edge.to, edge.bandwidth_gbps);
  }
  for (const auto& [ends, pair] : pairs) {
    const auto a = number(*find(pair.a), "speed");
    const auto b = number(*find(pair.b), "speed");
    classes[a && b ? std::min(*a, *b) : 0].push_back(pair);
  }
  for (const auto& [speed, members] : classes) {
    if (members.size() >= kMinPairs) slow_in_class(members);
  }
}

void FindingRules::slow_in_class(const std::vector<PairFigures>& members) {
  std::vector<double> all;
  for (const PairFigures& pair : members) all.push_back(pair.gbps);
  const double equals = upper_quarter(std::move(all));
  const SlowOnes slow = find_slow(members, [&](const PairFigures& pair) {
    return pair.gbps < kEqualShare * equals && pair.high < equals;
  });
  const auto add_slow = [&](const char* code, std::vector<std::string> nodes,
                            const std::string& text, const PairFigures& worst) {
    add({code, Severity::kWarning, std::move(nodes), text,
         fmt::format("{}; equals reach {:.3g} GB/s", worst.evidence, equals),
         100.0 * (1 - worst.gbps / equals), confirmation(worst)});
  };
  for (const auto& [port, worst] : slow.ends) {
    add_slow("network-port-slow", {port},
             fmt::format("{} is slower with every peer than the peers are with each other", port),
             *worst);
  }
  for (const PairFigures* pair : slow.pairs) {
    add_slow(
        "network-pair-slow", {pair->a, pair->b},
        fmt::format("{} and {} are slower with each other than their equals", pair->a, pair->b),
        *pair);
  }
}

/// A command for the host of `pair.a` that shows the same.
std::string FindingRules::confirmation(const PairFigures& pair) const {
  const TopologyNode& from = *find(pair.a);
  const TopologyNode& to = *find(pair.b);
  return fmt::format(
      "on {}: topocoll topo probe-net --interface {} --peer {}; the path between, by "
      "hop: tracepath {}",
      host_of(pair.a), from.label, first_word(to.attribute("addresses")),
      first_word(to.attribute("addresses")));
}

void FindingRules::unreached_hosts() {
  for (const TopologyNode& port : topology_.nodes) {
    for (const auto& [key, tried] : port.attributes) {
      if (key.rfind(kUnreached, 0) != 0) continue;
      const std::string host = key.substr(kUnreached.size());
      // Some address of that host, for the command.
      std::string address = host;
      for (const TopologyNode& other : topology_.nodes) {
        const std::string first = first_word(other.attribute("addresses"));
        if (host_of(other.id) == host && !first.empty() && address == host) address = first;
      }
      add({"network-unreachable",
           Severity::kError,
           {port.id, host + "/host"},
           fmt::format("{} cannot reach host {}", port.id, host),
           tried,
           100.0,
           fmt::format("on {}: ping -c 3 -I {} {}; ip route get {} oif {}; then cable, VLAN, "
                       "firewall",
                       host_of(port.id), port.label, address, address, port.label)});
    }
  }
}

}  // namespace topocoll
