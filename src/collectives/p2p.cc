#include "collectives/p2p.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace topocoll {
namespace {

bool matches(const P2pRequest& request, int peer, int tag) {
  return (request.peer == kAnySource || request.peer == peer) &&
         (request.tag == kAnyTag || request.tag == tag);
}

}  // namespace

P2pEngine::P2pEngine(Os& os, Transport& transport, int rank, int ranks)
    : os_(os), transport_(transport), rank_(rank), outgoing_(static_cast<std::size_t>(ranks)),
      incoming_(static_cast<std::size_t>(ranks)) {}

void P2pEngine::post(std::shared_ptr<P2pRequest> request) {
  const std::lock_guard lock(mutex_);
  pending_.fetch_add(1, std::memory_order_release);
  if (request->is_send) {
    pending_sends_.fetch_add(1, std::memory_order_release);
    if (request->peer == rank_) {
      send_to_self(request);
    } else {
      outgoing_[static_cast<std::size_t>(request->peer)].queue.push_back(std::move(request));
    }
  } else if (!match_kept(request)) {
    receives_.push_back(std::move(request));
  }
  progress_locked();
}

void P2pEngine::progress() {
  if (pending() == 0) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) progress_locked();
}

void P2pEngine::progress_locked() {
  const int ranks = static_cast<int>(outgoing_.size());
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank_) continue;
    send_more(peer);
    while (receive_more(peer)) {
    }
  }
}

void P2pEngine::finish(const std::shared_ptr<P2pRequest>& request, Status status) {
  request->status = std::move(status);
  if (request->is_send) pending_sends_.fetch_sub(1, std::memory_order_release);
  pending_.fetch_sub(1, std::memory_order_release);
  request->done.store(true, std::memory_order_release);
}

void P2pEngine::send_more(int peer) {
  Outgoing& out = outgoing_[static_cast<std::size_t>(peer)];
  while (!out.queue.empty()) {
    const std::shared_ptr<P2pRequest> request = out.queue.front();
    if (out.header_sent == 0) out.header = {request->bytes, request->tag, request->type, {}};
    if (out.header_sent < sizeof(Header)) {
      const auto raw = std::as_bytes(std::span(&out.header, 1)).subspan(out.header_sent);
      auto n = transport_.send_some(peer, raw);
      if (!n.ok()) {
        out.queue.pop_front();
        finish(request, n.status());
        continue;
      }
      out.header_sent += *n;
      if (out.header_sent < sizeof(Header)) return;
    }
    if (out.sent < request->bytes) {
      auto n = transport_.send_some(peer, {request->in + out.sent, request->bytes - out.sent});
      if (n.ok()) out.sent += *n;
      if (out.sent < request->bytes) return;
    }
    out.header_sent = 0;
    out.sent = 0;
    out.queue.pop_front();
    finish(request, {});
  }
}

bool P2pEngine::wanted(int peer) const {
  return std::any_of(receives_.begin(), receives_.end(), [&](const auto& r) {
    return r->peer == kAnySource || r->peer == peer;
  });
}

bool P2pEngine::receive_more(int peer) {
  Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  if (!from.in_message) {
    if (!wanted(peer)) return false;
    auto raw = std::as_writable_bytes(std::span(&from.header, 1)).subspan(from.header_have);
    from.header_have += transport_.receive_some(peer, raw);
    if (from.header_have < sizeof(Header)) return false;
    begin_message(peer);
  }
  const std::size_t total = from.header.bytes;
  if (from.have < total) {
    std::array<std::byte, 4096> dropped;
    std::span<std::byte> room(dropped.data(), std::min(dropped.size(), total - from.have));
    if (from.target != nullptr) room = {from.target->out + from.have, total - from.have};
    if (from.stray != nullptr) room = {from.stray->data.get() + from.have, total - from.have};
    const std::size_t n = transport_.receive_some(peer, room);
    from.have += n;
    if (from.stray != nullptr) from.stray->have = from.have;
    if (from.have < total) return n != 0;
  }
  end_message(peer);
  return true;
}

Status P2pEngine::accept(const P2pRequest& request, const Header& header, int peer) const {
  if (header.type != request.type) {
    return Status(Cause::kMismatch, fmt::format("rank {} sent {} with tag {}, rank {} receives {}",
                                                peer, name(header.type), header.tag, rank_,
                                                name(request.type)));
  }
  if (header.bytes > request.bytes) {
    const std::size_t element = size_of(request.type);
    return Status(Cause::kMismatch,
                  fmt::format("rank {} sent {} elements of {} with tag {}, rank {} has room for {}",
                              peer, header.bytes / element, name(header.type), header.tag, rank_,
                              request.bytes / element));
  }
  return {};
}

