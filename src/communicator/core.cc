#include "communicator/core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "communicator/validate.h"
#include "probe/tuning.h"

namespace topocoll {
namespace {

using std::chrono::milliseconds;

/// How often a thread that waits for messages looks at deadlines and departed peers.
constexpr milliseconds kMessageSlice{50};

constexpr std::array<CopyKind, 4> kSlotCopies{CopyKind::kMemcpy, CopyKind::kSimd, CopyKind::kString,
                                             CopyKind::kStream};

CopyCandidate candidate(CopyKind kind) {
  return {static_cast<std::uint8_t>(kind), copy_function(kind), name(kind)};
}

std::vector<CopyCandidate> copy_candidates(ShmCopy option) {
  switch (option) {
    case ShmCopy::kMemcpy: return {candidate(CopyKind::kMemcpy)};
    case ShmCopy::kSimd: return {candidate(CopyKind::kSimd)};
    case ShmCopy::kString: return {candidate(CopyKind::kString)};
    case ShmCopy::kStream: return {candidate(CopyKind::kStream)};
    case ShmCopy::kAuto: break;
  }
  std::vector<CopyCandidate> all;
  for (CopyKind kind : kSlotCopies) all.push_back(candidate(kind));
  return all;
}

/// As given; empty if the group's ranks are the job's.
std::vector<int> part_of_job(std::vector<int> job_ranks) {
  std::vector<int> same(job_ranks.size());
  std::iota(same.begin(), same.end(), 0);
  if (job_ranks == same) job_ranks.clear();
  return job_ranks;
}

}  // namespace

Core::Core(Os& os, const CommunicatorOptions& options, const Options& settings, CommitMode mode,
           Assembly assembly)
    : os_(os),
      assembly_(std::move(assembly)),
      settings_(settings),
      strict_(mode == CommitMode::kStrict),
      fork_generation_(fork_generation()),
      own_rank_(options.rank),
      job_ranks_(part_of_job(options.job_ranks)),
      timeout_ms_(options.timeout.count()),
      context_(os, assembly_.segment, options.rank),
      sleepy_waiter_(os, assembly_.segment, options.rank, {.spin = 0, .yields = 0}),
      collectives_(context_),
      transport_(os, assembly_.segment, options.rank),
      messages_(os, transport_, options.rank, options.size),
      outcome_(options.size) {}

Core::~Core() {
  if (fork_generation_ == fork_generation()) return;
  // A forked child has these threads' handles but not the threads.
  for (std::thread* t : {&queue_thread_, &message_thread_}) {
    if (t->joinable()) t->detach();
  }
}

Status Core::start(std::vector<Plan> plans) {
  shm::RankBlock& mine = assembly_.segment.block(own_rank_);
  mine.pid.store(os_.pid());
  shm::set_cpus(mine, os_.usable_cpus());
  if (Status s = monitor_.start(os_, mine, std::move(assembly_.links),
                                [this](int rank) { on_link_end(rank); });
      !s.ok()) {
    set_reason(s.text());
    return fail_start({s.cause(), own_rank_, 0});
  }
  mine.state.store(shm::RankState::kJoined);
  shm::ring(os_, assembly_.segment);
  shm::Deadline deadline{timeout()};
  std::vector<int> missing;
  const auto all_joined = [&] {
    missing.clear();
    for (int r = 0; r < size(); ++r) {
      // Who is quick may already have left again.
      if (assembly_.segment.block(r).state.load() == shm::RankState::kAbsent) missing.push_back(r);
    }
    return missing.empty();
  };
  const shm::WaitResult w = context_.waiter.until(0, deadline, all_joined);
  if (!w.ready()) {
    // Where there is a fault already, that one counts.
    const bool dead = w.wake == shm::Wake::kDead;
    return fail_start({dead ? Cause::kPeerDied : Cause::kTimeout,
                       dead || missing.empty() ? w.rank : missing.front(), 0});
  }
  const std::vector<CopyCandidate> copies = copy_candidates(settings_.shm_copy);
  TuningRequest request;
  request.probe = settings_.probe;
  const std::vector<int> cpus = shm::group_cpus(assembly_.segment);
  oversubscribed_ = static_cast<std::size_t>(size()) > std::max<std::size_t>(1, cpus.size());
  request.oversubscribed = oversubscribed_;
  request.cpus = cpus;
  request.copies = copies;
  request.eager_bytes = settings_.eager_bytes;
  request.spin = settings_.spin;
  request.all_reduce = static_cast<std::uint8_t>(settings_.all_reduce_algorithm);
  auto tuning = tune(os_, assembly_.segment, own_rank_, request, deadline);
  if (!tuning.ok()) return fail_start({tuning.status().cause(), tuning.status().culprit(), 0});
  context_.tuning = *tuning;
  context_.waiter.set_policy({tuning->spin, tuning->yields});
  collectives_.use(std::move(plans));
  if (own_rank_ == 0 && size() > 1 && settings_.probe) {
    // Plain vector stores do not differ from the C library's enough to be worth trying.
    const bool free = settings_.shm_copy == ShmCopy::kAuto;
    collectives_.learn(free ? std::vector<CopyKind>{CopyKind::kMemcpy, CopyKind::kString, CopyKind::kStream}
                            : std::vector<CopyKind>{});
  }
  log().debug("rank {} of {}: {}", own_rank_, size(), describe(*tuning, copies));
  return {};
}

CommunicatorInfo Core::info() const {
  CommunicatorInfo info;
  info.transport = size() == 1 ? "self" : "shm";
  info.host_id = assembly_.host_id;
  info.shared_bytes = assembly_.segment.layout().bytes;
  info.oversubscribed = oversubscribed_;
  info.flag_latency_ns = context_.tuning.flag_latency_ns;
  info.tuning = describe(context_.tuning, copy_candidates(ShmCopy::kAuto));
  return info;
}

Status Core::usable() const {
  if (fork_generation_ != fork_generation()) {
    return Status(Cause::kUnsupported, "this communicator belongs to the parent process: make a new one "
                                       "after fork()");
  }
  if (concluded_.load(std::memory_order_acquire)) return final_status_;
  if (closed_.load(std::memory_order_relaxed)) {
    return Status(Cause::kInvalidArgument, "the communicator was shut down");
  }
  return {};
}

milliseconds Core::timeout_of(const Operation& operation) const {
  return operation.timeout.value_or(timeout());
}

bool Core::take_turn() {
  std::uint32_t none = 0;
  return outstanding_.compare_exchange_strong(none, 1, std::memory_order_acquire);
}

void Core::end_turn() {
  if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) == 1 &&
      turn_waiters_.load(std::memory_order_seq_cst) == 0) {
    return;
  }
  const std::lock_guard lock(queue_mutex_);
  queue_changed_.notify_all();
}

