// Segment: a group's shared memory, mapped in one rank.
//
// Thread rule: the mapping is shared by all threads of a rank; what may be written by whom is said
// at each member of layout.h.
// Failure rule: memory is committed before it is touched, so a full
// file system is a Status with the size and the place, never a SIGBUS; and a segment is made only
// where the control group has room for all of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/memory_limit.h"
#include "base/os.h"
#include "topocoll/status.h"
#include "transport/shm/layout.h"

namespace topocoll::shm {

/// Where a segment's memory comes from.
enum class Backing : std::uint8_t { kAuto, kMemfd, kFile };

struct SegmentOptions {
  int ranks = 1;
  std::uint64_t epoch = 1;
  Backing backing = Backing::kAuto;
  std::string directory = "/dev/shm";  ///< for kFile, and for kAuto where memfd is not to be had
  /// What the group may come to need at most. A control group is no file system: it does not refuse
  /// memory beyond its limit, it kills.
  std::uint64_t available_bytes = available_memory_bytes();
};

class Segment {
 public:
  /// Makes the segment of a new group; rank 0 does this and hands the descriptor to the others.
  static Result<Segment> create(Os& os, const SegmentOptions& options);
  /// Maps a segment that another rank made. Checks size, magic and number of ranks against `ranks`.
  static Result<Segment> attach(Os& os, Fd fd, int ranks);

  Segment(Segment&&) noexcept = default;
  Segment& operator=(Segment&&) noexcept = default;

  [[nodiscard]] const Fd& fd() const { return fd_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] int ranks() const { return layout_.ranks; }
  [[nodiscard]] SegmentHeader& header() const { return *at<SegmentHeader>(0); }
  [[nodiscard]] RankBlock& block(int rank) const {
    return at<RankBlock>(layout_.blocks)[rank];
  }
  [[nodiscard]] MeetingBlock& meeting() const { return *at<MeetingBlock>(layout_.meeting); }
  /// The announcement of `rank` for operations whose sequence number has this parity.
  [[nodiscard]] EntryLine& entry(int parity, int rank) const {
    return *at<EntryLine>(slot_offset(parity, rank));
  }
  /// The eager payload behind it: layout().eager_capacity bytes, 64-byte aligned.
  [[nodiscard]] std::byte* slot(int parity, int rank) const {
    return data() + slot_offset(parity, rank) + sizeof(EntryLine);
  }
  /// What the last arriver reduced: layout().eager_capacity bytes.
  [[nodiscard]] std::byte* result(int parity) const {
    return data() + layout_.results + parity * layout_.eager_capacity;
  }
  /// This rank's part of the ring that pipelined operations move their windows through.
  [[nodiscard]] std::byte* ring(int rank) const {
    return data() + layout_.ring + static_cast<std::size_t>(rank) * ring_share();
  }
  [[nodiscard]] std::size_t ring_share() const {
    return layout_.ring_bytes / static_cast<std::size_t>(layout_.ranks);
  }
  [[nodiscard]] std::byte* data() const { return mapping_.data(); }
  template <class T>
  [[nodiscard]] T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(data() + offset);
  }

  /// Commits the ring; cheap after the first time. Any rank may, before its first use. The part of
  /// a rank whose CPUs (set_cpus) are all at one NUMA node comes from that node's memory while it
  /// has some. The first `warm` bytes of each rank's part get entries in this process's page table
  /// at once, so that the first operations there take no page faults and can be compared with
  /// others.
  Status commit_ring(Os& os, std::size_t warm = 0);
  /// Commits the buffer of one channel (see channel.h).
  Status commit_channel(Os& os, int index) const;

 private:
  Segment(Fd fd, Mapping mapping, Layout layout)
      : fd_(std::move(fd)), mapping_(std::move(mapping)), layout_(layout) {}
  void place_ring(Os& os) const;
  [[nodiscard]] std::size_t uncommitted_ring(Os& os) const;
  [[nodiscard]] std::size_t slot_offset(int parity, int rank) const {
    return layout_.slots +
           static_cast<std::size_t>(parity * layout_.ranks + rank) * layout_.slot_stride;
  }

  Fd fd_;
  Mapping mapping_;
  Layout layout_;
  bool ring_committed_ = false;
};

/// Writes which CPUs a rank may use; and lists those that any of the group's ranks may use,
/// the first ranks' first.
void set_cpus(RankBlock& block, const std::vector<int>& cpus);
std::vector<int> group_cpus(const Segment& segment);

/// What the kernel says of a rank's process.
enum class Liveness : std::uint8_t { kAlive, kDead, kLeft };

/// Makes `rank`'s alive lock; by the segment's creator, for all ranks.
Status init_alive_lock(RankBlock& block);
/// Takes the calling thread's own rank's lock, for as long as the thread lives or until release.
Status hold_alive_lock(RankBlock& block);
void release_alive_lock(RankBlock& block);
/// Reads a peer's lock: no system call while the peer lives.
Liveness liveness(RankBlock& block);

}  // namespace topocoll::shm
