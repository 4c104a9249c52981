// send, recv, and the monitored barrier that is made of them.
#include <limits>
#include <utility>

#include "backend.h"
#include "deadline.h"
#include "errors.h"
#include "precompiled.h"

namespace topocoll::plugin {
namespace {

using c10d::OpType;

constexpr CallName kSend{OpType::SEND, "topocoll:send"};
constexpr CallName kRecv{OpType::RECV, "topocoll:recv"};
constexpr CallName kRecvAny{OpType::RECVANYSOURCE, "topocoll:recv_any_source"};
constexpr const char* kMonitored = "monitored_barrier";

// The monitored barrier's own tag, which users cannot send with.
constexpr int kMonitorTag = std::numeric_limits<int>::max();

// A byte in flight with the place where it lands, which outlives a caller that gave up.
struct Note {
  std::shared_ptr<char> byte = std::make_shared<char>('m');
  std::shared_ptr<topocoll::Work> work;
};

Note post(Communicator& communicator, CollectiveKind kind, int peer) {
  Note note;
  Operation operation;
  operation.kind = kind;
  operation.type = DataType::kU8;
  operation.peer = peer;
  operation.tag = kMonitorTag;
  operation.in = operation.out = note.byte.get();
  operation.count = 1;
  note.work = communicator.enqueue(std::move(operation));
  note.work->on_done([byte = note.byte](const Status&) {});
  return note;
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) {
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

void require_tag(int tag, const char* operation) {
  require(tag >= 0 && tag < kMonitorTag, operation, "a tag lies between 0 and 2^31-2");
}

}  // namespace

WorkPtr TopocollBackend::send(Tensors& tensors, int destination, int tag) {
  require(tensors.size() == 1, kSend.plain(), "expects one tensor");
  require_usable(tensors[0], kSend.plain());
  require_rank(destination, kSend.plain());
  require_tag(tag, kSend.plain());
  Call call(kSend);
  Operation& operation = call.add(CollectiveKind::kSend, c10d::kUnsetTimeout);
  call.set_moved_type(operation, tensors[0]);
  operation.peer = destination;
  operation.tag = tag;
  operation.in = call.input(tensors[0]);
  call.outputs = tensors;
  return issue(std::move(call), true);
}

WorkPtr TopocollBackend::receive(Tensors& tensors, int source, int tag, CallName name) {
  require(tensors.size() == 1, name.plain(), "expects one tensor");
  require_usable(tensors[0], name.plain());
  require_tag(tag, name.plain());
  Call call(name);
  Operation& operation = call.add(CollectiveKind::kRecv, c10d::kUnsetTimeout);
  call.set_moved_type(operation, tensors[0]);
  operation.peer = source;
  operation.tag = tag;
  // A message may be shorter than the buffer: what it does not reach keeps its value.
  operation.out = call.in_out(tensors[0]);
  call.outputs = tensors;
  return issue(std::move(call), true);
}

WorkPtr TopocollBackend::recv(Tensors& tensors, int source, int tag) {
  require_rank(source, kRecv.plain());
  return receive(tensors, source, tag, kRecv);
}

WorkPtr TopocollBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, kAnySource, tag, kRecvAny);
}

void TopocollBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const WithoutGil released;
  const auto limit = opts.timeout.count() > 0 ? opts.timeout : communicator_->timeout();
  if (rank_ == 0) {
    gather_from_others(limit, wait_all_ranks);
  } else {
    report_to_first(limit);
  }
}

void TopocollBackend::gather_from_others(std::chrono::milliseconds limit, bool wait_all_ranks) {
  const auto deadline = Clock::now() + limit;
  std::vector<Note> notes;
  for (int rank = 1; rank < size_; ++rank) {
    notes.push_back(post(*communicator_, CollectiveKind::kRecv, rank));
  }
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) {
    const Note& note = notes[static_cast<std::size_t>(rank - 1)];
    // The wait ends, not the receive: a receive that ran out of time would end the group before every
    // missing rank is known.
    const Status status = note.work->wait(left(deadline));
    if (!status.ok()) {
      missing.push_back(rank);
      if (!wait_all_ranks) {
        break;
      }
    }
  }
  if (!missing.empty()) {
    const std::string text = "Ranks " + joined(missing) + " failed to pass monitoredBarrier in " +
                             std::to_string(limit.count()) + " ms";
    communicator_->abort("[Rank 0]: " + text);
    raise(Status::operation(Cause::kTimeout, missing, communicator_->health().epoch(), 0, kMonitored,
                            "[Rank 0]: " + text));
  }
  for (int rank = 1; rank < size_; ++rank) {
    raise_if_failed(post(*communicator_, CollectiveKind::kSend, rank).work->wait(left(deadline)));
  }
}

void TopocollBackend::report_to_first(std::chrono::milliseconds limit) {
  // Rank 0 knows who is missing: it gets its full time, and some more to say so.
  const auto deadline = Clock::now() + 2 * limit;
  Status status = post(*communicator_, CollectiveKind::kSend, 0).work->wait(left(deadline));
  if (status.ok()) {
    status = post(*communicator_, CollectiveKind::kRecv, 0).work->wait(left(deadline));
  }
  if (status.ok()) {
    return;
  }
  const std::string text = "Rank " + std::to_string(rank_) +
                           " successfully reached monitoredBarrier, but received errors while waiting "
                           "for send/recv from rank 0";
  communicator_->abort(text);
  raise(Status::operation(status.cause(), status.culprits(), status.epoch(), status.seq(), kMonitored,
                          text + ": " + status.text()));
}

}  // namespace topocoll::plugin
