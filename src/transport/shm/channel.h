// Channel: the FIFO of bytes between one ordered pair of ranks, in the group's segment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/shm/layout.h"
#include "transport/transport.h"

namespace topocoll::shm {

class Segment;

/// Counters of bytes ever sent and received; their difference is what lies in the buffer.
struct ChannelControl {
  alignas(kLinePair) std::atomic<std::uint64_t> sent;      ///< written by the sender alone
  alignas(kLinePair) std::atomic<std::uint64_t> received;  ///< written by the receiver alone
};

class ShmTransport final : public Transport {
 public:
  ShmTransport(Os& os, const Segment& segment, int rank);

  Result<std::size_t> send_some(int peer, std::span<const std::byte> bytes) override;
  std::size_t receive_some(int peer, std::span<std::byte> bytes) override;
  [[nodiscard]] std::size_t available(int peer) const override;
  [[nodiscard]] PeerState peer(int rank) override;

 private:
  [[nodiscard]] int index(int from, int to) const;
  [[nodiscard]] ChannelControl& control(int index) const;
  [[nodiscard]] std::byte* buffer(int index) const;

  Os* os_;
  const Segment* segment_;
  int rank_;
  std::vector<bool> committed_;  ///< channels from this rank whose buffers have memory, by peer
};

}  // namespace topocoll::shm
