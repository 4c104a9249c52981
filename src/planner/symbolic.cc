#include "planner/symbolic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/steps.h"

namespace topocoll {

using Id = ExpressionPool::Id;

SymbolicRun::SymbolicRun(const Plan& plan) : plan_(plan) {
  ranks_.resize(static_cast<std::size_t>(plan.ranks));
  for (int r = 0; r < plan.ranks; ++r) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    rank.cells.resize(static_cast<std::size_t>(input_chunks(plan, r) + output_chunks(plan, r) +
                                               plan.scratch_chunks));
    if (plan.kind == CollectiveKind::kBarrier) {
      rank.heard = std::make_shared<RankSet>((ranks_.size() + 63) / 64, 0);
      (*rank.heard)[static_cast<std::size_t>(r) / 64] |= std::uint64_t{1} << (r % 64);
    }
    runnable_.push_back(r);
  }
}

Status SymbolicRun::run() {
  while (!runnable_.empty()) {
    const int rank = runnable_.front();
    runnable_.pop_front();
    if (Status s = run_rank(rank); !s.ok()) return s;
  }
  if (Status s = deadlock(); !s.ok()) return s;
  return unreceived();
}

Status SymbolicRun::run_rank(int r) {
  Rank& rank = ranks_[static_cast<std::size_t>(r)];
  const auto& program = plan_.steps[static_cast<std::size_t>(r)];
  rank.blocked = false;
  while (rank.next_step < program.size()) {
    if (Status s = execute(r, program[rank.next_step]); !s.ok()) return s;
    if (rank.blocked) break;
    ++rank.next_step;
  }
  return Status();
}

Status SymbolicRun::execute(int rank, const Step& step) {
  switch (step.kind) {
    case StepKind::kSignal:
      put(rank, step, ExpressionPool::kNothing);
      return Status();
    case StepKind::kRecv:
    case StepKind::kWait:
      return take(rank, step);
    case StepKind::kSend:
    case StepKind::kCopy:
    case StepKind::kReduce:
      break;
  }
  Id value = ExpressionPool::kNothing;
  for (const ChunkRef& ref : step.source) {
    Result<Id> part = read(rank, ref);
    if (!part.ok()) return part.status();
    value = value == ExpressionPool::kNothing ? *part : expressions_.combine(value, *part);
  }
  if (step.kind == StepKind::kSend) {
    put(rank, step, value);
  } else {
    cell(rank, step.target) = value;
  }
  return Status();
}

void SymbolicRun::put(int rank, const Step& step, Id value) {
  const Rank& sender = ranks_[static_cast<std::size_t>(rank)];
  const std::uint64_t key = fifo_key(rank, step.peer, step);
  fifos_[key].messages.push_back({value, sender.next_step, sender.heard});
  Rank& reader = ranks_[static_cast<std::size_t>(step.peer)];
  if (reader.blocked && reader.waits_for == key) {
    reader.blocked = false;
    runnable_.push_back(step.peer);
  }
}

Status SymbolicRun::take(int r, const Step& step) {
  Rank& rank = ranks_[static_cast<std::size_t>(r)];
  const std::uint64_t key = fifo_key(step.peer, r, step);
  Fifo& fifo = fifos_[key];
  if (fifo.taken == fifo.messages.size()) {
    rank.blocked = true;
    rank.waits_for = key;
    return Status();
  }
  const Message& message = fifo.messages[fifo.taken++];
  if (step.kind == StepKind::kRecv) cell(r, step.target) = message.value;
  learn(rank, message.heard);
  if (fifo.taken == fifo.messages.size()) fifo = Fifo();
  return Status();
}

void SymbolicRun::learn(Rank& rank, const std::shared_ptr<const RankSet>& heard) {
  if (!heard) return;
  if (rank.heard.use_count() > 1) rank.heard = std::make_shared<RankSet>(*rank.heard);
  for (std::size_t i = 0; i < heard->size(); ++i) (*rank.heard)[i] |= (*heard)[i];
}

Id& SymbolicRun::cell(int rank, ChunkRef ref) {
  int index = ref.chunk;
  if (ref.buffer != BufferId::kInput) index += input_chunks(plan_, rank);
  if (ref.buffer == BufferId::kScratch) index += output_chunks(plan_, rank);
  return ranks_[static_cast<std::size_t>(rank)].cells[static_cast<std::size_t>(index)];
}

