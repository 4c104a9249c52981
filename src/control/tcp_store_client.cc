// The TCP store's client: one connection that any number of threads share.
//
// A request is written whole under a lock; then its thread waits for the reply. One of the waiting
// threads at a time reads the socket and hands replies to the others, so that no thread is needed
// beside the callers' and a get() that waits for minutes holds up nobody.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/os.h"
#include "control/tcp_store_wire.h"
#include "topocoll/store.h"
#include "transport/tcp/socket.h"

namespace topocoll {
namespace tcp_store {
namespace {

/// How long a server may take to answer what it need not wait for.
constexpr std::chrono::seconds kAnswerTimeout{30};
/// How much later than its deadline a get() gives up on a server that should have answered by then.
constexpr std::chrono::seconds kGetGrace{2};

Status send_all(int fd, const char* bytes, std::size_t count, TimePoint deadline) {
  while (count > 0) {
    const ssize_t sent = ::send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes += sent;
      count -= static_cast<std::size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Status(Cause::kSystem, tcp::error_text(errno));
    auto ready = tcp::wait_for(fd, POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(Cause::kTimeout, "the server does not read");
  }
  return {};
}

/// Appends what has arrived, waiting for it until `deadline`; nothing then.
Status receive_some(int fd, std::string* received, TimePoint deadline) {
  auto ready = tcp::wait_for(fd, POLLIN, deadline);
  if (!ready.ok()) return ready.status();
  if (!*ready) return {};
  char bytes[64 * 1024];
  const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got == 0) return Status(Cause::kSystem, "the server closed the connection");
  if (got < 0 && errno != EAGAIN && errno != EINTR) {
    return Status(Cause::kSystem, tcp::error_text(errno));
  }
  if (got > 0) received->append(bytes, static_cast<std::size_t>(got));
  return {};
}

class Client final : public Store {
 public:
  Client(Fd socket, std::string address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  Status set(const std::string& key, const std::string& value) override {
    auto reply = call(RequestKind::kSet, key, value, 0, kAnswerTimeout);
    return reply.status();
  }

  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    timeout = std::clamp<std::chrono::milliseconds>(timeout, std::chrono::milliseconds(0),
                                                    std::chrono::hours(24 * 365));
    auto reply = call(RequestKind::kGet, key, {}, timeout.count(), timeout + kGetGrace);
    if (!reply.ok()) return reply.status();
    return std::move(reply->value);
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    auto reply = call(RequestKind::kAdd, key, {}, delta, kAnswerTimeout);
    if (!reply.ok()) return reply.status();
    return reply->header.number;
  }

  Result<bool> contains(const std::string& key) override {
    auto reply = call(RequestKind::kContains, key, {}, 0, kAnswerTimeout);
    if (!reply.ok()) return reply.status();
    return reply->header.number != 0;
  }

 private:
  struct Pending {
    bool done = false;
    Reply header;
    std::string value;
  };

  Result<Pending> call(RequestKind kind, const std::string& key, const std::string& value,
                       std::int64_t argument, std::chrono::milliseconds timeout);
  Status check(const std::string& key, const std::string& value) const;
  Status write(const Request& request, const std::string& key, const std::string& value,
               TimePoint deadline);
  bool begin_writing(TimePoint deadline);
  void end_writing();
  bool await(Pending& pending, TimePoint deadline);
  Status dispatch();
  Status judge(const Request& request, const std::string& key, const Reply& reply) const;
  [[nodiscard]] Status lost(const std::string& why) const {
    return Status(Cause::kSystem, "lost the store at " + address_ + ": " + why);
  }

