#include "control/monitor.h"

#include <future>
#include <utility>

#include "base/thread.h"

namespace topocoll {

Status Monitor::start(Os& os, shm::RankBlock& own, std::vector<Link> links, OnEnd on_end) {
  auto event = os.create_event();
  if (!event.ok()) return event.status();
  os_ = &os;
  own_ = &own;
  links_ = std::move(links);
  on_end_ = std::move(on_end);
  stop_event_ = std::move(*event);
  fork_generation_ = fork_generation();

  std::promise<Status> held;
  std::future<Status> result = held.get_future();
  auto thread = start_thread("topocoll-watch", [this, &held] {
    Status s = shm::hold_alive_lock(*own_);
    const bool ok = s.ok();
    held.set_value(std::move(s));
    if (!ok) return;
    watch();
    shm::release_alive_lock(*own_);
  });
  if (!thread.ok()) return thread.status();
  thread_ = std::move(*thread);
  return result.get();
}

void Monitor::watch() {
  std::vector<int> fds{stop_event_.get()};
  std::vector<int> ranks{-1};
  for (const Link& link : links_) {
    fds.push_back(link.socket.get());
    ranks.push_back(link.rank);
  }
  for (;;) {
    const auto ready = os_->wait_readable(fds, os_->now() + std::chrono::hours(1));
    // From the back, so that erasing keeps the smaller indices valid.
    for (auto i = ready.rbegin(); i != ready.rend(); ++i) {
      if (*i == 0) return;
      // Nothing is ever sent after the hello: readable means that the other end is gone.
      on_end_(ranks[*i]);
      fds.erase(fds.begin() + static_cast<std::ptrdiff_t>(*i));
      ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(*i));
    }
  }
}

void Monitor::stop() {
  if (!thread_.joinable()) return;
  if (fork_generation_ != fork_generation()) {
    thread_.detach();
    return;
  }
  os_->notify_event(stop_event_);
  thread_.join();
  links_.clear();
}

}  // namespace topocoll
