#include "work.h"

#include <utility>

#include "callbacks.h"
#include "errors.h"
#include "precompiled.h"

namespace topocoll::plugin {
namespace {

std::optional<std::vector<at::Tensor>> profiled(const std::vector<at::Tensor>& inputs) {
  return inputs.empty() ? std::nullopt : std::make_optional(inputs);
}

c10d::WorkResult result_of(const Status& status) {
  switch (status.cause()) {
    case Cause::kOk: return c10d::WorkResult::SUCCESS;
    case Cause::kTimeout: return c10d::WorkResult::TIMEOUT;
    default: return c10d::WorkResult::COMM_ERROR;
  }
}

}  // namespace

CollectiveWork::CollectiveWork(int rank, CallName name, const std::vector<at::Tensor>& inputs,
                               std::shared_ptr<Ledger> ledger,
                               const std::shared_ptr<Communicator>& communicator,
                               std::chrono::milliseconds timeout)
    // A title makes torch set up an event even if nobody listens: that costs as much as a small message.
    : c10d::Work(rank, name.type, at::hasCallbacks() ? name.title : nullptr, profiled(inputs)),
      ledger_(std::move(ledger)),
      communicator_(communicator),
      timeout_(timeout),
      call_(name) {}

CollectiveWork::~CollectiveWork() = default;

void CollectiveWork::finish_now(Call call, const Status& status, int source, std::uint64_t seq) {
  call_ = std::move(call);
  source_ = source;
  seq_ = seq;
  complete(status);
}

void CollectiveWork::follow(Call call, std::shared_ptr<topocoll::Work> pending, std::uint64_t seq) {
  call_ = std::move(call);
  seq_ = seq;
  pending_ = std::move(pending);
  if (call_.collectives() != 0) {
    ++ledger_->queued;
  }
  {
    const std::lock_guard lock(ledger_->mutex);
    ++ledger_->unfinished;
  }
  followed_.store(true, std::memory_order_release);
  const auto self = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
  pending_->on_done([self](const Status& status) { self->complete(status); });
}

void CollectiveWork::complete(const Status& status) {
  std::call_once(once_, [&] {
    status_ = status;
    if (status.ok()) {
      try {
        call_.copy_back();
      } catch (const c10::Error& e) {
        status_ = Status(Cause::kInternal,
                         std::string("a result could not be copied: ") + e.what_without_backtrace());
      } catch (const std::exception& e) {
        status_ = Status(Cause::kInternal, std::string("a result could not be copied: ") + e.what());
      }
    }
    if (pending_ != nullptr) {
      source_ = pending_->source();
    }
    ended_ = std::chrono::steady_clock::now();
    finish();
    Future future;
    Future outcome;
    {
      const std::lock_guard lock(mutex_);
      done_.store(true, std::memory_order_release);
      future = future_;
      outcome = future_result_;
    }
    if (future || outcome) {
      run_callback([self = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this), future, outcome] {
        self->resolve(future, outcome);
      });
    }
    if (ledger_->has_hook) {
      call_hook();
    }
    if (pending_ != nullptr) {
      if (call_.collectives() != 0) {
        --ledger_->queued;
      }
      const std::lock_guard lock(ledger_->mutex);
      --ledger_->unfinished;
      ledger_->changed.notify_all();
    }
  });
}

void CollectiveWork::call_hook() {
  try {
    ledger_->hook(
        std::make_shared<c10d::WorkInfo>(opType_, seq_, started_, ended_, ended_ - started_));
  } catch (const std::exception& e) {
    TORCH_WARN("topocoll: the completion hook failed: ", e.what());
  }
}

bool CollectiveWork::isCompleted() { return done_.load(std::memory_order_acquire); }

bool CollectiveWork::isSuccess() const {
  return done_.load(std::memory_order_acquire) && status_.ok();
}

Status CollectiveWork::status() const {
  return done_.load(std::memory_order_acquire) ? status_ : Status();
}

