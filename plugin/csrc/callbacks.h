// Threads for the callbacks of Futures. A callback may itself wait for another Future, so none of them
// may run on a communicator's thread, and a new thread is added whenever all are busy.
// Thread rule: any thread. Failure rule: a job must not throw.
#pragma once

#include <functional>

namespace topocoll::plugin {

/// Runs `job` soon, on a thread without the GIL; in place if the threads were stopped.
void run_callback(std::function<void()> job);

/// Runs what is queued, then ends the threads. The caller must not hold the GIL.
void stop_callbacks();

}  // namespace topocoll::plugin
