#include "transport/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace topocoll::tcp {
namespace {

Status system_error(const std::string& what, int error) {
  return Status(Cause::kSystem, what + ": " + error_text(error));
}

const sockaddr* as_sockaddr(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

const sockaddr_in* as_ipv4(const Address& address) {
  return reinterpret_cast<const sockaddr_in*>(&address.storage);
}

const sockaddr_in6* as_ipv6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6*>(&address.storage);
}

/// Keeps a socket's packets on one interface. Kernels before 5.7 let only root do so; then the
/// address alone decides, and the routes.
Status leave_by(int fd, const Source& source) {
  const std::string& name = source.interface;
  if (!name.empty() &&
      ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.data(),
                   static_cast<socklen_t>(name.size())) != 0 &&
      errno != EPERM) {
    return system_error("interface " + name, errno);
  }
  if (source.address.bytes > 0 &&
      ::bind(fd, as_sockaddr(source.address), source.address.bytes) != 0) {
    return system_error("cannot use " + source.address.to_string(), errno);
  }
  return {};
}

Fd stream_socket(const Address& address) {
  return Fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

std::string error_text(int error) {
  char buffer[128];
  // GNU's strerror_r returns the text, which need not be in the buffer.
  std::string text = ::strerror_r(error, buffer, sizeof buffer);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + 32);
  return text;
}

std::string Address::to_string() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &as_ipv6(*this)->sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(port());
  }
  ::inet_ntop(AF_INET, &as_ipv4(*this)->sin_addr, host, sizeof host);
  return std::string(host) + ":" + std::to_string(port());
}

std::uint16_t Address::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? as_ipv6(*this)->sin6_port
                                             : as_ipv4(*this)->sin_port);
}

bool Address::is_wildcard() const {
  if (storage.ss_family == AF_INET) return as_ipv4(*this)->sin_addr.s_addr == INADDR_ANY;
  const in6_addr& ip = as_ipv6(*this)->sin6_addr;
  const bool mapped_any = IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr32[3] == INADDR_ANY;
  return IN6_IS_ADDR_UNSPECIFIED(&ip) || mapped_any;
}

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET) return ntohl(as_ipv4(*this)->sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&as_ipv6(*this)->sin6_addr);
}

bool Address::is_link_local() const {
  return storage.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&as_ipv6(*this)->sin6_addr);
}

Address Address::with_port(std::uint16_t port) const {
  Address other = *this;
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&other.storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&other.storage)->sin_port = htons(port);
  }
  return other;
}

Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port) {
  // Null would mean "any address of this machine" to getaddrinfo, and an embedded zero byte would
  // hide the rest of the name.
  if (host.empty() || host.find('\0') != std::string::npos) {
    return Status(Cause::kInvalidArgument, "'" + host + "' is not a host name or address");
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return Status(Cause::kSystem,
                  "cannot resolve host '" + host +
                      "': " + (error == EAI_SYSTEM ? error_text(errno) : ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.bytes = info->ai_addrlen;
  }
  if (addresses.empty()) {
    return Status(Cause::kSystem, "host '" + host + "' has neither an IPv4 nor an IPv6 address");
  }
  return addresses;
}

Result<Fd> listen_on(const Address& address) {
  const std::string what = "cannot listen on " + address.to_string();
  Fd fd = stream_socket(address);
  if (fd.get() < 0) return system_error(what, errno);
  const int on = 1;
  // Without this a port stays unusable for a minute after the last job's connections closed.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.storage.ss_family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  if (::bind(fd.get(), as_sockaddr(address), address.bytes) != 0) return system_error(what, errno);
  if (::listen(fd.get(), SOMAXCONN) != 0) return system_error(what, errno);
  return fd;
}

Result<Address> local_address(int fd) {
  Address address;
  address.bytes = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    return system_error("getsockname", errno);
  }
  return address;
}

Result<Fd> connect_to(const Address& address, TimePoint deadline) {
  return connect_from({}, address, deadline);
}

Result<Fd> connect_from(const Source& source, const Address& address, TimePoint deadline) {
  Fd fd = stream_socket(address);
  if (fd.get() < 0) return Status(Cause::kSystem, error_text(errno));
  if (Status s = leave_by(fd.get(), source); !s.ok()) return s;
  if (::connect(fd.get(), as_sockaddr(address), address.bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return Status(Cause::kSystem, error_text(errno));
    auto ready = wait_for(fd.get(), POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(Cause::kTimeout, "no answer");
    int error = 0;
    socklen_t bytes = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) return Status(Cause::kSystem, error_text(error));
  }
  // A connect to a port of this host that nobody listens on can meet itself: TCP's simultaneous
  // open with source and target port equal. That is no server.
  const auto local = local_address(fd.get());
  if (local.ok() && local->to_string() == address.to_string()) {
    return Status(Cause::kSystem, "connection refused");
  }
  send_at_once(fd.get());
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<bool> wait_for(int fd, short events, TimePoint deadline) {
  while (true) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return system_error("poll", errno);
  }
}

TimePoint deadline_after(std::chrono::milliseconds timeout) {
  return Clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
}

int poll_timeout(TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  // An hour at most: callers wait in a loop, and poll() takes an int.
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3600 * 1000));
}

}  // namespace topocoll::tcp
