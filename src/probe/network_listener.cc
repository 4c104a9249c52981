// The listener's end: what a prober asks is described, echoed, taken in, sent, or measured.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "probe/network_host.h"
#include "probe/network_session.h"
#include "topocoll/network_probe.h"
#include "transport/tcp/flow.h"

namespace topocoll {
namespace network_probe {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxConnections = 64;
/// Until the next try to accept while the process is out of descriptors.
constexpr milliseconds kAcceptPause{50};
constexpr std::chrono::seconds kHelloTime{5};
constexpr std::chrono::seconds kIdleTime{30};
constexpr std::chrono::seconds kSendTime{10};
constexpr milliseconds kMaxConnectTime{10'000};

struct Door {
  Fd socket;
  tcp::Address address;
};

class Listener final : public NetworkListener {
 public:
  Listener(std::string secret, std::string host, std::vector<tcp::Interface> interfaces, Fd stop)
      : secret_(std::move(secret)),
        host_(std::move(host)),
        interfaces_(std::move(interfaces)),
        stop_(std::move(stop)) {}
  ~Listener() override { join(true); }

  Status open(std::uint16_t port);

  [[nodiscard]] std::vector<std::string> addresses() const override {
    std::vector<std::string> result;
    for (const Door& door : doors_) result.push_back(door.address.to_string());
    return result;
  }
  Status serve(milliseconds time) override;
  void stop() override { Os::real().notify_event(stop_); }

 private:
  struct Guest {
    explicit Guest(Fd s) : socket(std::move(s)) {}
    Fd socket;
    std::thread thread;
    /// Set by whoever comes first: the guest when it has proven to know the secret, or the listener
    /// when it shows it the door.
    std::atomic<bool> decided{false};
    std::atomic<bool> done{false};
  };

  void admit(const Door& door);
  void make_room();
  static void end(Guest& guest);
  void join(bool all);
  void attend(Guest& guest) const;
  Status obey(const Fd& socket, const Command& command) const;
  Status stream(const Fd& socket, const Command& command) const;
  Status measure(const Fd& socket) const;
  [[nodiscard]] Description description() const;

  std::string secret_;
  std::string host_;
  std::vector<tcp::Interface> interfaces_;
  std::vector<std::uint16_t> ports_;  ///< by interface
  std::vector<Door> doors_;
  Fd stop_;
  std::list<Guest> guests_;
  bool exhausted_ = false;    ///< has been out of descriptors, and said so
  TimePoint accept_again_{};  ///< set while it is
};

/// One door for each address, on one port for each interface.
Status Listener::open(std::uint16_t port) {
  Status last;
  std::vector<std::string> lost;
  for (tcp::Interface& interface : interfaces_) {
    std::uint16_t chosen = port;
    std::vector<tcp::Address> open;
    for (const tcp::Address& address : interface.addresses) {
      auto socket = tcp::listen_on(address.with_port(chosen));
      if (!socket.ok()) {
        last = socket.status();
        lost.push_back(last.text());
        continue;
      }
      const auto local = tcp::local_address(socket->get());
      if (!local.ok()) return local.status();
      chosen = local->port();
      open.push_back(address);
      doors_.push_back({std::move(*socket), *local});
    }
    interface.addresses = std::move(open);
    ports_.push_back(chosen);
  }
  if (doors_.empty()) return last;
  for (const std::string& why : lost) {
    log().warn("probers reach only the listener's other addresses: {}", why);
  }
  return {};
}

Status Listener::serve(milliseconds time) {
  const TimePoint end = tcp::deadline_after(time);
  std::vector<int> fds{stop_.get()};
  for (const Door& door : doors_) fds.push_back(door.socket.get());
  while (Clock::now() < end) {
    // Out of descriptors the doors stay readable: look again later instead of spinning.
    const bool pausing = Clock::now() < accept_again_;
    const std::span<const int> watched(fds.data(), pausing ? 1 : fds.size());
    const auto ready =
        Os::real().wait_readable(watched, pausing ? std::min(end, accept_again_) : end);
    join(false);
    for (const std::size_t i : ready) {
      if (i == 0) return {};
      admit(doors_[i - 1]);
    }
  }
  return {};
}

void Listener::admit(const Door& door) {
  // Between the wait and here the other end may have left again.
  auto socket = Os::real().accept(door.socket, Clock::now());
  if (socket.status().cause() == Cause::kResource) {
    if (!std::exchange(exhausted_, true)) {
      log().warn("the listener on {} cannot take more connections, which wait now: {} (ulimit -n?)",
                 door.address.to_string(), socket.status().text());
    }
    accept_again_ = Clock::now() + kAcceptPause;
  }
  if (!socket.ok()) return;
  make_room();
  if (guests_.size() >= kMaxConnections) return;  // closes it, which the prober can explain
  tcp::send_at_once(socket->get());
  Guest& guest = guests_.emplace_back(std::move(*socket));
  auto thread = start_thread("topocoll-probe", [this, &guest] {
    static_cast<void>(has_memory_for([&] { attend(guest); }));
    ::shutdown(guest.socket.get(), SHUT_RDWR);  // it is closed when the thread is joined
    guest.done = true;
  });
  if (thread.ok()) {
    guest.thread = std::move(*thread);
  } else {
    guests_.pop_back();  // the prober sees the connection close
  }
}

/// The oldest guest that has proven nothing gives way, or silent connections would keep probers
/// out.
void Listener::make_room() {
  if (guests_.size() < kMaxConnections) return;
  const auto oldest = std::find_if(guests_.begin(), guests_.end(),
                                   [](Guest& guest) { return !guest.decided.exchange(true); });
  if (oldest == guests_.end()) return;
  end(*oldest);
  guests_.erase(oldest);
}

void Listener::end(Guest& guest) {
  ::shutdown(guest.socket.get(), SHUT_RDWR);  // ends its waits
  guest.thread.join();
}

void Listener::join(bool all) {
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    if (!all && !guest->done) {
      ++guest;
      continue;
    }
    end(*guest);
    guest = guests_.erase(guest);
  }
}

void Listener::attend(Guest& guest) const {
  const Fd& socket = guest.socket;
  const TimePoint deadline = tcp::deadline_after(kHelloTime);
  const auto expected = tcp::make_hello(kMagic, kVersion, secret_);
  // Somebody else's protocol is told by its first bytes: nothing is answered then.
  const auto magic = receive_struct<tcp::Magic>(socket, deadline);
  if (!magic.ok() || *magic != kMagic) return;
  tcp::Hello hello;
  hello.magic = *magic;
  const auto rest = std::as_writable_bytes(std::span(&hello, 1)).subspan(sizeof(tcp::Magic));
  if (!Os::real().receive_all(socket, rest, deadline).ok()) return;
  const tcp::HelloReply answer = tcp::answer_hello(hello, expected);
  const bool accepted = answer.admission == tcp::Admission::kAccepted;
  if (accepted && guest.decided.exchange(true)) return;
  if (!send_struct(socket, answer, deadline).ok()) return;
  if (!accepted) return;
  for (;;) {
    const auto command = receive_struct<Command>(socket, tcp::deadline_after(kIdleTime));
    if (!command.ok() || !obey(socket, *command).ok()) return;
  }
}

Status Listener::obey(const Fd& socket, const Command& command) const {
  switch (command.kind) {
    case CommandKind::kDescribe:
      return send_struct(socket, description(), tcp::deadline_after(kSendTime));
    case CommandKind::kEcho:
      return send_struct(socket, command, tcp::deadline_after(kSendTime));
    case CommandKind::kReceive:
    case CommandKind::kSend:
    case CommandKind::kBoth:
      return stream(socket, command);
    case CommandKind::kMeasure:
      return measure(socket);
  }
  return Status(Cause::kMismatch, "an unknown command");
}

Status Listener::stream(const Fd& socket, const Command& command) const {
  const milliseconds time(command.milliseconds);
  if (time < milliseconds(1) || time > tcp::kMaxFlowTime) {
    return Status(Cause::kMismatch, "a stream of a time that is not allowed");
  }
  const tcp::FlowDirections directions{command.kind != CommandKind::kReceive,
                                       command.kind != CommandKind::kSend};
  const auto in = tcp::run_flow(socket, directions, time);
  if (!in.ok()) return in.status();
  if (!directions.receive) return {};
  return send_struct(socket, to_samples(*in), tcp::deadline_after(kSendTime));
}

Status Listener::measure(const Fd& socket) const {
  const auto order = receive_struct<Order>(socket, tcp::deadline_after(kSendTime));
  if (!order.ok()) return order.status();
  const milliseconds flow_time(order->flow_milliseconds);
  const milliseconds connect_time(order->connect_milliseconds);
  const std::string name = from_text(order->from);
  const tcp::Interface* from = nullptr;
  for (const tcp::Interface& interface : interfaces_) {
    if (interface.name == name) from = &interface;
  }
  if (from == nullptr || flow_time < milliseconds(1) || flow_time > tcp::kMaxFlowTime ||
      connect_time > kMaxConnectTime) {
    return Status(Cause::kMismatch, "an order that this listener cannot follow");
  }
  const auto measurement = measure_pair(*from, order->to, secret_, flow_time, connect_time);
  return send_struct(socket, measurement, tcp::deadline_after(kSendTime));
}

Description Listener::description() const {
  Description description;
  description.host = to_text<256>(host_);
  for (std::size_t i = 0; i < interfaces_.size(); ++i) {
    if (interfaces_[i].addresses.empty()) continue;
    description.interface[description.interfaces++] =
        network_probe::describe(interfaces_[i], ports_[i]);
  }
  return description;
}

}  // namespace
}  // namespace network_probe

Result<std::unique_ptr<NetworkListener>> NetworkListener::start(
    const NetworkListenRequest& request) {
  auto secret = network_probe::job_secret();
  if (!secret.ok()) return secret.status();
  auto host = network_probe::host_name();
  if (!host.ok()) return host.status();
  auto interfaces = network_probe::chosen_interfaces(request.on);
  if (!interfaces.ok()) return interfaces.status();
  auto stop = Os::real().create_event();
  if (!stop.ok()) return stop.status();
  auto listener = std::make_unique<network_probe::Listener>(
      std::move(*secret), std::move(*host), std::move(*interfaces), std::move(*stop));
  if (Status s = listener->open(request.port); !s.ok()) return s;
  return std::unique_ptr<NetworkListener>(std::move(listener));
}

}  // namespace topocoll
