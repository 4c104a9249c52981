// The network probe's protocol. A connection begins with tcp::Hello and its answer; then the prober
// sends Commands, each answered as told below. Everything is of fixed size and little-endian, and
// nothing a peer says is used as a length.
//
// Thread rule: plain data and free functions. Failure rule: whatever does not parse closes that one
// connection.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "base/os.h"
#include "transport/tcp/hello.h"

namespace topocoll::network_probe {

inline constexpr tcp::Magic kMagic = {'t', 'o', 'p', 'o', 'p', 'r', 'o', 'b'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMaxInterfaces = 32;
inline constexpr std::size_t kMaxAddresses = 4;  ///< of one interface
inline constexpr std::size_t kMaxSamples = 99;

enum class CommandKind : std::uint32_t {
  kDescribe = 1,  ///< answered with a Description
  kEcho = 2,      ///< answered with itself
  kReceive = 3,   ///< tcp::run_flow() of `milliseconds` to the server, then its Samples
  kSend = 4,      ///< the same from the server
  kBoth = 5,      ///< both at once, then the server's Samples
  kMeasure = 6,   ///< followed by an Order, answered with a Measurement
};

struct Command {
  CommandKind kind = CommandKind::kEcho;
  std::uint32_t milliseconds = 0;
  std::uint64_t serial = 0;
};
static_assert(sizeof(Command) == 16);

/// A text with its end in it.
template <std::size_t kBytes>
using Text = std::array<char, kBytes>;

struct InterfaceFacts {
  Text<16> name{};
  Text<48> address[kMaxAddresses]{};  ///< numbers, without port and zone; empty: no more
  std::uint32_t port = 0;             ///< on which its listeners are
  std::uint32_t mbit = 0;             ///< by the driver; 0: unknown
};

struct Description {
  Text<256> host{};
  std::uint32_t interfaces = 0;
  std::uint32_t reserved = 0;
  InterfaceFacts interface[kMaxInterfaces] {};
};

struct Order {
  Text<16> from{};  ///< an interface of the server
  InterfaceFacts to{};
  std::uint32_t flow_milliseconds = 0;
  std::uint32_t connect_milliseconds = 0;
};

struct Samples {
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  double value[kMaxSamples]{};
};

/// Of one pair of interfaces.
struct Measurement {
  std::uint32_t reached = 0;
  std::uint32_t reserved = 0;
  Text<512> reason{};  ///< if not reached: what was tried, and what came of it
  Text<48> from{};     ///< addresses of the two ends, if reached
  Text<48> to{};
  Samples latency_ns;  ///< half of a round trip
  Samples forward_gbps;
  Samples backward_gbps;
  Samples forward_both_gbps;  ///< with the other direction at the same time
  Samples backward_both_gbps;
};

template <std::size_t kBytes>
Text<kBytes> to_text(const std::string& text) {
  Text<kBytes> result{};
  std::copy_n(text.begin(), std::min(text.size(), kBytes - 1), result.begin());
  return result;
}

/// What a peer has sent as text: up to its end, and printable.
template <std::size_t kBytes>
std::string from_text(const Text<kBytes>& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\0') break;
    result += c >= ' ' && c <= '~' ? c : '?';
  }
  return result;
}

Samples to_samples(const std::vector<double>& values);
/// What a peer can have measured.
struct FigureRange {
  double low;
  double high;
};
inline constexpr FigureRange kLatencyNs{1, 60e9};  ///< a minute is beyond every timeout
inline constexpr FigureRange kGbps{0, 1e6};        ///< an interval may have carried nothing
/// At most as many as there can be, and those in the range.
std::vector<double> from_samples(const Samples& samples, FigureRange range);

template <class T>
Status send_struct(const Fd& socket, const T& value, TimePoint deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  return Os::real().send_all(socket, std::as_bytes(std::span(&value, 1)), -1, deadline);
}

template <class T>
Result<T> receive_struct(const Fd& socket, TimePoint deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  auto received =
      Os::real().receive_all(socket, std::as_writable_bytes(std::span(&value, 1)), deadline);
  if (!received.ok()) return received.status();
  return value;
}

}  // namespace topocoll::network_probe
