// FaultOs: the kernel and the clock, with faults that a test scripts.
//
//   FaultOs os;
//   os.fail("allocate", Status(Cause::kResource, "full"), {.from = 2});   // the second call and
//   later os.set_clock(TimePoint{}); os.advance(5s);                            // time moves by
//   hand
//
// Calls that are not scripted go to the real Os. With a clock set by hand, deadlines are those of
// that clock: a call whose deadline lies ahead waits one millisecond of real time at most, so that
// a test which moves the clock from another thread is noticed. Thread rule: any thread. Failure
// rule: a call that cannot fail (now, yield, ...) refuses to be scripted.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/os.h"

namespace topocoll::testing {

class FaultOs : public Os {
 public:
  /// Which calls a fault hits: numbers `from` to `to`, counted from 1.
  struct Calls {
    int from = 1;
    int to = std::numeric_limits<int>::max();
  };

  explicit FaultOs(Os& base = Os::real()) : base_(base) {}

  /// Lets calls of `name` fail with `status`.
  void fail(const std::string& name, Status status, Calls calls) {
    static const std::set<std::string> kFallible{
        "random_token", "create_memfd",    "create_unlinked_file", "allocate",
        "map",          "file_size",       "allocated_bytes",      "populate",
        "accept",       "listen_abstract", "connect_abstract",     "peer_credentials",
        "send_all",     "receive_all",     "create_event",         "pin_thread",
        "bind_memory"};
    if (!kFallible.contains(name)) throw std::invalid_argument("no such fallible call: " + name);
    const std::lock_guard lock(mutex_);
    scripts_[name].push_back({std::move(status), calls});
  }
  void fail(const std::string& name, Status status) { fail(name, std::move(status), Calls()); }
  /// Runs `action` before every call of `name`, outside any lock.
  void before(const std::string& name, std::function<void()> action) {
    const std::lock_guard lock(mutex_);
    actions_[name] = std::move(action);
  }
  /// How often `name` was called.
  [[nodiscard]] int calls(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto it = calls_.find(name);
    return it == calls_.end() ? 0 : it->second;
  }
  void set_clock(TimePoint now) {
    const std::lock_guard lock(mutex_);
    clock_ = now;
  }
  void advance(Nanoseconds by) {
    const std::lock_guard lock(mutex_);
    clock_ = clock_.value_or(base_.now()) + by;
  }

