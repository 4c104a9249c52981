// The backend's life, and how a Call becomes a Work. The collectives themselves are in collectives.cc,
// point-to-point calls and the monitored barrier in peers.cc, sparse tensors in sparse.cc.
#include "backend.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <utility>

#include "deadline.h"
#include "errors.h"
#include "precompiled.h"
#include "store_adapter.h"
#include "topocoll/options.h"

namespace topocoll::plugin {
namespace {

constexpr CallName kCoalesced{c10d::OpType::COALESCED, "topocoll:coalesced"};

// The backends of this process, so that they can leave their groups before Python ends.
struct Registry {
  std::mutex mutex;
  std::set<TopocollBackend*> backends;
};

Registry& registry() {
  static auto* const instance = new Registry;  // never destroyed: backends may die after statics
  return *instance;
}

std::shared_ptr<Communicator> connect(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                      const TopocollOptions& options, const std::string& name,
                                      const std::string& build_tag) {
  const WithoutGil released;
  CommunicatorOptions wanted;
  wanted.rank = rank;
  wanted.size = size;
  wanted.store = store ? adapt(std::move(store)) : nullptr;
  wanted.name = name;
  wanted.timeout = options.timeout;
  wanted.commit = options.commit;
  wanted.build_tag = build_tag;
  const auto& global = options.global_ranks_in_group;
  if (global.size() == static_cast<std::size_t>(size)) {
    wanted.job_ranks.assign(global.begin(), global.end());
  }
  auto made = Communicator::create(wanted);
  raise_if_failed(made.status());
  return std::move(made.value());
}

std::chrono::milliseconds drain_limit() {
  std::chrono::milliseconds::rep limit = 10'000;
  if (const auto options = list_options(); options.ok()) {
    for (const OptionInfo& option : *options) {
      if (option.name == "TOPOCOLL_DRAIN_MS") {
        std::from_chars(option.value.data(), option.value.data() + option.value.size(), limit);
      }
    }
  }
  return std::chrono::milliseconds(limit);
}

}  // namespace

TopocollBackend::TopocollBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                 c10::intrusive_ptr<TopocollOptions> options, std::string name,
                                 std::string build_tag)
    : c10d::Backend(rank, size),
      options_(std::move(options)),
      name_(std::move(name)),
      build_tag_(std::move(build_tag)),
      owner_(getpid()),
      communicator_(connect(std::move(store), rank, size, *options_, name_, build_tag_)) {
  init();
  const std::lock_guard lock(registry().mutex);
  registry().backends.insert(this);
}

TopocollBackend::~TopocollBackend() {
  const WithoutGil released;
  if (getpid() != owner_) {
    // A child of fork(): the communicator and its threads are the parent's. Leaving them alone is all
    // that may be done here.
    new std::shared_ptr<Communicator>(std::move(communicator_));
    return;
  }
  {
    const std::lock_guard lock(registry().mutex);
    registry().backends.erase(this);
  }
  shutdown();
}

void TopocollBackend::leave_all(const std::string& reason) {
  const WithoutGil released;
  std::vector<std::shared_ptr<Communicator>> communicators;
  {
    const std::lock_guard lock(registry().mutex);
    for (TopocollBackend* backend : registry().backends) {
      if (backend->owner_ == getpid()) {
        communicators.push_back(backend->communicator_);
      }
    }
  }
  // One limit for all groups: it is the process that must end.
  const auto deadline = Clock::now() + drain_limit();
  for (const auto& communicator : communicators) {
    if (!reason.empty()) {
      communicator->abort(reason);
    }
    // Whether the other ranks still listen is of no interest to a process that ends.
    static_cast<void>(communicator->shutdown(left(deadline)));
  }
}

void TopocollBackend::require_rank(std::int64_t rank, const char* operation) const {
  if (rank < 0 || rank >= size_) {
    raise_invalid(operation, "rank " + std::to_string(rank) + " is not in this group of " +
                                 std::to_string(size_));
  }
}