void P2pEngine::begin_message(int peer) {
  Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  from.in_message = true;
  from.have = 0;
  from.target = nullptr;
  from.stray = nullptr;
  const auto receive = std::find_if(receives_.begin(), receives_.end(), [&](const auto& r) {
    return matches(*r, peer, from.header.tag);
  });
  if (receive != receives_.end()) {
    std::shared_ptr<P2pRequest> request = *receive;
    receives_.erase(receive);
    if (Status s = accept(*request, from.header, peer); !s.ok()) {
      from.refused = std::move(request);
      from.refusal = std::move(s);
      return;
    }
    from.target = std::move(request);
    return;
  }
  Unexpected& kept = from.kept.emplace_back();
  kept.header = from.header;
  // A length that no memory can hold is a peer's, not ours: such a message is dropped as it comes, and
  // its receive will end at its deadline.
  if (from.header.bytes != 0) kept.data.reset(new (std::nothrow) std::byte[from.header.bytes]);
  if (from.header.bytes != 0 && kept.data == nullptr) {
    from.kept.pop_back();
    return;
  }
  from.stray = &kept;
}

void P2pEngine::end_message(int peer) {
  Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  from.in_message = false;
  from.header_have = 0;
  if (from.refused != nullptr) {
    finish(std::exchange(from.refused, nullptr), from.refusal);
  } else if (from.target != nullptr) {
    const std::shared_ptr<P2pRequest> request = std::move(from.target);
    from.target = nullptr;
    request->source = peer;
    request->received_tag = from.header.tag;
    request->received_bytes = from.header.bytes;
    finish(request, {});
  } else if (from.stray != nullptr) {
    Unexpected* const stray = std::exchange(from.stray, nullptr);
    if (stray->claimed != nullptr) {
      const auto at = std::find_if(from.kept.begin(), from.kept.end(),
                                   [&](const Unexpected& u) { return &u == stray; });
      const std::shared_ptr<P2pRequest> request = stray->claimed;
      deliver_kept(from, peer, at, request);
    }
  }
}

void P2pEngine::deliver_kept(Incoming& from, int peer, std::list<Unexpected>::iterator message,
                             const std::shared_ptr<P2pRequest>& request) {
  if (message->header.bytes != 0) std::memcpy(request->out, message->data.get(), message->header.bytes);
  request->source = peer;
  request->received_tag = message->header.tag;
  request->received_bytes = message->header.bytes;
  from.kept.erase(message);
  finish(request, {});
}

bool P2pEngine::match_kept(const std::shared_ptr<P2pRequest>& request) {
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    Incoming& from = incoming_[i];
    const int peer = static_cast<int>(i);
    const auto kept = std::find_if(from.kept.begin(), from.kept.end(), [&](const Unexpected& u) {
      return u.claimed == nullptr && matches(*request, peer, u.header.tag);
    });
    if (kept == from.kept.end()) continue;
    if (Status s = accept(*request, kept->header, peer); !s.ok()) {
      if (from.stray == &*kept) {
        from.stray = nullptr;
        from.refused = request;
        from.refusal = std::move(s);
      } else {
        finish(request, std::move(s));
      }
      from.kept.erase(kept);
    } else if (kept->have == kept->header.bytes) {
      deliver_kept(from, peer, kept, request);
    } else {
      kept->claimed = request;
    }
    return true;
  }
  return false;
}

void P2pEngine::send_to_self(const std::shared_ptr<P2pRequest>& request) {
  Incoming& from = incoming_[static_cast<std::size_t>(rank_)];
  const Header header{request->bytes, request->tag, request->type, {}};
  const auto receive = std::find_if(receives_.begin(), receives_.end(), [&](const auto& r) {
    return matches(*r, rank_, header.tag);
  });
  if (receive != receives_.end()) {
    const std::shared_ptr<P2pRequest> to = *receive;
    receives_.erase(receive);
    Status s = accept(*to, header, rank_);
    if (s.ok()) {
      if (request->bytes != 0) std::memcpy(to->out, request->in, request->bytes);
      to->source = rank_;
      to->received_tag = header.tag;
      to->received_bytes = request->bytes;
    }
    finish(to, std::move(s));
    return finish(request, {});
  }
  Unexpected& kept = from.kept.emplace_back();
  kept.header = header;
  kept.have = request->bytes;
  if (request->bytes != 0) {
    kept.data.reset(new (std::nothrow) std::byte[request->bytes]);
    if (kept.data == nullptr) {
      from.kept.pop_back();
      return finish(request, Status(Cause::kResource, fmt::format("no memory to keep {} bytes that rank "
                                                                  "{} sends to itself",
                                                                  request->bytes, rank_)));
    }
    std::memcpy(kept.data.get(), request->in, request->bytes);
  }
  finish(request, {});
}