  const Fd socket_;
  const std::string address_;
  const std::uint32_t generation_ = fork_generation();
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool writing_ = false;  // some thread is in write()
  bool reading_ = false;  // some thread is in receive_some(); `received_` is its own meanwhile
  std::string received_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Pending*> pending_;
  Status broken_;
};

Status Client::check(const std::string& key, const std::string& value) const {
  if (fork_generation() != generation_) {
    return Status(Cause::kUnsupported,
                  "a store connection cannot be used in a child of fork(): connect "
                  "again there");
  }
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    return Status(Cause::kInvalidArgument,
                  "a store's keys have at most " + std::to_string(kMaxKeyBytes) +
                      " bytes and its values " + std::to_string(kMaxValueBytes) + ", not " +
                      std::to_string(key.size()) + " and " + std::to_string(value.size()));
  }
  return {};
}

Status Client::write(const Request& request, const std::string& key, const std::string& value,
                     TimePoint deadline) {
  std::string frame(reinterpret_cast<const char*>(&request), sizeof request);
  frame += key;
  frame += value;
  if (!begin_writing(deadline)) return Status(Cause::kTimeout, "the server does not read");
  const Status sent = send_all(socket_.get(), frame.data(), frame.size(), deadline);
  end_writing();
  return sent;
}

// A flag instead of a mutex, because it is waited for with a deadline.
bool Client::begin_writing(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const bool mine = changed_.wait_until(lock, deadline, [this] { return !writing_; });
  if (mine) writing_ = true;
  return mine;
}

void Client::end_writing() {
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
  }
  changed_.notify_all();
}

Result<Client::Pending> Client::call(RequestKind kind, const std::string& key,
                                     const std::string& value, std::int64_t argument,
                                     std::chrono::milliseconds timeout) {
  if (Status s = check(key, value); !s.ok()) return s;
  const TimePoint deadline = tcp::deadline_after(timeout);
  Pending pending;
  Request request{.kind = kind,
                  .key_bytes = static_cast<std::uint32_t>(key.size()),
                  .value_bytes = static_cast<std::uint32_t>(value.size()),
                  .argument = argument};
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.ok()) return broken_;
    request.id = next_id_++;
    pending_[request.id] = &pending;
  }
  const Status written = write(request, key, value, deadline);
  if (!written.ok()) {
    // Part of a frame may be out, so nothing more can be said on this connection.
    const std::lock_guard lock(mutex_);
    if (broken_.ok()) broken_ = lost(written.text());
    ::shutdown(socket_.get(), SHUT_RDWR);
    changed_.notify_all();
  }
  const bool answered = await(pending, deadline);
  const std::lock_guard lock(mutex_);
  pending_.erase(request.id);
  if (answered) {
    if (Status s = judge(request, key, pending.header); !s.ok()) return s;
    return pending;
  }
  if (!broken_.ok()) return broken_;
  return Status(kind == RequestKind::kGet ? Cause::kTimeout : Cause::kSystem,
                "key '" + key + "': the store at " + address_ + " did not answer within " +
                    std::to_string(timeout.count()) + " ms");
}

bool Client::await(Pending& pending, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  while (!pending.done && broken_.ok() && Clock::now() < deadline) {
    if (reading_) {
      changed_.wait_until(lock, deadline);
      continue;
    }
    reading_ = true;
    lock.unlock();
    Status read = receive_some(socket_.get(), &received_, deadline);
    lock.lock();
    reading_ = false;
    if (read.ok()) read = dispatch();
    if (!read.ok() && broken_.ok()) broken_ = lost(read.text());
    changed_.notify_all();
  }
  return pending.done;
}

Status Client::dispatch() {
  std::size_t used = 0;
  Reply header;
  while (received_.size() - used >= sizeof header) {
    std::memcpy(&header, received_.data() + used, sizeof header);
    if (header.value_bytes > kMaxValueBytes) {
      return Status(Cause::kSystem, "the server sent a reply that cannot be read");
    }
    if (received_.size() - used - sizeof header < header.value_bytes) break;
    used += sizeof header;
    // A request that has given up meanwhile is no longer in the map.
    if (const auto found = pending_.find(header.id); found != pending_.end()) {
      found->second->header = header;
      found->second->value.assign(received_, used, header.value_bytes);
      found->second->done = true;
    }
    used += header.value_bytes;
  }
  received_.erase(0, used);
  return {};
}

Status Client::judge(const Request& request, const std::string& key, const Reply& reply) const {
  switch (reply.answer) {
    case Answer::kDone:
      return {};
    case Answer::kNotInTime:
      return Status(Cause::kTimeout, "key '" + key + "' was not set within " +
                                         std::to_string(request.argument) + " ms");
    case Answer::kNoNumber:
      return Status(Cause::kInvalidArgument,
                    "key '" + key +
                        "': add: the value of this key is not an integer, or the sum does "
                        "not fit into 64 bits");
    case Answer::kStoreFull:
      return Status(Cause::kResource, "key '" + key + "': the store at " + address_ + " is full");
    case Answer::kTooManyWaits:
      return Status(Cause::kResource,
                    "key '" + key + "': too many gets wait on this connection to " + address_);
  }
  return Status(Cause::kSystem, "the store at " + address_ + " sent an unknown answer");
}

