// Stream sockets over IPv4 and IPv6: resolve, listen on one address, connect before a deadline.
//
// Thread rule: pure functions. Failure rule: every error names the address that it concerns.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/os.h"
#include "topocoll/status.h"

namespace topocoll::tcp {

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  /// "127.0.0.1:29511" or "[::1]:29511".
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] std::uint16_t port() const;
  /// Whether this stands for every address of the machine (0.0.0.0 or ::).
  [[nodiscard]] bool is_wildcard() const;
  [[nodiscard]] bool is_loopback() const;
  /// Whether this is an IPv6 address that means something on its link alone.
  [[nodiscard]] bool is_link_local() const;
  [[nodiscard]] Address with_port(std::uint16_t port) const;
};

/// The stream addresses of `host` in the resolver's order; never empty.
Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port);

/// A non-blocking listening socket on exactly this address.
Result<Fd> listen_on(const Address& address);

/// The address that a socket is bound to.
Result<Address> local_address(int fd);

/// Where a connection leaves this machine.
struct Source {
  std::string interface;  ///< empty: any
  Address address;        ///< of that interface, its port 0; no bytes: any
};

/// A non-blocking connected socket without Nagle's delay. The error is the reason alone, as in
/// "connection refused", for the caller to put beside what it tried.
Result<Fd> connect_to(const Address& address, TimePoint deadline);
/// The same from one interface, whatever the routes say, and from one of its addresses.
Result<Fd> connect_from(const Source& source, const Address& address, TimePoint deadline);

/// Turns Nagle's delay off, as a connecting socket has it.
void send_at_once(int fd);

/// Waits for `events` on `fd` until `deadline`: true when there are some, false when time ran out.
Result<bool> wait_for(int fd, short events, TimePoint deadline);

/// Now plus `timeout`, where a timeout too large for the clock counts as a year.
TimePoint deadline_after(std::chrono::milliseconds timeout);
/// Milliseconds until `deadline` as poll() wants them: rounded up, 0 if passed.
int poll_timeout(TimePoint deadline);

/// "connection refused" and the like.
std::string error_text(int error);

}  // namespace topocoll::tcp
