#include "transport/shm/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include "topocoll/size.h"
#include "topology/numa_nodes.h"
#include "transport/shm/channel.h"

namespace topocoll::shm {
namespace {

constexpr const char* kLimits =
    "within the limits of this process's control group and machine: raise the limit (memory.max, "
    "docker run --memory), or use fewer ranks or groups";

constexpr std::size_t kEagerCapacity = std::size_t(64) << 10;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Buffer of one ordered pair's channel: generous for few ranks, a page for many.
std::size_t buffer_per_pair(int ranks) {
  const std::size_t pairs = std::max<std::size_t>(1, static_cast<std::size_t>(ranks * (ranks - 1)));
  return std::clamp(std::bit_floor((std::size_t(4) << 20) / pairs), kPage, std::size_t(256) << 10);
}

/// Pipelined operations: 4 MiB a rank up to 12 ranks, which plans of a thousand chunks need; 8 ranks stay well within 64 MiB in all.
std::size_t total_ring_bytes(int ranks) {
  if (ranks == 1) return 0;
  const std::size_t total = std::min<std::size_t>(std::size_t(48) << 20,
                                                  static_cast<std::size_t>(ranks) * (4u << 20));
  return total / static_cast<std::size_t>(ranks) / kPage * kPage * static_cast<std::size_t>(ranks);
}

Result<Fd> create_backing(Os& os, const SegmentOptions& options, std::size_t bytes) {
  if (options.backing != Backing::kFile) {
    auto fd = os.create_memfd("topocoll", bytes);
    if (fd.ok() || options.backing == Backing::kMemfd) return fd;
  }
  return os.create_unlinked_file(options.directory, bytes);
}

using CpuSet = std::array<std::uint64_t, std::tuple_size_v<decltype(RankBlock::cpus)>>;

/// Lists the CPUs of a rank that are not among those seen before.
void append_cpus(const RankBlock& block, CpuSet& seen, std::vector<int>& cpus) {
  for (std::size_t w = 0; w < seen.size(); ++w) {
    std::uint64_t fresh = block.cpus[w].load() & ~seen[w];
    seen[w] |= fresh;
    for (; fresh != 0; fresh &= fresh - 1) {
      cpus.push_back(static_cast<int>(w * 64) + std::countr_zero(fresh));
    }
  }
}

std::vector<int> cpus_of(const RankBlock& block) {
  std::vector<int> cpus;
  CpuSet seen{};
  append_cpus(block, seen, cpus);
  return cpus;
}

}  // namespace

Layout Layout::of(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t pairs = n * (n - 1);
  Layout l;
  l.ranks = ranks;
  l.eager_capacity = kEagerCapacity;
  // An odd number of line pairs apart, so that equal offsets in two slots differ in their cache set.
  l.slot_stride = round_up(sizeof(EntryLine) + kEagerCapacity, kLinePair) + kLinePair;
  std::size_t at = round_up(sizeof(SegmentHeader), kPage);
  const auto place = [&at](std::size_t bytes, std::size_t alignment) {
    at = round_up(at, alignment);
    return std::exchange(at, at + bytes);
  };
  l.blocks = place(sizeof(RankBlock) * n, kLinePair);
  l.meeting = place(sizeof(MeetingBlock), kLinePair);
  l.channels = place(sizeof(ChannelControl) * pairs, kLinePair);
  l.slots = place(l.slot_stride * 2 * n, kPage);
  l.results = place(kEagerCapacity * 2, kPage);
  l.base_bytes = round_up(at, kPage);
  l.channel_capacity = buffer_per_pair(ranks);
  l.channel_buffers = place(l.channel_capacity * pairs, kPage);
  l.ring_bytes = total_ring_bytes(ranks);
  l.ring = place(l.ring_bytes, kPage);
  l.bytes = round_up(at, kPage);
  return l;
}

Result<Segment> Segment::create(Os& os, const SegmentOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    return Status(Cause::kUnsupported,
                  fmt::format("{} ranks on one host: 1 to {} are supported", options.ranks, kMaxRanks));
  }
  const Layout layout = Layout::of(options.ranks);
  if (layout.bytes > options.available_bytes) {
    return Status(
        Cause::kResource,
        fmt::format("a group of {} ranks needs up to {} of shared memory, of which {} are left {}",
                    options.ranks, size_text(layout.bytes), size_text(options.available_bytes),
                    kLimits));
  }
  auto token = os.random_token();
  if (!token.ok()) return token.status();
  auto fd = create_backing(os, options, layout.bytes);
  if (!fd.ok()) return fd.status();
  if (Status s = os.allocate(*fd, 0, layout.base_bytes, "a group's control segment"); !s.ok()) return s;
  auto mapping = os.map(*fd, layout.bytes);
  if (!mapping.ok()) return mapping.status();

  Segment segment(std::move(*fd), std::move(*mapping), layout);
  SegmentHeader* header = new (segment.data()) SegmentHeader{};
  header->ranks = static_cast<std::uint32_t>(options.ranks);
  header->bytes = layout.bytes;
  header->epoch = options.epoch;
  header->token = *token;
  for (int r = 0; r < options.ranks; ++r) {
    RankBlock* block = new (&segment.block(r)) RankBlock{};
    if (Status s = init_alive_lock(*block); !s.ok()) return s;
  }
  // Everything else is valid as zeros, which is what the kernel gave.
  header->magic = kMagic;
  return segment;
}

