#include "control/tcp_store_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "control/parked_gets.h"
#include "control/store_number.h"
#include "transport/tcp/socket.h"

namespace topocoll::tcp_store {
namespace {

using Value = std::shared_ptr<const std::string>;

/// Bytes on their way to a client: a header of ours, then possibly a value that the map may share.
struct Outgoing {
  std::string header;
  Value value;
  std::size_t sent = 0;

  [[nodiscard]] std::size_t bytes() const { return header.size() + (value ? value->size() : 0); }
};

struct Connection {
  Fd socket;
  TimePoint hello_deadline;
  bool proven = false;
  bool closed = false;  ///< to be removed at the end of the round
  std::string received;
  std::deque<Outgoing> outgoing;
  std::size_t backlog = 0;  ///< unsent bytes in `outgoing`
};

/// The map and its size. Values are shared with replies that are still being sent.
class Contents {
 public:
  explicit Contents(std::size_t limit) : limit_(limit) {}

  [[nodiscard]] Value find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : found->second;
  }

  /// False if the limit does not allow it; then nothing has changed.
  bool set(const std::string& key, std::string value) {
    const auto found = values_.find(key);
    const std::size_t old = found == values_.end() ? 0 : cost(key, *found->second);
    const std::size_t now = cost(key, value);
    if (now > limit_ - (bytes_ - old)) return false;
    bytes_ = bytes_ - old + now;
    values_[key] = std::make_shared<const std::string>(std::move(value));
    return true;
  }

 private:
  // What a map node, a shared string and two allocations cost beside the text.
  static constexpr std::size_t kEntryBytes = 192;
  static std::size_t cost(const std::string& key, const std::string& value) {
    return kEntryBytes + key.size() + value.size();
  }

  std::size_t limit_;
  std::size_t bytes_ = 0;  // <= limit_
  std::map<std::string, Value> values_;
};

class Server final : public StoreServer {
 public:
  Server(Fd listener, Fd stop, std::uint16_t port, const std::string& secret,
         const ServerLimits& limits)
      : limits_(limits),
        listener_(std::move(listener)),
        stop_(std::move(stop)),
        port_(port),
        expected_(tcp::make_hello(kMagic, kVersion, secret)),
        contents_(limits.stored_bytes) {}

  ~Server() override {
    if (!thread_.joinable()) return;
    Os::real().notify_event(stop_);
    thread_.join();
  }

  Status start() {
    auto thread = start_thread("topocoll-store", [this] { serve(); });
    if (!thread.ok()) return thread.status();
    thread_ = std::move(*thread);
    return {};
  }

  [[nodiscard]] std::uint16_t port() const override { return port_; }

 private:
  using Connections = std::map<std::uint64_t, Connection>;

  void serve();
  void run();
  [[nodiscard]] TimePoint next_deadline() const;
  void expire(TimePoint now);
  void accept_some();
  void make_room();
  void receive(std::uint64_t id, Connection& connection);
  void process(std::uint64_t id, Connection& connection);
  void admit(Connection& connection);
  bool handle_next(std::uint64_t id, Connection& connection, std::size_t* used);
  void handle(std::uint64_t id, Connection& connection, const Request& request, std::string key,
              std::string value);
  Answer store(const std::string& key, std::string value);
  void reply(Connection& connection, Reply reply, Value value = nullptr);
  void queue(Connection& connection, Outgoing outgoing);
  void flush(Connection& connection);
  void sweep();

