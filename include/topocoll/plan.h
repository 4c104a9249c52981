// Plan: who sends which chunk to whom over which channel, in which order. The same structure is
// printed, saved, verified and executed.
//
//   Plan p = make_direct_plan(CollectiveKind::kAllReduce, "two_shot", 4, 0).value();
//   Status s = verify(p);          // each output chunk holds each contribution exactly once
//
// Chunks. A rank's input and output are cut into chunks; which ones exist depends on the kind
// (n ranks, C = Plan::chunks). A block that belongs to one rank is cut into C pieces; piece c of block r
// is chunk r*C+c:
//   all_reduce      input 0..C-1, output 0..C-1 on every rank
//   broadcast       input 0..C-1 on the root, output 0..C-1 on every rank
//   reduce          input 0..C-1, output 0..C-1 on the root
//   all_gather      input 0..C-1; output 0..nC-1 (block r comes from rank r)
//   reduce_scatter  input 0..nC-1 (block r goes to rank r); output 0..C-1
//   all_to_all      input 0..nC-1 (block r to rank r); output 0..nC-1 (block r from rank r)
//   gather          input 0..C-1; output 0..nC-1 on the root
//   scatter         input 0..nC-1 on the root; output 0..C-1
//   barrier         none
// Scratch chunks 0..Plan::scratch_chunks-1 exist on every rank.
// A plan is a template over the message: an executor applies it window after window, so chunk sizes are
// not part of it.
// Thread rule: a Plan is a value. Failure rule: readers and the verifier name rank and step.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/status.h"
#include "topocoll/types.h"

namespace topocoll {

enum class BufferId : std::uint8_t { kInput, kOutput, kScratch };
TOPOCOLL_API std::string_view name(BufferId buffer);

struct ChunkRef {
  BufferId buffer = BufferId::kInput;
  int chunk = 0;
  friend bool operator==(const ChunkRef&, const ChunkRef&) = default;
};

enum class StepKind : std::uint8_t {
  kSend,    ///< hand `source[0]` to `peer` on `channel`
  kRecv,    ///< take the next chunk that `peer` sent on `channel` into `target`
  kReduce,  ///< target = source[0] op source[1] op ..., evaluated from left to right
  kCopy,    ///< target = source[0]
  kSignal,  ///< tell `peer` on `channel` that every earlier step of this rank is done
  kWait,    ///< wait for the next signal of `peer` on `channel`
};
TOPOCOLL_API std::string_view name(StepKind kind);

struct Step {
  StepKind kind = StepKind::kCopy;
  std::vector<ChunkRef> source;
  ChunkRef target;
  int peer = -1;
  int channel = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

/// What a channel of an ordered pair of ranks stands for on the machine the plan was made for.
struct Route {
  int from = 0;  ///< ranks
  int to = 0;
  int channel = 0;
  std::vector<std::string> path;  ///< ids of the nodes it passes, with both ends
  double gbps = 0;  ///< the plan's share of each link on the path, 10^9 bytes a second; 0: unknown
  friend bool operator==(const Route&, const Route&) = default;
};

struct Plan {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string algorithm;
  int ranks = 1;
  int root = 0;  ///< meaningful where the kind has a root
  int chunks = 1;
  int scratch_chunks = 0;
  int channels = 1;
  std::uint64_t min_bytes = 0;  ///< the band of message sizes the plan is meant for
  std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
  std::string topology_fingerprint;  ///< of the machine it was made for; empty: any
  std::vector<std::vector<Step>> steps;  ///< steps[rank], in program order
  /// Empty, or one for each (from, to, channel) that has a send; ordered by these.
  std::vector<Route> routes;
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Number of input and output chunks that `rank` has under the table above.
TOPOCOLL_API int input_chunks(const Plan& plan, int rank);
TOPOCOLL_API int output_chunks(const Plan& plan, int rank);

/// Symbolic execution of all ranks. OK means: no step is out of bounds, routes (if any) cover every send, nothing is read before it is
/// written, no wait can block for ever (channels are unbounded FIFOs per ordered pair), nothing sent is
/// left unreceived, no rank overwrites its input, nor reads an input chunk after the output chunk that
/// is its place in an in-place call was written; every output chunk holds each contribution exactly
/// once (all_reduce: also in one evaluation order that is the same on all ranks). Chunks and signals
/// travel in separate FIFOs, and a send takes its value at once. The first violation is reported with
/// rank and step.
TOPOCOLL_API Status verify(const Plan& plan);

/// The order in which contributions to output chunk `chunk` on `rank` are combined, as an expression
/// over ranks, e.g. "((0+1)+2)"; for tests and `plan show`. Only for a plan that verifies.
TOPOCOLL_API Result<std::string> evaluation_order(const Plan& plan, int rank, int chunk);
/// The same for all output chunks of `rank`, at the price of one.
TOPOCOLL_API Result<std::vector<std::string>> evaluation_orders(const Plan& plan, int rank);

/// The direct plans (every pair of ranks talks): "one_shot" (everybody sends everything to everybody
/// and evaluates ranks 0..n-1), "two_shot" (all_reduce, reduce, broadcast: owners reduce or hold a chunk each, then
/// pass it on). kUnsupported for a pair that makes no sense.
TOPOCOLL_API Result<Plan> make_direct_plan(CollectiveKind kind, std::string_view algorithm, int ranks,
                                           int root);

/// JSON with "topocoll_plan": 1, and back. Equal plans give equal bytes.
TOPOCOLL_API std::string to_json(const Plan& plan);
TOPOCOLL_API Result<Plan> plan_from_json(std::string_view text);

/// A table of the steps for people.
TOPOCOLL_API std::string render_text(const Plan& plan);

}  // namespace topocoll
