// The prober's end of a connection to a network listener.
//
// Thread rule: a Session belongs to one thread. Failure rule: every error names the address.
#pragma once

#include <string>
#include <vector>

#include "probe/network_wire.h"
#include "transport/tcp/interfaces.h"

namespace topocoll::network_probe {

class Session {
 public:
  /// Connects, and proves to know the secret.
  static Result<Session> open(const tcp::Source& source, const tcp::Address& address,
                              const std::string& secret, TimePoint deadline);

  Result<Description> describe();
  /// Half of round trips in nanoseconds, after a few that do not count.
  Result<std::vector<double>> latencies();
  struct Flows {
    std::vector<double> out;
    std::vector<double> in;
  };
  /// 10^9 bytes per second by slice; kReceive, kSend or kBoth.
  Result<Flows> flow(CommandKind kind, std::chrono::milliseconds time);
  Result<Measurement> measure(const Order& order);

 private:
  Session(Fd socket, std::string address)
      : socket_(std::move(socket)), address_(std::move(address)) {}
  Status command(CommandKind kind, std::chrono::milliseconds time, std::uint64_t serial = 0);

  Fd socket_;
  std::string address_;
};

/// Reaches, times and loads a peer's interface from one of this machine's. What cannot be reached
/// is a measurement too.
Measurement measure_pair(const tcp::Interface& from, const InterfaceFacts& to,
                         const std::string& secret, std::chrono::milliseconds flow_time,
                         std::chrono::milliseconds connect_time);

/// An address in numbers, without port and zone.
std::string numbers(const tcp::Address& address);

}  // namespace topocoll::network_probe
