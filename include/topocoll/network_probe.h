// What the network between hosts does: which interface reaches which, how fast, how soon. By plain TCP.
//
//   on each of the others:  auto listener = topocoll::NetworkListener::start({});
//                           listener.value()->serve(std::chrono::minutes(10));
//   on one:                 auto report = topocoll::probe_network({.peers = {"node1", "node2"}});
//
// All ends must have the same TOPOCOLL_JOB_SECRET. It travels in the clear and nothing is
// encrypted.
//
// Thread rule: a listener serves in the thread that calls serve(); stop() may come from any thread.
// Failure rule: what cannot be reached is in the report; a Status says that there is none.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

inline constexpr std::uint16_t kNetworkProbePort = 29517;

struct NetworkListenRequest {
  /// Interfaces ("eth0") or addresses of this machine; empty: every interface but the loopback.
  std::vector<std::string> on;
  std::uint16_t port = kNetworkProbePort;  ///< 0: one that is free
};

/// Answers probers on each chosen address alone.
class TOPOCOLL_API NetworkListener {
 public:
  static Result<std::unique_ptr<NetworkListener>> start(const NetworkListenRequest& request);
  NetworkListener() = default;
  virtual ~NetworkListener() = default;
  NetworkListener(const NetworkListener&) = delete;
  NetworkListener& operator=(const NetworkListener&) = delete;

  /// "10.0.0.1:29517", "[fd00::1]:29517".
  [[nodiscard]] virtual std::vector<std::string> addresses() const = 0;
  /// Returns after `time`, or when stop() was called.
  virtual Status serve(std::chrono::milliseconds time) = 0;
  virtual void stop() = 0;
};

struct NetworkProbeRequest {
  std::vector<std::string> peers;                ///< "host", "host:port", "[fd00::1]:port"
  std::vector<std::string> interfaces;           ///< of this machine; empty: all but the loopback
  std::chrono::milliseconds flow_time{200};      ///< of each stream, up to ten seconds
  std::chrono::milliseconds connect_time{1000};  ///< for each attempt
};

/// One pair of interfaces on two hosts, as "host/port:eth0".
struct NetworkPair {
  std::string from;
  std::string to;
  std::string failure;  ///< empty: it was reached
  Figure latency_ns;    ///< half of a round trip
  Figure forward_gbps;  ///< a stream alone
  Figure backward_gbps;
  Figure forward_both_gbps;  ///< with the other direction at the same time
  Figure backward_both_gbps;
};

struct NetworkReport {
  /// Hosts, their interfaces, and what was measured as "network" edges: check_topology() finds in
  /// it what is slow and what does not reach what.
  Topology topology;
  std::vector<NetworkPair> pairs;
};

/// Measures every pair of interfaces between this host and its peers, and between the peers. Pairs
/// of hosts take turns so that no host is in two at once; what looks slow is measured once more
/// when all else rests, and its better figures stay.
TOPOCOLL_API Result<NetworkReport> probe_network(const NetworkProbeRequest& request);
/// A table for people.
TOPOCOLL_API std::string render_text(const NetworkReport& report);

/// Rounds in which everybody meets everybody once and nobody is in two pairs at once: a
/// 1-factorisation. n - 1 rounds for an even n, else n with one pausing.
TOPOCOLL_API std::vector<std::vector<std::pair<int, int>>> tournament(int players);

}  // namespace topocoll
