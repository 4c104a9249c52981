#include "collectives/cpu/program.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/steps.h"

namespace topocoll {
namespace {

/// A chunk's present content: where it is, and the first phase in which it may be read.
struct Location {
  Operand operand;
  int contributions = 1;             ///< ranks whose data the bytes are made of
  int phase = 0;
  int value = -1;                    ///< own value that holds the same bytes; -1: none yet
  std::pair<int, int> produced{-1, -1};  ///< phase and index of the reduction that made it
};

/// What lies in the FIFO between two ranks.
struct Message {
  int value = -1;  ///< -1: a signal
  int phase = 0;   ///< in which the sender finishes it
  int contributor = -1;
  int contributions = 0;
};

using ChunkKey = std::pair<BufferId, int>;
using LinkKey = std::tuple<int, int, int, bool>;  // from, to, channel, signals

class RankCompiler {
 public:
  RankCompiler(const Plan& plan, int rank, std::map<LinkKey, std::deque<Message>>& links)
      : plan_(plan), rank_(rank), links_(links) {}

  [[nodiscard]] bool finished() const {
    return next_ == plan_.steps[static_cast<std::size_t>(rank_)].size();
  }
  [[nodiscard]] std::size_t step() const { return next_; }
  [[nodiscard]] int values() const { return values_; }
  [[nodiscard]] std::vector<std::vector<Action>>& phases() { return phases_; }
  /// Phase in which value `v` is complete.
  [[nodiscard]] int value_phase(int v) const { return value_phase_[static_cast<std::size_t>(v)]; }

  /// Runs until blocked or finished; true if any step was done.
  bool advance() {
    const auto& steps = plan_.steps[static_cast<std::size_t>(rank_)];
    const std::size_t before = next_;
    while (next_ < steps.size() && perform(steps[next_])) ++next_;
    return next_ != before;
  }

 private:
  bool perform(const Step& step) {
    switch (step.kind) {
      case StepKind::kSend: send(step); return true;
      case StepKind::kRecv: return recv(step);
      case StepKind::kReduce: reduce(step); return true;
      case StepKind::kCopy: copy(step); return true;
      case StepKind::kSignal:
        links_[{rank_, step.peer, step.channel, true}].push_back({-1, std::max(floor_, last_phase_)});
        return true;
      case StepKind::kWait: {
        auto message = take(step);
        if (!message) return false;
        floor_ = std::max(floor_, message->phase + 1);
        return true;
      }
    }
    return true;
  }

  std::optional<Message> take(const Step& step) {
    auto& queue = links_[{step.peer, rank_, step.channel, step.kind == StepKind::kWait}];
    if (queue.empty()) return std::nullopt;
    const Message m = queue.front();
    queue.pop_front();
    return m;
  }

  Location& where(const ChunkRef& chunk) {
    auto [it, fresh] = where_.try_emplace(ChunkKey{chunk.buffer, chunk.chunk});
    if (fresh) {  // an input chunk, read for the first time
      it->second.operand.chunk = chunk;
      it->second.operand.contributor = rank_;
    }
    return it->second;
  }

  int new_value(int phase) {
    value_phase_.push_back(phase);
    return values_++;
  }

  /// The chunk of the output that `chunk` is, or is in place.
  [[nodiscard]] int memory_of(const ChunkRef& chunk) const {
    return chunk.buffer == BufferId::kInput ? in_place_twin(plan_, rank_, chunk.chunk) : chunk.chunk;
  }

  /// Adds an action to the first phase from `phase` on that keeps the order of the plan: not before what
  /// its target's memory has been read or written for, nor before what it reads has been written.
  std::pair<int, int> add(int phase, Action action) {
    phase = std::max(phase, floor_);
    if (action.has_target) phase = std::max(phase, busy_until_[action.target.chunk]);
    for (const Operand& s : action.sources) {
      if (s.is_value) continue;
      int& busy = busy_until_[memory_of(s.chunk)];
      busy = std::max(busy, phase);
    }
    if (action.has_target) busy_until_[action.target.chunk] = phase;
    if (action.value >= 0) value_phase_[static_cast<std::size_t>(action.value)] = phase;
    last_phase_ = std::max(last_phase_, phase);
    if (phases_.size() <= static_cast<std::size_t>(phase)) phases_.resize(static_cast<std::size_t>(phase) + 1);
    auto& actions = phases_[static_cast<std::size_t>(phase)];
    actions.push_back(std::move(action));
    return {phase, static_cast<int>(actions.size()) - 1};
  }

  void send(const Step& step) {
    Location& from = where(step.source[0]);
    if (from.value < 0) {
      if (from.produced.first >= 0) {
        // The reduction that made the chunk writes the value as well.
        from.value = new_value(from.produced.first);
        phases_[static_cast<std::size_t>(from.produced.first)]
               [static_cast<std::size_t>(from.produced.second)].value = from.value;
      } else {
        Action put;
        put.kind = Action::Kind::kPut;
        put.sources = {from.operand};
        const int phase = std::max(from.phase, floor_);
        from.value = new_value(phase);
        put.value = from.value;
        add(phase, std::move(put));
      }
    }
    links_[{rank_, step.peer, step.channel, false}].push_back(
        {from.value, value_phase(from.value), from.operand.contributor, from.contributions});
  }