void P2pEngine::fail_all(const Status& status) {
  const std::lock_guard lock(mutex_);
  progress_locked();
  for (Outgoing& out : outgoing_) {
    while (!out.queue.empty()) {
      const std::shared_ptr<P2pRequest> request = out.queue.front();
      out.queue.pop_front();
      finish(request, status);
    }
  }
  for (const auto& request : std::exchange(receives_, {})) finish(request, status);
  for (Incoming& from : incoming_) {
    if (from.target != nullptr) finish(std::exchange(from.target, nullptr), status);
    if (from.refused != nullptr) finish(std::exchange(from.refused, nullptr), from.refusal);
    for (Unexpected& kept : from.kept) {
      if (kept.claimed != nullptr) finish(std::exchange(kept.claimed, nullptr), status);
    }
  }
}

int P2pEngine::expire() {
  if (pending() == 0) return -1;
  const std::lock_guard lock(mutex_);
  progress_locked();
  const TimePoint now = os_.now();
  check_departed();
  for (auto it = receives_.begin(); it != receives_.end();) {
    const std::shared_ptr<P2pRequest> request = *it;
    if (now < request->deadline) {
      ++it;
      continue;
    }
    it = receives_.erase(it);
    const std::string from =
        request->peer == kAnySource ? "any rank" : fmt::format("rank {}", request->peer);
    request->source = request->peer;
    finish(request, Status::operation(Cause::kTimeout,
                                      request->peer >= 0 ? std::vector<int>{request->peer} : std::vector<int>{},
                                      0, 0, "", fmt::format("rank {} received nothing from {} with tag {} "
                                                            "in time",
                                                            rank_, from, request->tag)));
  }
  int broken = -1;
  for (std::size_t i = 0; i < outgoing_.size(); ++i) {
    Outgoing& out = outgoing_[i];
    if (!out.queue.empty() && now >= out.queue.front()->deadline) {
      if (out.header_sent != 0) {
        broken = static_cast<int>(i);
        continue;
      }
      const std::shared_ptr<P2pRequest> request = out.queue.front();
      out.queue.pop_front();
      finish(request, Status::operation(Cause::kTimeout, {static_cast<int>(i)}, 0, 0, "",
                                        fmt::format("rank {} did not take a message from rank {} in time",
                                                    i, rank_)));
    }
    Incoming& from = incoming_[i];
    if (from.refused != nullptr && now >= from.refused->deadline) {
      finish(std::exchange(from.refused, nullptr), from.refusal);
    }
    const P2pRequest* const reads = from.target != nullptr  ? from.target.get()
                                    : from.stray != nullptr ? from.stray->claimed.get()
                                                            : nullptr;
    if (reads != nullptr && now >= reads->deadline) broken = static_cast<int>(i);
  }
  return broken;
}

// A peer that left in good order had sent everything before; what is not here by then never comes.
void P2pEngine::check_departed() {
  const auto left = [this](int peer) {
    return peer != rank_ && transport_.peer(peer) == PeerState::kLeft && transport_.available(peer) == 0;
  };
  const auto error = [this](int peer) {
    return Status::operation(Cause::kPeerLeft, {peer}, 0, 0, "",
                             fmt::format("rank {} left; rank {} still had messages to exchange with it",
                                         peer, rank_));
  };
  const int ranks = static_cast<int>(outgoing_.size());
  for (auto it = receives_.begin(); it != receives_.end();) {
    const std::shared_ptr<P2pRequest> request = *it;
    int gone = request->peer;
    if (gone == kAnySource) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != rank_ && !left(peer)) {
          gone = kAnySource;
          break;
        }
        if (peer != rank_) gone = peer;
      }
    } else if (!left(gone)) {
      gone = kAnySource;
    }
    if (gone == kAnySource) {
      ++it;
      continue;
    }
    it = receives_.erase(it);
    finish(request, error(gone));
  }
  for (int peer = 0; peer < ranks; ++peer) {
    Outgoing& out = outgoing_[static_cast<std::size_t>(peer)];
    Incoming& from = incoming_[static_cast<std::size_t>(peer)];
    if ((out.queue.empty() && !from.in_message) || !left(peer)) continue;
    for (const auto& request : std::exchange(out.queue, {})) finish(request, error(peer));
    if (from.target != nullptr) finish(std::exchange(from.target, nullptr), error(peer));
    if (from.refused != nullptr) finish(std::exchange(from.refused, nullptr), from.refusal);
    for (Unexpected& kept : from.kept) {
      if (kept.claimed != nullptr) finish(std::exchange(kept.claimed, nullptr), error(peer));
    }
  }
}

}  // namespace topocoll
