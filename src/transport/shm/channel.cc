#include "transport/shm/channel.h"

#include <algorithm>
#include <cstring>

#include "transport/shm/gate.h"
#include "transport/shm/segment.h"

namespace topocoll::shm {

ShmTransport::ShmTransport(Os& os, const Segment& segment, int rank)
    : os_(&os), segment_(&segment), rank_(rank),
      committed_(static_cast<std::size_t>(segment.ranks()), false) {}

int ShmTransport::index(int from, int to) const {
  return from * (segment_->ranks() - 1) + (to < from ? to : to - 1);
}

ChannelControl& ShmTransport::control(int index) const {
  return segment_->at<ChannelControl>(segment_->layout().channels)[index];
}

std::byte* ShmTransport::buffer(int index) const {
  const Layout& l = segment_->layout();
  return segment_->data() + l.channel_buffers + static_cast<std::size_t>(index) * l.channel_capacity;
}

Result<std::size_t> ShmTransport::send_some(int peer, std::span<const std::byte> bytes) {
  const int i = index(rank_, peer);
  if (!committed_[static_cast<std::size_t>(peer)]) {
    if (Status s = segment_->commit_channel(*os_, i); !s.ok()) return s;
    committed_[static_cast<std::size_t>(peer)] = true;
  }
  ChannelControl& c = control(i);
  const std::size_t capacity = segment_->layout().channel_capacity;
  const std::uint64_t sent = c.sent.load(std::memory_order_relaxed);
  const std::uint64_t used = sent - c.received.load(std::memory_order_acquire);
  // A peer's counter is outside this rank's control: never trust it beyond the buffer.
  const std::size_t room = used > capacity ? 0 : capacity - static_cast<std::size_t>(used);
  const std::size_t n = std::min(room, bytes.size());
  if (n == 0) return n;
  const std::size_t at = static_cast<std::size_t>(sent % capacity);
  const std::size_t first = std::min(n, capacity - at);
  std::memcpy(buffer(i) + at, bytes.data(), first);
  std::memcpy(buffer(i), bytes.data() + first, n - first);
  c.sent.store(sent + n);
  ring(*os_, *segment_);
  return n;
}

std::size_t ShmTransport::available(int peer) const {
  const ChannelControl& c = control(index(peer, rank_));
  const std::uint64_t n = c.sent.load(std::memory_order_acquire) -
                          c.received.load(std::memory_order_relaxed);
  return n > segment_->layout().channel_capacity ? 0 : static_cast<std::size_t>(n);
}

std::size_t ShmTransport::receive_some(int peer, std::span<std::byte> bytes) {
  const std::size_t n = std::min(available(peer), bytes.size());
  if (n == 0) return 0;
  const int i = index(peer, rank_);
  ChannelControl& c = control(i);
  const std::size_t capacity = segment_->layout().channel_capacity;
  const std::uint64_t received = c.received.load(std::memory_order_relaxed);
  const std::size_t at = static_cast<std::size_t>(received % capacity);
  const std::size_t first = std::min(n, capacity - at);
  std::memcpy(bytes.data(), buffer(i) + at, first);
  std::memcpy(bytes.data() + first, buffer(i), n - first);
  c.received.store(received + n);
  ring(*os_, *segment_);
  return n;
}

PeerState ShmTransport::peer(int rank) {
  RankBlock& block = segment_->block(rank);
  if (block.state.load(std::memory_order_acquire) == RankState::kLeft) return PeerState::kLeft;
  return liveness(block) == Liveness::kDead ? PeerState::kDead : PeerState::kPresent;
}

}  // namespace topocoll::shm
