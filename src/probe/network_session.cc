#include "probe/network_session.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "probe/statistics.h"
#include "transport/tcp/flow.h"

namespace topocoll::network_probe {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kAnswerTime{10};
/// What a listener that measures for us may take beyond the flows: attempts at every address.
constexpr std::chrono::seconds kMeasureTime{60};
constexpr int kWarmUps = 10;

bool same_family(const tcp::Address& a, const tcp::Address& b) {
  return a.storage.ss_family == b.storage.ss_family && a.is_link_local() == b.is_link_local();
}

/// A peer's address as this machine reaches it from one interface.
Result<tcp::Address> peer_address(const std::string& text, std::uint32_t port,
                                  const std::string& interface) {
  if (port == 0 || port > 65535) {
    return Status(Cause::kMismatch, fmt::format("the peer names port {}", port));
  }
  in6_addr six{};
  in_addr four{};
  if (::inet_pton(AF_INET6, text.c_str(), &six) != 1 &&
      ::inet_pton(AF_INET, text.c_str(), &four) != 1) {
    return Status(Cause::kMismatch, fmt::format("the peer names an address '{}'", text));
  }
  auto addresses = tcp::resolve(text, static_cast<std::uint16_t>(port));
  if (!addresses.ok()) return addresses.status();
  tcp::Address address = addresses->front();
  if (address.is_link_local()) {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_scope_id =
        ::if_nametoindex(interface.c_str());
  }
  return address;
}

/// The first pair of addresses over which the peer answers; else what came of each.
Result<Session> reach(const tcp::Interface& from, const InterfaceFacts& to,
                      const std::string& secret, milliseconds connect_time,
                      Measurement& measurement) {
  std::string tried;
  const auto note = [&](const std::string& what, const std::string& why) {
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", what, why);
  };
  for (const auto& text : to.address) {
    const std::string name = from_text(text);
    if (name.empty()) continue;
    const auto peer = peer_address(name, to.port, from.name);
    if (!peer.ok()) {
      note(name, peer.status().text());
      continue;
    }
    const auto own = std::find_if(from.addresses.begin(), from.addresses.end(),
                                  [&](const auto& a) { return same_family(a, *peer); });
    if (own == from.addresses.end()) {
      note(name, fmt::format("{} has no address of its kind", from.name));
      continue;
    }
    auto session =
        Session::open({from.name, *own}, *peer, secret, tcp::deadline_after(connect_time));
    if (session.ok()) {
      measurement.from = to_text<48>(numbers(*own));
      measurement.to = to_text<48>(name);
      return session;
    }
    note(fmt::format("{} from {}", name, numbers(*own)), session.status().text());
  }
  return Status(Cause::kSystem, tried.empty() ? "the peer names no address" : tried);
}

Status load(Session& session, milliseconds time, Measurement& measurement) {
  const auto latencies = session.latencies();
  if (!latencies.ok()) return latencies.status();
  measurement.latency_ns = to_samples(*latencies);
  const auto forward = session.flow(CommandKind::kReceive, time);
  if (!forward.ok()) return forward.status();
  measurement.forward_gbps = to_samples(forward->out);
  const auto backward = session.flow(CommandKind::kSend, time);
  if (!backward.ok()) return backward.status();
  measurement.backward_gbps = to_samples(backward->in);
  const auto both = session.flow(CommandKind::kBoth, time);
  if (!both.ok()) return both.status();
  measurement.forward_both_gbps = to_samples(both->out);
  measurement.backward_both_gbps = to_samples(both->in);
  return {};
}

}  // namespace

std::string numbers(const tcp::Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = address.storage.ss_family == AF_INET6
                          ? static_cast<const void*>(
                                &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr)
                          : &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr;
  ::inet_ntop(address.storage.ss_family, bytes, text.data(), text.size());
  return text.data();
}

