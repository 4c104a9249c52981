// Transport: how messages move between the ranks of a group, behind one interface. Each ordered
// pair of ranks has a FIFO of bytes with a bounded buffer; calls never block.
//
// A new transport implements this class (see CONTRIBUTING.md). Shared memory also offers direct
// access to its segment, which the collectives use; what they need is in transport/shm.
//
// Thread rule: one thread at a time per transport.
// Failure rule: a peer's end is told by peer(); bytes that it had sent before can still be
// received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/os.h"
#include "topocoll/status.h"

namespace topocoll {

enum class PeerState : std::uint8_t { kPresent, kLeft, kDead };

class Transport {
 public:
  virtual ~Transport() = default;

  /// Hands over as many of `bytes` as fit now; returns how many (0: none fit).
  virtual Result<std::size_t> send_some(int peer, std::span<const std::byte> bytes) = 0;
  /// Takes as many bytes as are here and fit; returns how many (0: nothing is here).
  virtual std::size_t receive_some(int peer, std::span<std::byte> bytes) = 0;
  /// Bytes that `peer` has sent and nobody has received yet.
  [[nodiscard]] virtual std::size_t available(int peer) const = 0;
  [[nodiscard]] virtual PeerState peer(int rank) = 0;
};

}  // namespace topocoll