/// What became of one attempt to connect.
struct Attempt {
  Fd socket;  // valid: admitted
  Status error;
  bool final = false;  // no use to try again
};

Attempt try_hello(Fd socket, const std::string& secret, TimePoint deadline) {
  Attempt attempt;
  const Hello hello = tcp::make_hello(kMagic, kVersion, secret);
  attempt.error =
      send_all(socket.get(), reinterpret_cast<const char*>(&hello), sizeof hello, deadline);
  if (!attempt.error.ok()) return attempt;
  HelloReply reply;
  std::string received;
  while (received.size() < sizeof reply) {
    if (Clock::now() >= deadline) {
      attempt.error = Status(Cause::kTimeout, "something listens there but does not answer");
      return attempt;
    }
    attempt.error = receive_some(socket.get(), &received, deadline);
    if (!attempt.error.ok()) return attempt;
  }
  std::memcpy(&reply, received.data(), sizeof reply);
  attempt.final = true;
  if (reply.magic != kMagic) {
    attempt.error = Status(Cause::kMismatch, "what listens there is not a topocoll store");
  } else if (reply.admission == Admission::kWrongSecret) {
    attempt.error = Status(
        Cause::kInvalidArgument,
        "the store refused this job's secret: give all ranks the same (TOPOCOLL_JOB_SECRET)");
  } else if (reply.admission != Admission::kAccepted) {
    attempt.error =
        Status(Cause::kVersion, "the store speaks protocol " + std::to_string(reply.version) +
                                    ", this build " + std::to_string(kVersion));
  } else {
    attempt.socket = std::move(socket);
  }
  return attempt;
}

Attempt try_address(const tcp::Address& address, const std::string& secret, TimePoint deadline) {
  // One address that swallows packets must not use up the time of the next one.
  const TimePoint limit = std::min(deadline, Clock::now() + std::chrono::seconds(5));
  auto socket = tcp::connect_to(address, limit);
  if (!socket.ok()) return {.socket = Fd(), .error = socket.status(), .final = false};
  return try_hello(std::move(*socket), secret, limit);
}

}  // namespace

Result<std::shared_ptr<Store>> connect(const std::string& host, std::uint16_t port,
                                       const std::string& secret,
                                       std::chrono::milliseconds timeout) {
  if (secret.empty() || secret.size() > kMaxSecretBytes) {
    return Status(Cause::kInvalidArgument, "a store's secret has 1 to " +
                                               std::to_string(kMaxSecretBytes) + " bytes, not " +
                                               std::to_string(secret.size()));
  }
  const TimePoint deadline = tcp::deadline_after(timeout);
  std::chrono::milliseconds pause(5);
  std::string tried;
  for (int round = 1;; ++round) {
    auto addresses = tcp::resolve(host, port);
    if (!addresses.ok()) {
      if (addresses.status().cause() == Cause::kInvalidArgument) return addresses.status();
      tried = " " + addresses.status().text();
    } else {
      tried.clear();
      for (const tcp::Address& address : *addresses) {
        Attempt attempt = try_address(address, secret, deadline);
        if (attempt.socket.valid()) {
          return std::shared_ptr<Store>(
              std::make_shared<Client>(std::move(attempt.socket), address.to_string()));
        }
        if (attempt.final) return attempt.error.annotated(address.to_string());
        tried +=
            (tried.empty() ? " " : ", ") + address.to_string() + " (" + attempt.error.text() + ")";
      }
    }
    if (Clock::now() + pause >= deadline) {
      return Status(Cause::kTimeout, "no store at " + host + " port " + std::to_string(port) +
                                         " within " + std::to_string(timeout.count()) +
                                         " ms (does one rank serve it? serve_tcp_store()); tried " +
                                         std::to_string(round) + " times:" + tried);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

}  // namespace tcp_store

Result<std::shared_ptr<Store>> connect_tcp_store(const std::string& host, std::uint16_t port,
                                                 const std::string& secret,
                                                 std::chrono::milliseconds timeout) {
  return tcp_store::connect(host, port, secret, timeout);
}

}  // namespace topocoll