Result<Session> Session::open(const tcp::Source& source, const tcp::Address& address,
                              const std::string& secret, TimePoint deadline) {
  auto socket = tcp::connect_from(source, address, deadline);
  if (!socket.ok()) return socket.status();
  const auto hello = tcp::make_hello(kMagic, kVersion, secret);
  const auto failed = [](const Status& s) {
    if (s.cause() != Cause::kPeerLeft) return s;
    return Status(Cause::kMismatch,
                  "what listens there closed the connection: it serves as many probers as it can, "
                  "so try again later, or it is not topocoll topo probe-net --listen");
  };
  if (Status s = send_struct(*socket, hello, deadline); !s.ok()) return failed(s);
  const auto answer = receive_struct<tcp::HelloReply>(*socket, deadline);
  if (!answer.ok()) return failed(answer.status());
  if (answer->magic != kMagic) {
    return Status(Cause::kMismatch, "what listens there is not topocoll topo probe-net --listen");
  }
  if (answer->admission == tcp::Admission::kWrongVersion) {
    return Status(Cause::kVersion, fmt::format("the listener speaks protocol {}, this build {}",
                                               answer->version, kVersion));
  }
  if (answer->admission != tcp::Admission::kAccepted) {
    return Status(Cause::kInvalidArgument,
                  "the listener has another secret: set TOPOCOLL_JOB_SECRET to the same on both");
  }
  return Session(std::move(*socket), address.to_string());
}

Status Session::command(CommandKind kind, milliseconds time, std::uint64_t serial) {
  const Command command{kind, static_cast<std::uint32_t>(time.count()), serial};
  Status s = send_struct(socket_, command, tcp::deadline_after(kAnswerTime));
  return s.ok() ? s : s.annotated(address_);
}

Result<Description> Session::describe() {
  if (Status s = command(CommandKind::kDescribe, {}); !s.ok()) return s;
  auto description = receive_struct<Description>(socket_, tcp::deadline_after(kAnswerTime));
  if (!description.ok()) return description.status().annotated(address_);
  if (description->interfaces > kMaxInterfaces) {
    return Status(Cause::kMismatch, fmt::format("{}: it names {} interfaces, {} are allowed",
                                                address_, description->interfaces, kMaxInterfaces));
  }
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < description->interfaces; ++i) {
    const std::string name = from_text(description->interface[i].name);
    if (name.empty() || !names.insert(name).second) {
      return Status(Cause::kMismatch,
                    fmt::format("{}: it names an interface '{}' that is empty or there twice",
                                address_, name));
    }
  }
  return description;
}

Result<std::vector<double>> Session::latencies() {
  std::vector<double> half_trips;
  for (std::uint64_t i = 0; i < kWarmUps + kMaxSamples; ++i) {
    const TimePoint start = Clock::now();
    if (Status s = command(CommandKind::kEcho, {}, i); !s.ok()) return s;
    const auto echo = receive_struct<Command>(socket_, start + kAnswerTime);
    if (!echo.ok()) return echo.status().annotated(address_);
    if (echo->kind != CommandKind::kEcho || echo->serial != i) {
      return Status(Cause::kMismatch, address_ + ": an echo came back changed");
    }
    const std::chrono::duration<double, std::nano> trip = Clock::now() - start;
    if (i >= kWarmUps) half_trips.push_back(trip.count() / 2);
  }
  return half_trips;
}

Result<Session::Flows> Session::flow(CommandKind kind, milliseconds time) {
  if (Status s = command(kind, time); !s.ok()) return s;
  const tcp::FlowDirections directions{kind != CommandKind::kSend, kind != CommandKind::kReceive};
  auto in = tcp::run_flow(socket_, directions, time);
  if (!in.ok()) return in.status().annotated(address_);
  Flows flows{{}, std::move(*in)};
  if (!directions.send) return flows;
  const auto theirs = receive_struct<Samples>(socket_, tcp::deadline_after(kAnswerTime));
  if (!theirs.ok()) return theirs.status().annotated(address_);
  flows.out = from_samples(*theirs, kGbps);
  return flows;
}

Result<Measurement> Session::measure(const Order& order) {
  if (Status s = command(CommandKind::kMeasure, {}); !s.ok()) return s;
  const TimePoint deadline =
      tcp::deadline_after(milliseconds(order.flow_milliseconds) * 3 + kMeasureTime);
  if (Status s = send_struct(socket_, order, deadline); !s.ok()) return s.annotated(address_);
  auto measurement = receive_struct<Measurement>(socket_, deadline);
  if (!measurement.ok()) return measurement.status().annotated(address_);
  return measurement;
}

Measurement measure_pair(const tcp::Interface& from, const InterfaceFacts& to,
                         const std::string& secret, milliseconds flow_time,
                         milliseconds connect_time) {
  Measurement measurement;
  auto session = reach(from, to, secret, connect_time, measurement);
  Status status = session.ok() ? load(*session, flow_time, measurement) : session.status();
  measurement.reached = status.ok() ? 1 : 0;
  measurement.reason = to_text<512>(status.ok() ? "" : status.text());
  return measurement;
}

}  // namespace topocoll::network_probe