Status Core::run(const Operation& operation, Communicator::Received* received) {
  if (Status s = validate(operation, own_rank_, size()); !s.ok()) return s;
  if (Status s = usable(); !s.ok()) return s;
  if (operation.kind == CollectiveKind::kSend || operation.kind == CollectiveKind::kRecv) {
    return run_message(operation, received);
  }
  if (!take_turn()) return enqueue({operation})->wait();
  Status s = perform(operation);
  end_turn();
  return s;
}

Status Core::perform(const Operation& operation) {
  if (concluded_.load(std::memory_order_acquire)) return final_status_;
  const std::uint64_t seq = sequence_.load(std::memory_order_relaxed) + 1;
  sequence_.store(seq, std::memory_order_release);
  shm::Deadline deadline(timeout_of(operation));
  ExecResult r = collectives_.execute(operation, seq, deadline);
  if (r.ok() && strict_) r = collectives_.confirm(seq, deadline);
  if (r.ok()) [[likely]] return {};
  return settle(r, seq);
}

Status Core::commit() {
  if (Status s = usable(); !s.ok()) return s;
  if (!take_turn()) {
    std::unique_lock lock(queue_mutex_);
    turn_waiters_.fetch_add(1);
    queue_changed_.wait(lock, [this] { return take_turn(); });
    turn_waiters_.fetch_sub(1);
  }
  const std::uint64_t seq = sequence();
  shm::Deadline deadline{timeout()};
  Status s = usable();  // the group may have ended while this one waited
  if (s.ok() && seq != 0) {
    const ExecResult r = collectives_.confirm(seq, deadline);
    if (!r.ok()) s = settle(r, seq);
  }
  end_turn();
  return s;
}