  const ServerLimits limits_;
  Fd listener_;
  Fd stop_;
  const std::uint16_t port_;
  Hello expected_;
  Contents contents_;
  Connections connections_;  // in the order of their arrival
  std::uint64_t next_connection_ = 1;
  ParkedGets parked_;
  bool exhausted_ = false;    // has been out of descriptors, and said so
  TimePoint accept_again_{};  // set while the process is out of descriptors
  std::thread thread_;
};

void Server::serve() {
  if (has_memory_for([this] { run(); })) return;
  // Whoever waits for an answer learns at once that none will come.
  connections_.clear();
  listener_ = Fd();
}

void Server::run() {
  std::vector<pollfd> entries;
  std::vector<std::uint64_t> ids;
  while (true) {
    entries.assign({{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                    {.fd = Clock::now() < accept_again_ ? -1 : listener_.get(),
                     .events = POLLIN,
                     .revents = 0}});
    ids.clear();
    for (const auto& [id, connection] : connections_) {
      const bool reads = connection.backlog <= limits_.reply_backlog_bytes;
      const int events = (reads ? POLLIN : 0) | (connection.backlog > 0 ? POLLOUT : 0);
      entries.push_back(
          {.fd = connection.socket.get(), .events = static_cast<short>(events), .revents = 0});
      ids.push_back(id);
    }
    if (::poll(entries.data(), entries.size(), tcp::poll_timeout(next_deadline())) < 0) continue;
    if (entries[0].revents != 0) return;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const short events = entries[i + 2].revents;
      Connection& connection = connections_.at(ids[i]);
      if ((events & POLLOUT) != 0) {
        flush(connection);
        process(ids[i], connection);  // requests that waited for the backlog to shrink
      }
      if ((events & POLLIN) != 0) {
        receive(ids[i], connection);
      } else if ((events & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
        connection.closed = true;
      }
    }
    if (entries[1].revents != 0) accept_some();
    expire(Clock::now());
    sweep();
  }
}

TimePoint Server::next_deadline() const {
  TimePoint next = std::min(parked_.next_deadline(), Clock::now() + std::chrono::hours(1));
  if (accept_again_ > Clock::now()) next = std::min(next, accept_again_);
  for (const auto& [id, connection] : connections_) {
    if (!connection.proven) {
      next = std::min(next, connection.hello_deadline);
      break;  // the oldest one is due first
    }
  }
  return next;
}

void Server::expire(TimePoint now) {
  for (auto& [id, connection] : connections_) {
    if (!connection.proven && connection.hello_deadline <= now) connection.closed = true;
  }
  for (const ParkedGet& get : parked_.take_due(now)) {
    reply(connections_.at(get.connection), {.id = get.request, .answer = Answer::kNotInTime});
  }
}

void Server::accept_some() {
  constexpr int kPerRound = 64;  // so that a flood cannot keep the loop from its other work
  for (int i = 0; i < kPerRound; ++i) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      // Out of descriptors or memory the listener stays readable: look again later instead of
      // spinning.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!std::exchange(exhausted_, true)) {
          log().warn(
              "the store at port {} cannot take more connections, which wait now: {} (ulimit -n?)",
              port_, std::generic_category().message(errno));
        }
        accept_again_ = Clock::now() + std::chrono::milliseconds(50);
      }
      return;
    }
    make_room();
    if (connections_.size() >= limits_.connections) continue;  // closes the new one
    Connection& connection = connections_[next_connection_++];
    connection.socket = std::move(socket);
    connection.hello_deadline = Clock::now() + limits_.hello_timeout;
  }
}

void Server::make_room() {
  std::size_t unproven = 0;
  auto oldest = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->second.proven || it->second.closed) continue;
    if (unproven++ == 0) oldest = it;
  }
  const bool full = connections_.size() >= limits_.connections && unproven > 0;
  if (unproven >= limits_.unproven_connections || full) connections_.erase(oldest);
}

void Server::receive(std::uint64_t id, Connection& connection) {
  if (connection.closed) return;
  char bytes[64 * 1024];
  // Before its hello a connection is read no further than that.
  const std::size_t room =
      connection.proven ? sizeof bytes : sizeof(Hello) - connection.received.size();
  const ssize_t got = ::recv(connection.socket.get(), bytes, room, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    connection.closed = true;
    return;
  }
  connection.received.append(bytes, static_cast<std::size_t>(got));
  process(id, connection);
}

void Server::process(std::uint64_t id, Connection& connection) {
  if (!connection.proven) {
    admit(connection);
    return;
  }
  std::size_t used = 0;
  while (!connection.closed && connection.backlog <= limits_.reply_backlog_bytes &&
         handle_next(id, connection, &used)) {
  }
  connection.received.erase(0, used);
}

void Server::admit(Connection& connection) {
  Hello hello;
  const std::size_t have = connection.received.size();
  // Somebody else's protocol is told by its first bytes: no need to wait for more.
  if (std::memcmp(connection.received.data(), kMagic.data(), std::min(have, kMagic.size())) != 0) {
    connection.closed = true;
    return;
  }
  if (have < sizeof hello) return;
  std::memcpy(&hello, connection.received.data(), sizeof hello);
  connection.received.clear();
  const HelloReply answer = tcp::answer_hello(hello, expected_);
  connection.proven = answer.admission == Admission::kAccepted;
  queue(connection, {.header = std::string(reinterpret_cast<const char*>(&answer), sizeof answer),
                     .value = {}});
  if (!connection.proven) connection.closed = true;
}

bool Server::handle_next(std::uint64_t id, Connection& connection, std::size_t* used) {
  Request request;
  const std::size_t have = connection.received.size() - *used;
  if (have < sizeof request) return false;
  std::memcpy(&request, connection.received.data() + *used, sizeof request);
  const bool known = request.kind >= RequestKind::kSet && request.kind <= RequestKind::kContains;
  const bool no_value = request.kind == RequestKind::kSet || request.value_bytes == 0;
  if (!known || !no_value || request.key_bytes > kMaxKeyBytes ||
      request.value_bytes > kMaxValueBytes) {
    connection.closed = true;
    return false;
  }
  if (have - sizeof request < request.key_bytes + request.value_bytes) return false;
  const char* text = connection.received.data() + *used + sizeof request;
  std::string key(text, request.key_bytes);
  std::string value(text + request.key_bytes, request.value_bytes);
  *used += sizeof request + request.key_bytes + request.value_bytes;
  handle(id, connection, request, std::move(key), std::move(value));
  return true;
}

