// Point-to-point messages over a Transport: matching by source and tag, any source, any tag, any order of
// tags, messages of any size in both directions at once.
//
// Each ordered pair of ranks is a FIFO; a message is a header and its bytes. A message that arrives for a
// receive that is not posted yet is kept in memory, but only while some other receive is waiting for
// that source: otherwise it stays in the channel and holds its sender back.
//
// Thread rule: any thread; one progresses at a time. Failure rule: a receive succeeds when its data are in,
// whatever happened to the sender meanwhile; a send succeeds when its buffer may be reused.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/os.h"
#include "topocoll/operation.h"
#include "topocoll/status.h"
#include "transport/transport.h"

namespace topocoll {

/// One send or receive in flight. The engine owns the state until done.
struct P2pRequest {
  bool is_send = false;
  int peer = 0;  ///< recv: may be kAnySource
  int tag = 0;   ///< recv: may be kAnyTag
  DataType type = DataType::kU8;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
  TimePoint deadline;

  std::atomic<bool> done{false};
  // Valid once done.
  Status status;
  int source = -1;
  int received_tag = 0;
  std::size_t received_bytes = 0;
};

class P2pEngine {
 public:
  P2pEngine(Os& os, Transport& transport, int rank, int ranks);

  /// Queues a request; its buffers must live until it is done.
  void post(std::shared_ptr<P2pRequest> request);
  /// Moves what can be moved without waiting. Cheap if nothing can.
  void progress();
  /// Requests in flight.
  [[nodiscard]] std::size_t pending() const { return pending_.load(std::memory_order_acquire); }
  /// Sends in flight, for those who drain before they leave.
  [[nodiscard]] std::size_t pending_sends() const { return pending_sends_.load(std::memory_order_acquire); }
  /// Delivers what has already arrived, then ends everything else with `status`.
  void fail_all(const Status& status);
  /// Ends requests whose deadline has passed. Returns the rank of a peer in the middle of whose message
  /// that happened, for whom the pair's FIFO is now unusable; else -1.
  int expire();

 private:
  struct Header {
    std::uint64_t bytes;
    std::int32_t tag;
    DataType type;
    std::uint8_t reserved[3];
  };
  static_assert(sizeof(Header) == 16);

  /// A message that came before its receive.
  struct Unexpected {
    Header header;
    std::unique_ptr<std::byte[]> data;
    std::size_t have = 0;  ///< bytes that are in
    std::shared_ptr<P2pRequest> claimed;  ///< the receive that waits for the rest
  };

  struct Outgoing {
    std::deque<std::shared_ptr<P2pRequest>> queue;
    Header header{};
    std::size_t header_sent = 0;
    std::size_t sent = 0;
  };

  struct Incoming {
    Header header{};
    std::size_t header_have = 0;
    bool in_message = false;
    std::shared_ptr<P2pRequest> target;  ///< null: into `stray`, or dropped
    Unexpected* stray = nullptr;
    /// A receive that cannot take the message. It ends once the bytes have been dropped: its thread may
    /// be the only one that moves them, and the sender waits for that.
    std::shared_ptr<P2pRequest> refused;
    Status refusal;
    std::size_t have = 0;
    std::list<Unexpected> kept;  ///< in order of arrival
  };

  void progress_locked();
  void send_more(int peer);
  bool receive_more(int peer);
  void begin_message(int peer);
  void end_message(int peer);
  [[nodiscard]] bool wanted(int peer) const;
  bool match_kept(const std::shared_ptr<P2pRequest>& request);
  void deliver_kept(Incoming& from, int peer, std::list<Unexpected>::iterator message,
                    const std::shared_ptr<P2pRequest>& request);
  void send_to_self(const std::shared_ptr<P2pRequest>& request);
  void check_departed();
  void finish(const std::shared_ptr<P2pRequest>& request, Status status);
  Status accept(const P2pRequest& request, const Header& header, int peer) const;

  Os& os_;
  Transport& transport_;
  int rank_;
  std::mutex mutex_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::list<std::shared_ptr<P2pRequest>> receives_;  ///< posted, unmatched, in order
  std::atomic<std::size_t> pending_{0};
  std::atomic<std::size_t> pending_sends_{0};
};

}  // namespace topocoll
