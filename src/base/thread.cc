#include "base/thread.h"

#include <pthread.h>

#include <csignal>
#include <new>
#include <system_error>

#include <fmt/format.h>

namespace topocoll {

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  // A new thread inherits its creator's mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  Status status;
  try {
    thread = std::thread([name, run = std::move(body)] {
      pthread_setname_np(pthread_self(), name);
      run();
    });
  } catch (const std::system_error& e) {
    status = Status(Cause::kResource, fmt::format("starting thread {}: {}", name, e.what()));
  } catch (const std::bad_alloc&) {
    status = Status(Cause::kResource, "out of memory");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) return status;
  return thread;
}

}  // namespace topocoll
