// The prober: asks every host what it has, then has pairs of hosts measured in rounds.
#include "topocoll/network_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "base/thread.h"
#include "probe/network_host.h"
#include "probe/network_session.h"
#include "probe/network_topology.h"
#include "topocoll/findings.h"
#include "transport/tcp/flow.h"

namespace topocoll {
namespace network_probe {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxHosts = 1024;
constexpr milliseconds kMaxConnectTime{10'000};

/// "host", "host:port", "[address]:port"; a bare IPv6 address has no port.
struct Endpoint {
  std::string host;
  std::uint16_t port = kNetworkProbePort;
};

Result<Endpoint> parse_endpoint(const std::string& text) {
  Endpoint result{text};
  std::string port;
  if (const std::size_t close = text.rfind(']'); text.rfind('[', 0) == 0 && close != text.npos) {
    result.host = text.substr(1, close - 1);
    if (close + 1 < text.size()) port = text.substr(close + 1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    result.host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':'));
  }
  if (!port.empty()) {
    const char* begin = port.data() + 1;
    const char* end = port.data() + port.size();
    const auto parsed = std::from_chars(begin, end, result.port);
    if (port[0] != ':' || parsed.ec != std::errc() || parsed.ptr != end || result.port == 0) {
      result.host.clear();
    }
  }
  if (result.host.empty()) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("peer '{}': expected HOST, HOST:PORT or [ADDRESS]:PORT", text));
  }
  return result;
}

bool is_own(const std::vector<tcp::Interface>& all, const tcp::Address& address) {
  return std::any_of(all.begin(), all.end(), [&](const tcp::Interface& interface) {
    return std::any_of(interface.addresses.begin(), interface.addresses.end(),
                       [&](const auto& a) { return numbers(a) == numbers(address); });
  });
}

/// Whether a session failed by what the peer said: to start a listener would not help.
bool answered(const Status& failure) {
  return failure.cause() == Cause::kInvalidArgument || failure.cause() == Cause::kVersion ||
         failure.cause() == Cause::kMismatch;
}

/// One host of the tournament; the first is this one and has no contact.
struct Player {
  Host host;
  tcp::Address contact{};
};

class Prober {
 public:
  Prober(const NetworkProbeRequest& request, std::string secret)
      : request_(request), secret_(std::move(secret)), names_(request.interfaces) {}

  Status gather();
  Status measure_all();
  NetworkReport report();

 private:
  struct Task {
    int a = 0;
    int b = 0;
    std::size_t interface_a = 0;
    std::size_t interface_b = 0;
  };

  Status greet(const std::string& peer);
  Status meet(int a, int b);
  Result<Measurement> run(const Task& task);
  void measure_again(const std::set<std::string>& nodes);
  [[nodiscard]] const InterfaceFacts& facts(int player, std::size_t interface) const {
    return players_[static_cast<std::size_t>(player)].host.description.interface[interface];
  }
  [[nodiscard]] std::string id(int player, std::size_t interface) const {
    return port_id(players_[static_cast<std::size_t>(player)].host.name,
                   from_text(facts(player, interface).name));
  }

  const NetworkProbeRequest& request_;
  std::string secret_;
  std::vector<std::string> names_;  ///< of interfaces here; none: all
  std::vector<tcp::Interface> own_;
  std::vector<Player> players_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::pair<Task, NetworkPair>> done_;
};

/// Learns who there is. A peer that is not reached at all is an error: nobody can measure for it.
Status Prober::gather() {
  auto name = host_name();
  if (!name.ok()) return name.status();
  players_.push_back({{*name, {}}, {}});
  for (const std::string& peer : request_.peers) {
    if (Status s = greet(peer); !s.ok()) return s;
  }
  auto own = chosen_interfaces(names_);
  if (!own.ok()) return own.status();
  own_ = std::move(*own);
  Description& description = players_[0].host.description;
  for (const tcp::Interface& interface : own_) {
    description.interface[description.interfaces++] = network_probe::describe(interface, 0);
  }
  return {};
}

Status Prober::greet(const std::string& peer) {
  const auto endpoint = parse_endpoint(peer);
  if (!endpoint.ok()) return endpoint.status();
  const auto addresses = tcp::resolve(endpoint->host, endpoint->port);
  if (!addresses.ok()) return addresses.status().annotated("peer " + peer);
  const auto all = tcp::list_interfaces();
  if (!all.ok()) return all.status();
  std::string tried;
  Status refused;
  for (const tcp::Address& address : *addresses) {
    if (!address.is_loopback() && is_own(*all, address)) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("peer {} is this host; to try the probe on one machine, listen and "
                                "probe on 127.0.0.1",
                                peer));
    }
    auto session = Session::open({}, address, secret_, tcp::deadline_after(request_.connect_time));
    if (!session.ok()) {
      if (answered(session.status()) && refused.ok()) {
        refused =
            session.status().annotated(fmt::format("peer {} ({})", peer, address.to_string()));
      }
      tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", address.to_string(),
                           session.status().text());
      continue;
    }
    auto description = session->describe();
    if (!description.ok()) return description.status();
    std::string name = from_text(description->host);
    const auto same = [&](const Player& p) { return p.host.name == name; };
    if (name.empty() || std::any_of(players_.begin(), players_.end(), same)) {
      // Containers and clones often have one name.
      name = fmt::format("{}@{}", name, numbers(address));
    }
    const auto known = [&](const Player& p) {
      return same(p) || p.contact.to_string() == address.to_string();
    };
    if (std::any_of(players_.begin() + 1, players_.end(), known)) {
      return Status(Cause::kInvalidArgument, fmt::format("peer {} is given twice", peer));
    }
    // A listener on the loopback is a trial on one machine.
    if (address.is_loopback() && request_.interfaces.empty()) {
      for (const tcp::Interface& interface : *all) {
        if (interface.loopback) names_ = {interface.name};
      }
    }
    players_.push_back({{name, *description}, address});
    return {};
  }
  if (!refused.ok()) return refused;
  return Status(Cause::kSystem,
                fmt::format("peer {} does not answer ({}); on that host: topocoll topo probe-net "
                            "--listen",
                            peer, tried));
}