  TimePoint now() override {
    static_cast<void>(note("now"));  // cannot fail
    const std::lock_guard lock(mutex_);
    return clock_ ? *clock_ : base_.now();
  }
  void yield() override {
    static_cast<void>(note("yield"));  // cannot fail
    base_.yield();
  }
  void sleep(Nanoseconds time) override {
    static_cast<void>(note("sleep"));  // cannot fail
    base_.sleep(time);
  }
  int pid() override { return base_.pid(); }
  unsigned uid() override { return base_.uid(); }
  std::vector<int> usable_cpus() override { return base_.usable_cpus(); }
  bool pin_thread(int cpu) override { return note("pin_thread").ok() && base_.pin_thread(cpu); }
  Status bind_memory(std::span<std::byte> memory, int node, Binding binding) override {
    if (Status s = note("bind_memory"); !s.ok()) return s;
    return base_.bind_memory(memory, node, binding);
  }
  Result<Token> random_token() override {
    if (Status s = note("random_token"); !s.ok()) return s;
    return base_.random_token();
  }
  Result<Fd> create_memfd(const std::string& name, std::size_t bytes) override {
    if (Status s = note("create_memfd"); !s.ok()) return s;
    return base_.create_memfd(name, bytes);
  }
  Result<Fd> create_unlinked_file(const std::string& directory, std::size_t bytes) override {
    if (Status s = note("create_unlinked_file"); !s.ok()) return s;
    return base_.create_unlinked_file(directory, bytes);
  }
  Status allocate(const Fd& fd, std::size_t offset, std::size_t bytes,
                  const std::string& what) override {
    if (Status s = note("allocate"); !s.ok()) return s;
    return base_.allocate(fd, offset, bytes, what);
  }
  Result<Mapping> map(const Fd& fd, std::size_t bytes) override {
    if (Status s = note("map"); !s.ok()) return s;
    return base_.map(fd, bytes);
  }
  Result<std::size_t> file_size(const Fd& fd) override {
    if (Status s = note("file_size"); !s.ok()) return s;
    return base_.file_size(fd);
  }
  Result<std::size_t> allocated_bytes(const Fd& fd) override {
    if (Status s = note("allocated_bytes"); !s.ok()) return s;
    return base_.allocated_bytes(fd);
  }
  Status populate(std::span<std::byte> memory) override {
    if (Status s = note("populate"); !s.ok()) return s;
    return base_.populate(memory);
  }
  void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                  TimePoint deadline) override {
    static_cast<void>(note("futex_wait"));  // cannot fail
    base_.futex_wait(word, expected, real(deadline));
  }
  void futex_wake_all(std::atomic<std::uint32_t>* word) override {
    static_cast<void>(note("futex_wake_all"));  // cannot fail
    base_.futex_wake_all(word);
  }
  Result<Fd> listen_abstract(const std::string& name, int backlog) override {
    if (Status s = note("listen_abstract"); !s.ok()) return s;
    return base_.listen_abstract(name, backlog);
  }
  Result<Fd> connect_abstract(const std::string& name, TimePoint deadline) override {
    if (Status s = note("connect_abstract"); !s.ok()) return s;
    return base_.connect_abstract(name, real(deadline));
  }
  Result<Fd> accept(const Fd& listener, TimePoint deadline) override {
    if (Status s = note("accept"); !s.ok()) return s;
    return base_.accept(listener, real(deadline));
  }
  Result<PeerCredentials> peer_credentials(const Fd& socket) override {
    if (Status s = note("peer_credentials"); !s.ok()) return s;
    return base_.peer_credentials(socket);
  }
  Status send_all(const Fd& socket, std::span<const std::byte> bytes, int attached,
                  TimePoint deadline) override {
    if (Status s = note("send_all"); !s.ok()) return s;
    return base_.send_all(socket, bytes, attached, real(deadline));
  }
  Result<Fd> receive_all(const Fd& socket, std::span<std::byte> bytes,
                         TimePoint deadline) override {
    if (Status s = note("receive_all"); !s.ok()) return s;
    return base_.receive_all(socket, bytes, real(deadline));
  }
  std::vector<std::size_t> wait_readable(std::span<const int> fds, TimePoint deadline) override {
    static_cast<void>(note("wait_readable"));  // cannot fail
    return base_.wait_readable(fds, real(deadline));
  }
  Result<Fd> create_event() override {
    if (Status s = note("create_event"); !s.ok()) return s;
    return base_.create_event();
  }
  void notify_event(const Fd& event) override {
    static_cast<void>(note("notify_event"));  // cannot fail
    base_.notify_event(event);
  }

 private:
  struct Script {
    Status status;
    Calls calls;
  };

  Status note(const char* name) {
    std::function<void()> action;
    Status status;
    {
      const std::lock_guard lock(mutex_);
      const int number = ++calls_[name];
      for (const Script& s : scripts_[name]) {
        if (number >= s.calls.from && number <= s.calls.to && status.ok()) status = s.status;
      }
      action = actions_[name];
    }
    if (action) action();
    return status;
  }

  /// The real deadline that stands for one of the clock set by hand.
  TimePoint real(TimePoint deadline) {
    const std::lock_guard lock(mutex_);
    if (!clock_) return deadline;
    return base_.now() + std::clamp<Nanoseconds>(deadline - *clock_, Nanoseconds(0),
                                                 std::chrono::milliseconds(1));
  }

  Os& base_;
  mutable std::mutex mutex_;
  std::optional<TimePoint> clock_;
  std::map<std::string, std::vector<Script>> scripts_;
  std::map<std::string, std::function<void()>> actions_;
  std::map<std::string, int> calls_;
};

}  // namespace topocoll::testing