Result<Segment> Segment::attach(Os& os, Fd fd, int ranks) {
  auto size = os.file_size(fd);
  if (!size.ok()) return size.status();
  if (ranks < 1 || ranks > kMaxRanks) {
    return Status(Cause::kUnsupported, fmt::format("{} ranks on one host: 1 to {} are supported",
                                                   ranks, kMaxRanks));
  }
  const Layout layout = Layout::of(ranks);
  if (*size != layout.bytes) {
    return Status(Cause::kVersion, fmt::format("the group's shared segment has {} bytes, this build "
                                               "expects {}: ranks run different builds",
                                               *size, layout.bytes));
  }
  auto mapping = os.map(fd, layout.bytes);
  if (!mapping.ok()) return mapping.status();
  Segment segment(std::move(fd), std::move(*mapping), layout);
  const SegmentHeader& header = segment.header();
  if (header.magic != kMagic || header.bytes != layout.bytes ||
      header.ranks != static_cast<std::uint32_t>(ranks)) {
    return Status(Cause::kVersion, "the group's shared segment was not made by this build");
  }
  return segment;
}

/// A rank writes its own part and the others read it. Without a word of ours all parts would lie at
/// the node of whichever rank commits them.
void Segment::place_ring(Os& os) const {
  const NumaNodes nodes;
  for (int r = 0; r < ranks(); ++r) {
    const auto node = nodes.of(cpus_of(block(r)));
    // A wish: containers may forbid it.
    const std::span<std::byte> part(ring(r), ring_share());
    if (node) static_cast<void>(os.bind_memory(part, *node, Binding::kPreferred));
  }
}

/// What of the ring another rank has not committed yet, about: channels count as parts of it.
std::size_t Segment::uncommitted_ring(Os& os) const {
  const auto there = os.allocated_bytes(fd_);
  if (!there.ok()) return layout_.ring_bytes;
  const std::size_t beyond = *there - std::min(*there, layout_.base_bytes);
  return layout_.ring_bytes - std::min(beyond, layout_.ring_bytes);
}

Status Segment::commit_ring(Os& os, std::size_t warm) {
  if (ring_committed_ || layout_.ring_bytes == 0) return {};
  // Other groups may have taken what was left when this one was made.
  if (const std::uint64_t left = available_memory_bytes(); uncommitted_ring(os) > left) {
    return Status(
        Cause::kResource,
        fmt::format("a group's pipeline needs {} of shared memory, of which {} are left {}",
                    size_text(layout_.ring_bytes), size_text(left), kLimits));
  }
  place_ring(os);
  Status s = os.allocate(fd_, layout_.ring, layout_.ring_bytes, "a group's pipeline");
  ring_committed_ = s.ok();
  const std::size_t bytes = std::min(warm, ring_share());
  for (int r = 0; s.ok() && bytes != 0 && r < layout_.ranks; ++r) {
    static_cast<void>(os.populate({ring(r), bytes}));  // where it fails pages come one by one
  }
  return s;
}

Status Segment::commit_channel(Os& os, int index) const {
  return os.allocate(fd_, layout_.channel_buffers + static_cast<std::size_t>(index) * layout_.channel_capacity,
                     layout_.channel_capacity, "a send/recv channel");
}

void set_cpus(RankBlock& block, const std::vector<int>& cpus) {
  for (const int cpu : cpus) {
    const auto bit = static_cast<std::size_t>(cpu) % (block.cpus.size() * 64);
    block.cpus[bit / 64].fetch_or(std::uint64_t(1) << bit % 64);
  }
}

std::vector<int> group_cpus(const Segment& segment) {
  std::vector<int> cpus;
  CpuSet seen{};
  for (int r = 0; r < segment.ranks(); ++r) append_cpus(segment.block(r), seen, cpus);
  return cpus;
}

Status init_alive_lock(RankBlock& block) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int error = pthread_mutex_init(&block.alive, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (error != 0) return Status(Cause::kSystem, fmt::format("robust mutex: {}", std::strerror(error)));
  return {};
}

Status hold_alive_lock(RankBlock& block) {
  const int error = pthread_mutex_trylock(&block.alive);
  if (error != 0) {
    return Status(Cause::kInternal, fmt::format("a rank's own lock is taken: {}", std::strerror(error)));
  }
  return {};
}

void release_alive_lock(RankBlock& block) { pthread_mutex_unlock(&block.alive); }

Liveness liveness(RankBlock& block) {
  switch (pthread_mutex_trylock(&block.alive)) {
    case EBUSY:
      return Liveness::kAlive;
    case EOWNERDEAD:
      // Unlocked without being made consistent the lock stays unusable, so that every later reader
      // learns of the death too; and our thread must not keep a lock in memory that it will unmap.
      pthread_mutex_unlock(&block.alive);
      return Liveness::kDead;
    case ENOTRECOVERABLE:
      return Liveness::kDead;
    case 0:
      pthread_mutex_unlock(&block.alive);
      return block.state.load(std::memory_order_acquire) == RankState::kLeft ? Liveness::kLeft
                                                                            : Liveness::kAlive;
    default:
      return Liveness::kAlive;
  }
}

}  // namespace topocoll::shm
