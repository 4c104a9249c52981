// What a connection carries: echoes for its latency, and a stream of a bounded time, one way or
// both ways at once, for its bandwidth.
//
// A stream is frames of a fixed size, the first byte of each saying whether more follow, so that no
// length of a peer's is ever trusted. The receiver cuts the time into slices and counts bytes in
// each; the first fifth, in which TCP finds its speed, does not count.
//
// Thread rule: one thread per connection. Failure rule: every wait ends at its deadline with
// kTimeout; a peer that goes away is kPeerLeft.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "base/fd.h"
#include "base/os.h"
#include "topocoll/status.h"

namespace topocoll::tcp {

inline constexpr std::size_t kFrameBytes = 64 * 1024;
/// Slices that a receiver keeps at most.
inline constexpr std::size_t kMaxSlices = 64;
/// A stream is shorter than this; whoever is asked for more refuses.
inline constexpr std::chrono::milliseconds kMaxFlowTime{10'000};

struct FlowDirections {
  bool send = false;
  bool receive = false;
};

/// Runs a stream of `time`, and returns what came in, in 10^9 bytes per second by slice. Both ends
/// call it, each with its own directions.
Result<std::vector<double>> run_flow(const Fd& socket, FlowDirections directions,
                                     std::chrono::milliseconds time);

}  // namespace topocoll::tcp