Result<Measurement> Prober::run(const Task& task) {
  const InterfaceFacts& to = facts(task.b, task.interface_b);
  if (task.a == 0) {
    return measure_pair(own_[task.interface_a], to, secret_, request_.flow_time,
                        request_.connect_time);
  }
  auto session = Session::open({}, players_[static_cast<std::size_t>(task.a)].contact, secret_,
                               tcp::deadline_after(request_.connect_time));
  if (!session.ok()) return session.status();
  Order order;
  order.from = facts(task.a, task.interface_a).name;
  order.to = to;
  order.flow_milliseconds = static_cast<std::uint32_t>(request_.flow_time.count());
  order.connect_milliseconds = static_cast<std::uint32_t>(request_.connect_time.count());
  return session->measure(order);
}

/// All pairs of interfaces of two hosts, one after the other.
Status Prober::meet(int a, int b) {
  if (b == 0) std::swap(a, b);  // this host has no listener
  const auto count = [&](int player) {
    return players_[static_cast<std::size_t>(player)].host.description.interfaces;
  };
  for (std::size_t i = 0; i < count(a); ++i) {
    for (std::size_t j = 0; j < count(b); ++j) {
      const Task task{a, b, i, j};
      const auto measurement = run(task);
      if (!measurement.ok()) {
        return measurement.status().annotated(
            fmt::format("measuring from {} to {}", id(a, i), id(b, j)));
      }
      const std::lock_guard lock(mutex_);
      done_.emplace_back(task, to_pair(id(a, i), id(b, j), *measurement));
    }
  }
  return {};
}

Status Prober::measure_all() {
  for (const auto& round : tournament(static_cast<int>(players_.size()))) {
    std::vector<Status> statuses(round.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < round.size(); ++i) {
      auto thread = start_thread("topocoll-probe", [this, &statuses, &round, i] {
        const auto measured = [&] { statuses[i] = meet(round[i].first, round[i].second); };
        if (!has_memory_for(measured)) statuses[i] = Status(Cause::kResource, "out of memory");
      });
      if (thread.ok()) {
        threads.push_back(std::move(*thread));
      } else {
        statuses[i] = thread.status();
      }
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) {
      if (!status.ok()) return status;
    }
  }
  std::sort(done_.begin(), done_.end(), [](const auto& x, const auto& y) {
    return std::tie(x.second.from, x.second.to) < std::tie(y.second.from, y.second.to);
  });
  // A round is itself a load, and other work comes and goes.
  std::set<std::string> suspects;
  for (const Finding& finding : check_topology(report().topology)) {
    if (finding.code == "network-pair-slow" || finding.code == "network-port-slow") {
      suspects.insert(finding.nodes.begin(), finding.nodes.end());
    }
  }
  if (!suspects.empty()) measure_again(suspects);
  return {};
}

/// Pairs with both ends, or the only suspect, among `nodes`; the better figures stay.
void Prober::measure_again(const std::set<std::string>& nodes) {
  const auto better = [](Figure& a, const Figure& b) {
    if (b.measured.value_or(0) > a.measured.value_or(0)) a = b;
  };
  for (auto& [task, pair] : done_) {
    if (!pair.failure.empty() || (!nodes.contains(pair.from) && !nodes.contains(pair.to))) continue;
    const auto measurement = run(task);
    if (!measurement.ok()) continue;  // the first measurement stands
    const NetworkPair again = to_pair(pair.from, pair.to, *measurement);
    if (!again.failure.empty()) continue;
    if (again.latency_ns.measured < pair.latency_ns.measured) pair.latency_ns = again.latency_ns;
    better(pair.forward_gbps, again.forward_gbps);
    better(pair.backward_gbps, again.backward_gbps);
    better(pair.forward_both_gbps, again.forward_both_gbps);
    better(pair.backward_both_gbps, again.backward_both_gbps);
  }
}

NetworkReport Prober::report() {
  NetworkReport report;
  for (const auto& [task, pair] : done_) report.pairs.push_back(pair);
  std::vector<Host> hosts;
  for (const Player& player : players_) hosts.push_back(player.host);
  report.topology = to_topology(hosts, report.pairs);
  return report;
}

}  // namespace
}  // namespace network_probe

Result<NetworkReport> probe_network(const NetworkProbeRequest& request) {
  using namespace network_probe;
  if (request.peers.empty() || request.peers.size() >= kMaxHosts) {
    return Status(Cause::kInvalidArgument, fmt::format("{} peers: there must be 1 to {}",
                                                       request.peers.size(), kMaxHosts - 1));
  }
  if (request.flow_time < milliseconds(1) || request.flow_time > tcp::kMaxFlowTime) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("a stream of {} ms: 1 to {} are allowed", request.flow_time.count(),
                              tcp::kMaxFlowTime.count()));
  }
  if (request.connect_time < milliseconds(1) || request.connect_time > kMaxConnectTime) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("{} ms to connect: 1 to {} are allowed", request.connect_time.count(),
                              kMaxConnectTime.count()));
  }
  auto secret = job_secret();
  if (!secret.ok()) return secret.status();
  Prober prober(request, std::move(*secret));
  if (Status s = prober.gather(); !s.ok()) return s;
  if (Status s = prober.measure_all(); !s.ok()) return s;
  return prober.report();
}

}  // namespace topocoll
