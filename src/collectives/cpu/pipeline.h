// Pipeline: runs a Program over a message of any size through the ranks' parts of the ring.
//
// Window w passes phase p in round w + p, so that all phases work at once on neighbouring windows. A rank
// publishes one counter, its tick: the steps (round * phases + phase + 1) of this operation on top of all
// earlier ones', which is the same number on all ranks. A reader waits for the tick of the writer's
// phase; a writer that comes round to a slot again waits for the ticks of all ranks' last phase of the
// window that was there before.
//
//   round    0     1     2     3
//   phase 0  w0    w1    w2    w3     put
//   phase 1        w0    w1    w2     reduce
//   phase 2              w0    w1     copy
//
// An operation goes on in the ring where the one before has ended. Lines that a peer has just read are
// in its own cache, and to write one again takes four times as long as one that has gone from there
// (measured: 7.3 and 1.9 ns per line between cores that share a last-level cache).
//
// Deadlock-free: with at least as many slots as phases, every wait is for an earlier round or for an
// earlier phase of the same round.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/cpu/context.h"
#include "collectives/cpu/program.h"
#include "collectives/cpu/reduce.h"
#include "collectives/cpu/view.h"
#include "topocoll/types.h"

namespace topocoll {

struct PipelineCall {
  const Program* program = nullptr;
  std::uint64_t seq = 0;
  std::uint64_t base = 0;            ///< steps of all pipelined operations before this one
  std::uint64_t* passed = nullptr;   ///< bytes of the ring that operations have passed; equal on all ranks
  View input;
  View output;
  bool striped = true;
  int chunks = 1;                    ///< the plan's
  std::size_t element = 1;           ///< bytes
  std::size_t window_count = 0;      ///< elements per window (see View::piece)
  std::size_t windows = 0;           ///< equal on all ranks
  CopyKind slot_copy = CopyKind::kMemcpy;  ///< into the ring
  bool stream_output = false;        ///< write outputs around the caches
  ReduceFunction reduce = nullptr;
  ReduceFunction reduce_part = nullptr;  ///< for results that do not hold all contributions yet
  const double* factors = nullptr;   ///< by rank
  int divisor = 1;
};

/// How a program's windows lie in a rank's part of the ring.
struct RingGeometry {
  std::size_t cell_bytes = 0;
  std::size_t slots = 0;   ///< that windows in flight may have
  std::size_t places = 0;  ///< that slots go round through, at least as many
  bool goes_on = false;    ///< from one operation to the next; otherwise each starts at the front
};

/// Cells of `cell_bytes` for `program` in `share` bytes, of which operations go round through `round` if
/// their slots need no more. Slots are 0 if one for each phase does not fit.
RingGeometry ring_geometry(const Program& program, std::size_t cell_bytes, std::size_t share,
                           std::size_t round);

/// Elements per multiple of a cache line.
constexpr std::size_t grain_of(std::size_t element) { return element >= 64 ? 1 : 64 / element; }

/// Steps that a call adds to the base of the next one.
inline std::uint64_t pipeline_steps(const Program& program, std::size_t windows) {
  const auto phases = static_cast<std::uint64_t>(program.phases);
  return (windows + phases - 1) * phases;
}

ExecResult run_pipeline(const Context& context, const PipelineCall& call, shm::Deadline& deadline);

}  // namespace topocoll