std::shared_ptr<P2pRequest> Core::make_request(const Operation& operation) const {
  auto request = std::make_shared<P2pRequest>();
  request->is_send = operation.kind == CollectiveKind::kSend;
  request->peer = operation.peer;
  request->tag = operation.tag;
  request->type = operation.type;
  request->in = static_cast<const std::byte*>(operation.in);
  request->out = static_cast<std::byte*>(operation.out);
  request->bytes = operation.count * size_of(operation.type);
  request->deadline = os_.now() + timeout_of(operation);
  return request;
}

Status Core::run_message(const Operation& operation, Communicator::Received* received) {
  const std::shared_ptr<P2pRequest> request = make_request(operation);
  messages_.post(request);
  if (!request->done.load(std::memory_order_acquire)) {
    drive(context_.waiter, [&] { return request->done.load(std::memory_order_acquire); }, std::nullopt);
  }
  if (received != nullptr) {
    *received = {request->source, request->received_tag,
                 request->received_bytes / size_of(operation.type)};
  }
  return request->status;
}

void Core::drive_requests(const std::function<bool()>& finished, std::optional<TimePoint> deadline) {
  drive(context_.waiter, finished, deadline);
}

void Core::drive(const shm::Waiter& waiter, const std::function<bool()>& finished,
                 std::optional<TimePoint> deadline) {
  for (;;) {
    shm::Deadline slice(kMessageSlice);
    const shm::WaitResult w = waiter.until(0, slice, [&] {
      messages_.progress();
      return finished();
    });
    switch (w.wake) {
      case shm::Wake::kReady: return;
      case shm::Wake::kDead: conclude({Cause::kPeerDied, w.rank, sequence()}); break;
      case shm::Wake::kLeft:
      case shm::Wake::kFault:
        messages_.fail_all(adopt_fault());
        break;
      case shm::Wake::kTimeout: {
        const int broken = messages_.expire();
        if (broken >= 0) conclude({Cause::kTimeout, broken, sequence()});
        break;
      }
    }
    if (deadline && os_.now() >= *deadline) return;
  }
}

std::shared_ptr<Work> Core::enqueue(std::vector<Operation> group) {
  Status refused = usable();
  std::vector<Operation> collectives;
  std::vector<std::shared_ptr<P2pRequest>> requests;
  for (Operation& op : group) {
    if (refused.ok()) refused = validate(op, own_rank_, size());
  }
  for (Operation& op : group) {
    if (!refused.ok()) break;
    if (op.kind == CollectiveKind::kSend || op.kind == CollectiveKind::kRecv) {
      requests.push_back(make_request(op));
    } else {
      collectives.push_back(std::move(op));
    }
  }
  if (!refused.ok()) {
    // One part that has already ended, in error.
    auto request = std::make_shared<P2pRequest>();
    request->status = std::move(refused);
    request->done.store(true);
    auto work = std::make_shared<QueuedWork>(shared_from_this(), std::vector<Operation>{},
                                             std::vector{std::move(request)});
    work->settle_requests();
    return work;
  }
  auto work = std::make_shared<QueuedWork>(shared_from_this(), std::move(collectives), requests);
  for (const auto& request : requests) messages_.post(request);
  const bool messages = !requests.empty() && !work->settle_requests();
  std::unique_lock lock(queue_mutex_);
  if (queues_closed_) {
    lock.unlock();
    const Status left = usable();  // an error: shutdown() came first
    messages_.fail_all(left);
    work->settle_requests();
    if (!work->collectives().empty()) work->collectives_ended(left);
    return work;
  }
  if (messages) {
    message_works_.push_back(work);
    if (Status s = ensure_thread(message_thread_, "topocoll-msg", &Core::message_loop); !s.ok()) {
      log().warn("rank {}: {}; queued messages move only while somebody waits", own_rank_, s.text());
    }
  }
  if (!work->collectives().empty()) {
    if (Status s = ensure_thread(queue_thread_, "topocoll-queue", &Core::queue_loop); !s.ok()) {
      work->collectives_ended(s);
    } else {
      outstanding_.fetch_add(1);
      queue_.push_back(work);
    }
  }
  queue_changed_.notify_all();
  return work;
}

}  // namespace topocoll
