// Steps of an all_to_all whose blocks pass other ranks. Pieces are visited by their distance in
// ranks, so that no rank is everybody's target at once; emit.h says how hops are ordered.
//
// Thread rule: one thread at a time. Failure rule: the pieces must be those of an all_to_all;
// nothing else is checked here, verify() does that.
#pragma once

#include <vector>

#include "planner/channels.h"
#include "planner/trees.h"
#include "topocoll/plan.h"

namespace topocoll {

/// One chunk of the block from way->root to `to`.
struct ExchangePiece {
  const Tree* way = nullptr;
  int to = 0;
  int piece = 0;  ///< 0 to Plan::chunks - 1
};

/// `plan` has its header; steps, scratch_chunks and channels are written. Returns the channels.
ChannelTable write_exchange(Plan& plan, std::vector<ExchangePiece> pieces);

}  // namespace topocoll