Id SymbolicRun::output(int rank, int chunk) const {
  const auto index = static_cast<std::size_t>(input_chunks(plan_, rank) + chunk);
  return ranks_[static_cast<std::size_t>(rank)].cells[index];
}

Result<Id> SymbolicRun::read(int rank, ChunkRef ref) {
  Id& value = cell(rank, ref);
  if (ref.buffer != BufferId::kInput) {
    if (value != ExpressionPool::kNothing) return value;
    return violation(rank, fmt::format("reads {} before it is written", to_string(ref)));
  }
  if (value == ExpressionPool::kNothing) value = expressions_.leaf({rank, ref.chunk});
  // One plan serves calls in place too, so an output that would have replaced this input counts.
  if (const int twin = in_place_twin(plan_, rank, ref.chunk); twin >= 0) {
    const Id written = output(rank, twin);
    if (written != ExpressionPool::kNothing && written != value) {
      return violation(rank,
                       fmt::format("reads {} after writing output:{}, which is the same memory "
                                   "when the call is in place",
                                   to_string(ref), twin));
    }
  }
  return value;
}

std::uint64_t SymbolicRun::fifo_key(int from, int to, const Step& step) const {
  const bool signal = step.kind == StepKind::kSignal || step.kind == StepKind::kWait;
  std::uint64_t key = static_cast<std::uint64_t>(from);
  key = key * static_cast<std::uint64_t>(plan_.ranks) + static_cast<std::uint64_t>(to);
  key = key * static_cast<std::uint64_t>(plan_.channels) + static_cast<std::uint64_t>(step.channel);
  return key * 2 + (signal ? 1 : 0);
}

Status SymbolicRun::violation(int rank, const std::string& text) const {
  const std::size_t step = ranks_[static_cast<std::size_t>(rank)].next_step;
  return Status(Cause::kInvalidArgument, location(plan_, rank, step) + ": " + text);
}

Status SymbolicRun::deadlock() const {
  const auto blocked = [](const Rank& rank) { return rank.blocked; };
  const auto first = std::find_if(ranks_.begin(), ranks_.end(), blocked);
  if (first == ranks_.end()) return Status();
  const auto waiting = static_cast<int>(first - ranks_.begin());
  const Step& step = plan_.steps[static_cast<std::size_t>(waiting)][first->next_step];
  const Rank& peer = ranks_[static_cast<std::size_t>(step.peer)];
  if (!peer.blocked) {
    return violation(waiting,
                     fmt::format("waits for ever, as rank {} ends without a matching {}", step.peer,
                                 step.kind == StepKind::kRecv ? "send" : "signal"));
  }
  return violation(waiting, "waits for ever, as the peer is itself blocked at " +
                                location(plan_, step.peer, peer.next_step));
}

Status SymbolicRun::unreceived() const {
  std::optional<std::pair<int, std::size_t>> first;
  const auto span = static_cast<std::uint64_t>(plan_.channels) * 2;
  for (const auto& [key, fifo] : fifos_) {
    if (fifo.taken == fifo.messages.size()) continue;
    const auto sender = static_cast<int>(key / span / static_cast<std::uint64_t>(plan_.ranks));
    const std::pair<int, std::size_t> found{sender, fifo.messages[fifo.taken].step};
    first = first ? std::min(*first, found) : found;
  }
  if (!first) return Status();
  const auto& [sender, step] = *first;
  const Step& sent = plan_.steps[static_cast<std::size_t>(sender)][step];
  return Status(Cause::kInvalidArgument, fmt::format("{}: rank {} never takes it",
                                                     location(plan_, sender, step), sent.peer));
}

std::optional<int> SymbolicRun::unheard_of(int rank) const {
  const RankSet& heard = *ranks_[static_cast<std::size_t>(rank)].heard;
  for (int r = 0; r < plan_.ranks; ++r) {
    if (((heard[static_cast<std::size_t>(r) / 64] >> (r % 64)) & 1) == 0) return r;
  }
  return std::nullopt;
}

}  // namespace topocoll