c10::intrusive_ptr<CollectiveWork> TopocollBackend::make_work(const Call& call) const {
  const auto limit =
      call.operations.empty() ? std::nullopt : call.operations.front().timeout;
  return c10::make_intrusive<CollectiveWork>(
      rank_, call.name, at::hasCallbacks() ? call.tensors() : Tensors(), ledger_, communicator_,
      limit.value_or(communicator_->timeout()));
}

WorkPtr TopocollBackend::issue(Call call, bool async) {
  if (at::hasCallbacks()) [[unlikely]] {
    const bool p2p = call.collectives() == 0;
    const auto tensors = call.tensors();
    const std::int64_t elements =
        call.operations.empty() ? 0 : static_cast<std::int64_t>(call.operations[0].count);
    const std::string title = call.name.plain();
    RECORD_PARAM_COMMS_DATA(
        std::make_tuple(static_cast<std::int64_t>(issued_.load()) + (p2p ? 0 : 1), p2p),
        std::make_tuple(pg_uid_, pg_desc_), tensors, call.outputs, rank_, std::string(title),
        elements, elements, tensors.empty() ? at::kByte : tensors[0].scalar_type(),
        std::vector<std::int64_t>(), std::vector<std::int64_t>(), 0, 1, size_);
    return issue_now(std::move(call), async);
  }
  return issue_now(std::move(call), async);
}

WorkPtr TopocollBackend::issue_now(Call call, bool async) {
  if (open_groups_.load(std::memory_order_relaxed) != 0) {
    if (Group* group = open_group()) {
      group->call.absorb(std::move(call));
      // A blocking call in a group is done when the group is: its caller must have nothing to wait for.
      return async ? WorkPtr(group->work) : WorkPtr();
    }
  }
  // Behind queued collectives even a blocking one has to queue; and a group of operations ends as one.
  if (!async && call.operations.size() == 1 && ledger_->queued == 0) {
    return run(std::move(call));
  }
  auto work = make_work(call);
  return start(std::move(call), std::move(work));
}

WorkPtr TopocollBackend::run(Call call) {
  auto work = make_work(call);
  const std::uint64_t seq = number(call);
  Communicator::Received received;
  Status status;
  {
    const WithoutGil released;
    status = communicator_->run(call.operations[0], &received);
  }
  if (status.cause() == Cause::kInvalidArgument) {
    --issued_;
  }
  work->finish_now(std::move(call), status, received.source, seq);
  raise_if_failed(work->status());
  return work;
}

// The group's number of the call, or of the last of its collectives.
std::uint64_t TopocollBackend::number(const Call& call) {
  const std::size_t collectives = call.collectives();
  return issued_.fetch_add(collectives) + collectives;
}

WorkPtr TopocollBackend::start(Call call, c10::intrusive_ptr<CollectiveWork> work) {
  if (call.operations.empty()) {
    work->finish_now(std::move(call), Status(), -1, issued_);
    return work;
  }
  const std::size_t collectives = call.collectives();
  const std::uint64_t seq = number(call);
  std::shared_ptr<topocoll::Work> pending;
  if (call.operations.size() == 1) {
    pending = communicator_->enqueue(call.operations[0]);
  } else {
    pending = communicator_->enqueue(
        std::vector<Operation>(call.operations.begin(), call.operations.end()));
  }
  work->follow(std::move(call), pending, seq);
  if (pending->done() && pending->status().cause() == Cause::kInvalidArgument) {
    issued_ -= collectives;
    raise(pending->status());  // nothing was sent: the caller learns it at once
  }
  return work;
}

Status TopocollBackend::run_and_wait(const Call& call) {
  const WithoutGil released;
  static_cast<void>(number(call));
  return ledger_->queued == 0 ? communicator_->run(call.operations[0])
                              : communicator_->enqueue(call.operations[0])->wait();
}

TopocollBackend::Group* TopocollBackend::open_group() {
  const std::lock_guard lock(groups_mutex_);
  const auto found = groups_.find(std::this_thread::get_id());
  return found == groups_.end() ? nullptr : &found->second;
}

void TopocollBackend::startCoalescing() {
  if (open_group() != nullptr) {
    raise_invalid(kCoalesced.plain(), "this thread has an open group already");
  }
  Call call(kCoalesced);
  auto work = make_work(call);
  const std::lock_guard lock(groups_mutex_);
  groups_.emplace(std::this_thread::get_id(), Group{std::move(call), std::move(work)});
  ++open_groups_;
}

