// Threads of the library's own.
#pragma once

#include <functional>
#include <thread>

#include "topocoll/status.h"

namespace topocoll {

/// Starts a thread on which no signal handler of the host program ever runs. `name` (at most 15
/// characters) is shown by debuggers and names the thread in the error.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace topocoll
