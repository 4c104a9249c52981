#include "planner/exchange_steps.h"

#include <algorithm>
#include <tuple>

#include "base/index.h"

namespace topocoll {

ChannelTable write_exchange(Plan& plan, std::vector<ExchangePiece> pieces) {
  const int n = plan.ranks;
  std::sort(pieces.begin(), pieces.end(), [n](const ExchangePiece& a, const ExchangePiece& b) {
    const auto key = [n](const ExchangePiece& p) {
      return std::tuple((p.to - p.way->root + n) % n, p.way->root, p.piece);
    };
    return key(a) < key(b);
  });
  plan.steps.assign(at(n), {});
  ChannelTable channels;
  std::vector<ScratchPool> scratch(at(n));
  std::vector<int> held(pieces.size(), 0);  // the scratch chunk that a piece lies in on its way
  std::size_t longest = 0;
  for (const ExchangePiece& p : pieces) longest = std::max(longest, p.way->hops.size());
  for (std::size_t stage = 0; stage < longest; ++stage) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const ExchangePiece& p = pieces[i];
      if (stage >= p.way->hops.size()) continue;
      const Hop& hop = p.way->hops[stage];
      ChunkRef source{BufferId::kInput, p.to * plan.chunks + p.piece};
      if (stage > 0) {
        source = {BufferId::kScratch, held[i]};
        scratch[at(hop.from)].give_back(held[i]);
      }
      plan.steps[at(hop.from)].push_back(
          {StepKind::kSend, {source}, {}, hop.to, channels.carry(hop)});
    }
    for (int r = 0; stage == 0 && r < n; ++r) {
      for (int c = r * plan.chunks; c < (r + 1) * plan.chunks; ++c) {
        plan.steps[at(r)].push_back(
            {StepKind::kCopy, {{BufferId::kInput, c}}, {BufferId::kOutput, c}, -1, 0});
      }
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const ExchangePiece& p = pieces[i];
      if (stage >= p.way->hops.size()) continue;
      const Hop& hop = p.way->hops[stage];
      ChunkRef target{BufferId::kOutput, p.way->root * plan.chunks + p.piece};
      if (hop.to != p.to) {
        held[i] = scratch[at(hop.to)].take();
        target = {BufferId::kScratch, held[i]};
      }
      plan.steps[at(hop.to)].push_back({StepKind::kRecv, {}, target, hop.from, channels.take(hop)});
    }
  }
  plan.channels = channels.most();
  plan.scratch_chunks = 0;
  for (const ScratchPool& pool : scratch)
    plan.scratch_chunks = std::max(plan.scratch_chunks, pool.most());
  return channels;
}

}  // namespace topocoll