void Server::handle(std::uint64_t id, Connection& connection, const Request& request,
                    std::string key, std::string value) {
  Reply answer{.id = request.id};
  switch (request.kind) {
    case RequestKind::kSet:
      answer.answer = store(key, std::move(value));
      break;
    case RequestKind::kContains:
      answer.number = contents_.find(key) != nullptr ? 1 : 0;
      break;
    case RequestKind::kAdd: {
      const Value old = contents_.find(key);
      const auto sum = add_to_number(old.get(), request.argument);
      answer.answer = sum.ok() ? store(key, std::to_string(*sum)) : Answer::kNoNumber;
      if (sum.ok()) answer.number = *sum;
      break;
    }
    case RequestKind::kGet: {
      if (const Value found = contents_.find(key)) return reply(connection, answer, found);
      if (parked_.count(id) < limits_.waits_per_connection) {
        const std::chrono::milliseconds timeout(std::max<std::int64_t>(request.argument, 0));
        parked_.add({.connection = id, .request = request.id, .key = std::move(key)},
                    tcp::deadline_after(timeout));
        return;
      }
      answer.answer = Answer::kTooManyWaits;
      break;
    }
  }
  reply(connection, answer);
}

Answer Server::store(const std::string& key, std::string value) {
  if (!contents_.set(key, std::move(value))) return Answer::kStoreFull;
  const Value stored = contents_.find(key);
  for (const ParkedGet& get : parked_.take_key(key)) {
    reply(connections_.at(get.connection), {.id = get.request}, stored);
  }
  return Answer::kDone;
}

void Server::reply(Connection& connection, Reply reply, Value value) {
  reply.value_bytes = value ? static_cast<std::uint32_t>(value->size()) : 0;
  queue(connection, {.header = std::string(reinterpret_cast<const char*>(&reply), sizeof reply),
                     .value = std::move(value)});
}

void Server::queue(Connection& connection, Outgoing outgoing) {
  if (connection.closed) return;
  connection.backlog += outgoing.bytes();
  connection.outgoing.push_back(std::move(outgoing));
  flush(connection);
}

void Server::flush(Connection& connection) {
  while (!connection.closed && !connection.outgoing.empty()) {
    Outgoing& next = connection.outgoing.front();
    iovec parts[2] = {{next.header.data(), next.header.size()}, {nullptr, 0}};
    if (next.value) parts[1] = {const_cast<char*>(next.value->data()), next.value->size()};
    const std::size_t from_header = std::min(next.sent, parts[0].iov_len);
    const std::size_t from_value = next.sent - from_header;
    parts[0] = {static_cast<char*>(parts[0].iov_base) + from_header,
                parts[0].iov_len - from_header};
    parts[1] = {static_cast<char*>(parts[1].iov_base) + from_value, parts[1].iov_len - from_value};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = ::sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR) connection.closed = true;
      return;
    }
    next.sent += static_cast<std::size_t>(sent);
    connection.backlog -= static_cast<std::size_t>(sent);
    if (next.sent == next.bytes()) connection.outgoing.pop_front();
  }
}

void Server::sweep() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (it->second.closed) {
      parked_.remove_connection(it->first);
      it = connections_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace

Result<std::unique_ptr<StoreServer>> start_server(const std::string& host, std::uint16_t port,
                                                  const std::string& secret,
                                                  const ServerLimits& limits) {
  if (secret.empty() || secret.size() > kMaxSecretBytes) {
    return Status(Cause::kInvalidArgument, "a store's secret has 1 to " +
                                               std::to_string(kMaxSecretBytes) + " bytes, not " +
                                               std::to_string(secret.size()));
  }
  auto addresses = tcp::resolve(host, port);
  if (!addresses.ok()) return addresses.status();
  Status last;
  for (const tcp::Address& address : *addresses) {
    if (address.is_wildcard()) {
      return Status(
          Cause::kInvalidArgument,
          "a store listens on one address of this machine, not on all: " + address.to_string());
    }
    auto listener = tcp::listen_on(address);
    if (!listener.ok()) {
      last = listener.status();
      continue;
    }
    auto local = tcp::local_address(listener->get());
    if (!local.ok()) return local.status();
    auto stop = Os::real().create_event();
    if (!stop.ok()) return stop.status();
    auto server = std::make_unique<Server>(std::move(*listener), std::move(*stop), local->port(),
                                           secret, limits);
    if (Status s = server->start(); !s.ok()) return s;
    return std::unique_ptr<StoreServer>(std::move(server));
  }
  return last;
}

}  // namespace topocoll::tcp_store

namespace topocoll {

Result<std::unique_ptr<StoreServer>> serve_tcp_store(const std::string& host, std::uint16_t port,
                                                     const std::string& secret) {
  return tcp_store::start_server(host, port, secret, tcp_store::ServerLimits());
}

}  // namespace topocoll