WorkPtr TopocollBackend::endCoalescing() {
  std::unique_lock lock(groups_mutex_);
  auto node = groups_.extract(std::this_thread::get_id());
  lock.unlock();
  require(!node.empty(), kCoalesced.plain(), "this thread has no open group");
  --open_groups_;
  return start(std::move(node.mapped().call), std::move(node.mapped().work));
}

c10::intrusive_ptr<c10d::Backend> TopocollBackend::make_child(
    c10::intrusive_ptr<c10d::Store> store, int rank, int size, const std::string& name,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  // The caller may hand over our own options, another backend's, or none.
  auto options = c10::make_intrusive<TopocollOptions>(*options_);
  if (opts) {
    options->timeout = opts->timeout;
    options->group_name = opts->group_name;
    options->group_desc = opts->group_desc;
    options->global_ranks_in_group = opts->global_ranks_in_group;
    if (const auto* ours = dynamic_cast<const TopocollOptions*>(opts.get())) {
      options->commit = ours->commit;
    }
  }
  return c10::make_intrusive<TopocollBackend>(std::move(store), rank, size, std::move(options), name,
                                              build_tag_);
}

c10::intrusive_ptr<c10d::Backend> TopocollBackend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  // Every rank of the parent counts every split, members or not, so that the names agree; torch may
  // split twice with one store.
  const std::string name = name_ + "/split" + std::to_string(splits_++);
  for (const int rank : ranks) {
    require_rank(rank, "split");
  }
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) {
    return nullptr;
  }
  return make_child(store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()),
                    name, opts);
}

c10::intrusive_ptr<c10d::Backend> TopocollBackend::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts, const int& rank, const int& size) {
  // Ranks of several parents meet here, whose names differ: the store alone tells merges apart.
  return make_child(store, rank, size, "merge" + std::to_string(merges_++), opts);
}

void TopocollBackend::eagerConnectSingleDevice(at::Device device) {
  if (!device.is_cpu()) {
    raise(Status(Cause::kUnsupported,
                 "topocoll was built without CUDA: it cannot be bound to " + device.str()));
  }
}

void TopocollBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  communicator_->set_timeout(timeout);
}

c10d::ErrorType TopocollBackend::getError() {
  switch (communicator_->health().cause()) {
    case Cause::kOk: return c10d::ErrorType::SUCCESS;
    case Cause::kTimeout: return c10d::ErrorType::TIMEOUT;
    case Cause::kPeerDied:
    case Cause::kPeerLeft:
    case Cause::kAborted: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

void TopocollBackend::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  require(onCompletionHook_ == nullptr, "register_on_completion_hook", "there is a hook already");
  onCompletionHook_ = hook;
  ledger_->hook = std::move(hook);
  ledger_->has_hook = true;
}

void TopocollBackend::waitForPendingWorks() {
  const WithoutGil released;
  std::unique_lock lock(ledger_->mutex);
  ledger_->changed.wait(lock, [this] { return ledger_->unfinished == 0; });
}

void TopocollBackend::enableCollectivesTiming() { ledger_->timing = true; }

at::Tensor TopocollBackend::allocateTensor(long size, at::TensorOptions options) {
  return at::empty({size}, options);
}

void TopocollBackend::commit() {
  const WithoutGil released;
  raise_if_failed(communicator_->commit());
}

std::string TopocollBackend::topology_json() {
  const WithoutGil released;
  const auto topology = communicator_->topology();
  // It is some collectives, and what was queued came before them: numbers go on from there.
  issued_ = communicator_->sequence();
  raise_if_failed(topology.status());
  return to_json(*topology);
}

void TopocollBackend::abort() {
  const WithoutGil released;
  if (getpid() == owner_) {
    communicator_->abort("abort() was called");
  }
}

void TopocollBackend::shutdown() {
  const WithoutGil released;
  if (getpid() != owner_) {
    return;
  }
  // The group may have failed before: that was reported where it happened.
  static_cast<void>(communicator_->shutdown());
}

}  // namespace topocoll::plugin
