// Threads of the library's own.
#pragma once

#include <functional>
#include <new>
#include <thread>

#include "topocoll/status.h"

namespace topocoll {

/// Starts a thread on which no signal handler of the host program ever runs. `name` (at most 15
/// characters) is shown by debuggers and names the thread in the error.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

/// Runs a part of a thread's body; false if memory was exhausted. A thread that throws ends the process,
/// so one that others wait for tells them instead.
template <class Part>
bool has_memory_for(const Part& part) {
  try {
    part();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace topocoll