std::exception_ptr CollectiveWork::exception() const {
  const Status failed = status();
  return failed.ok() ? nullptr : exception_for(failed);
}

int CollectiveWork::sourceRank() const {
  require(opType_ == c10d::OpType::RECV || opType_ == c10d::OpType::RECVANYSOURCE, call_.name.plain(),
          "only a receive has a source rank");
  return isSuccess() ? source_ : -1;
}

std::vector<at::Tensor> CollectiveWork::result() {
  require(isCompleted(), call_.name.plain(), "result() before the operation has ended");
  return call_.outputs;
}

void CollectiveWork::synchronize() { wait(kNoTimeout); }

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  if (!done_.load(std::memory_order_acquire)) {
    const WithoutGil released;
    if (!followed_.load(std::memory_order_acquire)) {
      raise_invalid(call_.name.plain(), "wait() inside the coalesced group that it belongs to");
    }
    const Status waited = timeout.count() > 0 ? pending_->wait(timeout) : pending_->wait();
    if (!pending_->done()) {
      raise(Status::operation(Cause::kTimeout, {}, waited.epoch(), waited.seq(), call_.name.plain(),
                              "Operation timed out! It goes on after these " +
                                  std::to_string(timeout.count()) +
                                  " ms and may be waited for again"));
    }
    complete(pending_->status());
  }
  raise_if_failed(status_);
  return true;
}

void CollectiveWork::blockCurrentStream() { wait(kNoTimeout); }

void CollectiveWork::abort() {
  if (const auto communicator = communicator_.lock()) {
    communicator->abort("Work.abort() was called");
  }
}

c10::IValue CollectiveWork::value() const {
  if (call_.lists == 0) {
    return call_.outputs;
  }
  const std::size_t length = call_.outputs.size() / call_.lists;
  std::vector<std::vector<at::Tensor>> lists;
  for (auto first = call_.outputs.begin(); lists.size() < call_.lists;
       first += static_cast<std::ptrdiff_t>(length)) {
    lists.emplace_back(first, first + static_cast<std::ptrdiff_t>(length));
  }
  return lists;
}

c10::TypePtr CollectiveWork::value_type() const {
  const auto flat = c10::ListType::create(c10::TensorType::get());
  return call_.lists == 0 ? flat : c10::ListType::create(flat);
}

CollectiveWork::Future CollectiveWork::future_of(Future& slot, const c10::TypePtr& type) {
  Future made;
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    if (slot) {
      return slot;
    }
    slot = made = c10::make_intrusive<c10::ivalue::Future>(type);
    done = done_.load(std::memory_order_acquire);
  }
  if (done) {
    resolve(&slot == &future_ ? made : Future(), &slot == &future_ ? Future() : made);
  }
  return made;
}

void CollectiveWork::resolve(const Future& future, const Future& outcome) {
  if (outcome) {
    outcome->markCompleted(c10::IValue(static_cast<std::int64_t>(result_of(status_))));
  }
  if (future && status_.ok()) {
    future->markCompleted(value());
  } else if (future) {
    future->setError(exception_for(status_));
  }
}

CollectiveWork::Future CollectiveWork::getFuture() { return future_of(future_, value_type()); }

CollectiveWork::Future CollectiveWork::getFutureResult() {
  return future_of(future_result_, c10::IntType::get());
}

float CollectiveWork::getDuration() const {
  require(ledger_->timing, call_.name.plain(), "enable_collectives_timing() was not called");
  require(done_.load(std::memory_order_acquire), call_.name.plain(),
          "duration asked for before the operation has ended");
  return std::chrono::duration<float, std::milli>(ended_ - started_).count();
}

std::uint64_t CollectiveWork::getSequencenumber() const { return seq_; }

std::chrono::milliseconds CollectiveWork::getTimeout() const { return timeout_; }

}  // namespace topocoll::plugin
