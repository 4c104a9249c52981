// Words and limits that the planner's readers, verifier and renderer share.
// Thread rule: free functions on values. Failure rule: none of them fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "topocoll/plan.h"

namespace topocoll {

/// Limits of a plan, so that a hostile file costs bounded memory. A flat plan beyond them would not
/// be usable anyway: its steps alone would take gigabytes.
inline constexpr int kMaxPlanRanks = 1 << 16;
inline constexpr int kMaxPlanChunks = 1 << 20;
inline constexpr int kMaxPlanChannels = 1024;
inline constexpr std::uint64_t kMaxPlanCells = 1U
                                               << 24;  ///< chunks of all ranks and buffers together
inline constexpr std::size_t kMaxNameBytes = 256;

/// Whether a message, and so a peer and a channel, belongs to the step.
bool has_peer(StepKind kind);
/// Whether the step writes its target.
bool has_target(StepKind kind);
/// How many sources the step must have.
std::size_t min_sources(StepKind kind);
std::size_t max_sources(StepKind kind);

/// Whether Plan::chunks cuts the whole message (else each rank's block of it).
bool cuts_message(CollectiveKind kind);

/// The output chunk that occupies the memory of input chunk `input` of `rank` when the call is in
/// place, or -1 if none does.
int in_place_twin(const Plan& plan, int rank, int input);

/// "output:3".
std::string to_string(ChunkRef ref);
/// "recv from 1 on channel 0", "reduce into output:0".
std::string describe(const Step& step);
/// "rank 2, step 5 (recv from 1 on channel 0)", or "rank 2, step 9 (end)" past its last step.
std::string location(const Plan& plan, int rank, std::size_t step);

}  // namespace topocoll