  bool recv(const Step& step) {
    auto message = take(step);
    if (!message) return false;
    Location to;
    to.operand = {message->contributor, true, {}, step.peer, message->value};
    to.contributions = message->contributions;
    to.phase = message->phase + 1;
    if (step.target.buffer == BufferId::kOutput) {
      Action get;
      get.kind = Action::Kind::kCopy;
      get.sources = {to.operand};
      get.has_target = true;
      get.target = step.target;
      to.phase = add(to.phase, std::move(get)).first;
      to.operand = {message->contributor, false, step.target, -1, -1};
    }
    where_[{step.target.buffer, step.target.chunk}] = to;
    return true;
  }

  void reduce(const Step& step) {
    Action action;
    action.kind = Action::Kind::kReduce;
    Location to;
    to.contributions = 0;
    for (const ChunkRef& s : step.source) {
      const Location& from = where(s);
      action.sources.push_back(from.operand);
      to.phase = std::max(to.phase, from.phase);
      to.contributions += from.contributions;
    }
    action.completes = to.contributions == plan_.ranks;
    place(step, std::move(action), to);
  }

  void copy(const Step& step) {
    const Location& from = where(step.source[0]);
    Location to;
    to.phase = from.phase;
    to.contributions = from.contributions;
    const int contributor = from.operand.contributor;
    Action action;
    action.kind = Action::Kind::kCopy;
    action.sources = {from.operand};
    if (step.target.buffer == BufferId::kScratch) {
      if (from.operand.is_value) {  // a name for the same bytes: values are never rewritten
        where_[{step.target.buffer, step.target.chunk}] = from;
        return;
      }
      action.kind = Action::Kind::kPut;
      to.phase = std::max(to.phase, floor_);
      to.value = action.value = new_value(to.phase);
      to.operand = {contributor, true, {}, rank_, to.value};
      to.phase = add(to.phase, std::move(action)).first;
      where_[{step.target.buffer, step.target.chunk}] = to;
      return;
    }
    action.has_target = true;
    action.target = step.target;
    to.phase = add(to.phase, std::move(action)).first;
    to.operand = {contributor, false, step.target, -1, -1};
    where_[{step.target.buffer, step.target.chunk}] = to;
  }

  /// Gives a reduction its target: a chunk of the output, or a value (scratch lives in the ring).
  void place(const Step& step, Action action, Location to) {
    if (step.target.buffer == BufferId::kScratch) {
      action.value = new_value(to.phase);
      to.value = action.value;
      to.operand = {-1, true, {}, rank_, action.value};
      to.phase = add(to.phase, std::move(action)).first;
    } else {
      action.has_target = true;
      action.target = step.target;
      to.operand = {-1, false, step.target, -1, -1};
      to.produced = add(to.phase, std::move(action));
      to.phase = to.produced.first;
    }
    where_[{step.target.buffer, step.target.chunk}] = to;
  }

  const Plan& plan_;
  int rank_;
  std::map<LinkKey, std::deque<Message>>& links_;
  std::map<ChunkKey, Location> where_;
  std::map<int, int> busy_until_;  ///< last phase that reads or writes a chunk of the output, in place too
  std::vector<std::vector<Action>> phases_;
  std::vector<int> value_phase_;
  std::size_t next_ = 0;
  int values_ = 0;
  int floor_ = 0;
  int last_phase_ = 0;
};

/// Which phases of which ranks the actions of one phase read.
std::vector<Need> needs_of(const std::vector<Action>& actions, int rank,
                           const std::vector<RankCompiler>& ranks) {
  std::map<int, int> latest;
  for (const Action& a : actions) {
    for (const Operand& s : a.sources) {
      if (!s.is_value || s.rank == rank) continue;
      const int phase = ranks[static_cast<std::size_t>(s.rank)].value_phase(s.value);
      auto [it, fresh] = latest.try_emplace(s.rank, phase);
      if (!fresh) it->second = std::max(it->second, phase);
    }
  }
  std::vector<Need> needs;
  // From the next rank on, so that ranks do not all look at one peer first.
  const int n = static_cast<int>(ranks.size());
  for (int k = 1; k < n; ++k) {
    const int peer = (rank + k) % n;
    if (auto it = latest.find(peer); it != latest.end()) needs.push_back({peer, it->second});
  }
  return needs;
}

}  // namespace

Result<Program> compile(const Plan& plan, int rank) {
  std::map<LinkKey, std::deque<Message>> links;
  std::vector<RankCompiler> ranks;
  ranks.reserve(static_cast<std::size_t>(plan.ranks));
  for (int r = 0; r < plan.ranks; ++r) ranks.emplace_back(plan, r, links);
  for (bool moved = true; moved;) {
    moved = false;
    for (RankCompiler& r : ranks) moved |= r.advance();
  }
  Program program;
  program.algorithm = plan.algorithm;
  program.chunks = plan.chunks;
  for (int r = 0; r < plan.ranks; ++r) {
    RankCompiler& c = ranks[static_cast<std::size_t>(r)];
    if (!c.finished()) {
      return Status(Cause::kInvalidArgument, fmt::format("plan {}: rank {} waits for ever in step {}",
                                                         plan.algorithm, r, c.step()));
    }
    program.phases = std::max(program.phases, static_cast<int>(c.phases().size()));
    program.values = std::max(program.values, c.values());
  }
  RankCompiler& mine = ranks[static_cast<std::size_t>(rank)];
  program.own.resize(static_cast<std::size_t>(program.phases));
  for (std::size_t p = 0; p < mine.phases().size(); ++p) {
    program.own[p].needs = needs_of(mine.phases()[p], rank, ranks);
    program.own[p].actions = std::move(mine.phases()[p]);
  }
  return program;
}

}  // namespace topocoll
