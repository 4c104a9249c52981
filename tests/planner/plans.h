// Plans that the tests build by hand, and an interpreter that runs a plan on numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "planner/steps.h"
#include "topocoll/plan.h"

namespace topocoll::testing {

inline ChunkRef in(int c) { return {BufferId::kInput, c}; }
inline ChunkRef out(int c) { return {BufferId::kOutput, c}; }
inline ChunkRef tmp(int c) { return {BufferId::kScratch, c}; }
inline Step send(int peer, ChunkRef source, int channel = 0) {
  return {StepKind::kSend, {source}, {}, peer, channel};
}
inline Step recv(int peer, ChunkRef target, int channel = 0) {
  return {StepKind::kRecv, {}, target, peer, channel};
}
inline Step copy(ChunkRef source, ChunkRef target) {
  return {StepKind::kCopy, {source}, target, -1, 0};
}
inline Step reduce(std::vector<ChunkRef> source, ChunkRef target) {
  return {StepKind::kReduce, std::move(source), target, -1, 0};
}
inline Step signal(int peer, int channel = 0) { return {StepKind::kSignal, {}, {}, peer, channel}; }
inline Step wait(int peer, int channel = 0) { return {StepKind::kWait, {}, {}, peer, channel}; }

inline Plan empty_plan(CollectiveKind kind, int ranks, int chunks, int scratch) {
  Plan plan;
  plan.kind = kind;
  plan.algorithm = "by_hand";
  plan.ranks = ranks;
  plan.chunks = chunks;
  plan.scratch_chunks = scratch;
  plan.steps.resize(static_cast<std::size_t>(ranks));
  return plan;
}

/// Reduce-scatter and all-gather along two rings of opposite direction, one channel each.
inline Plan ring_all_reduce(int n) {
  Plan plan = empty_plan(CollectiveKind::kAllReduce, n, 2 * n, 4);
  plan.channels = 2;
  for (int r = 0; r < n; ++r) {
    auto& steps = plan.steps[static_cast<std::size_t>(r)];
    for (int k = 0; k < 2; ++k) {
      const int hop = k == 0 ? 1 : n - 1;
      const int next = (r + hop) % n;
      const int previous = (r + n - hop) % n;
      // The chunk that has come `s` hops from its first rank when it is at `rank`.
      const auto chunk = [&](int rank, int s) { return k * n + (rank + (n - hop) * s) % n; };
      for (int s = 0; s + 1 < n; ++s) {
        steps.push_back(send(next, s == 0 ? in(chunk(r, 0)) : tmp(2 * k + 1), k));
        const int arriving = chunk(previous, s);
        steps.push_back(recv(previous, tmp(2 * k), k));
        steps.push_back(
            reduce({tmp(2 * k), in(arriving)}, s + 2 < n ? tmp(2 * k + 1) : out(arriving)));
      }
      for (int s = 0; s + 1 < n; ++s) {
        steps.push_back(send(next, out(chunk(next, s)), k));
        steps.push_back(recv(previous, out(chunk(r, s)), k));
      }
    }
  }
  return plan;
}

/// A binomial tree to rank 0 and back.
inline Plan tree_all_reduce(int n) {
  Plan plan = empty_plan(CollectiveKind::kAllReduce, n, 1, 2);
  for (int r = 0; r < n; ++r) {
    auto& steps = plan.steps[static_cast<std::size_t>(r)];
    ChunkRef sum = in(0);
    int bit = 1;
    for (; bit < n && (r & bit) == 0; bit <<= 1) {
      if (r + bit >= n) continue;
      steps.push_back(recv(r + bit, tmp(0)));
      const ChunkRef target = r == 0 ? out(0) : tmp(1);
      steps.push_back(reduce({sum, tmp(0)}, target));
      sum = target;
    }
    if (r > 0) {
      steps.push_back(send(r - bit, sum));
      steps.push_back(recv(r - bit, out(0)));
    }
    for (bit >>= 1; bit > 0; bit >>= 1) {
      if (r + bit < n) steps.push_back(send(r + bit, out(0)));
    }
  }
  return plan;
}

/// ceil(log2 n) rounds: signal the rank 2^k ahead, wait for the one 2^k behind.
inline Plan dissemination_barrier(int n) {
  Plan plan = empty_plan(CollectiveKind::kBarrier, n, 1, 0);
  for (int r = 0; r < n; ++r) {
    for (int hop = 1; hop < n; hop *= 2) {
      plan.steps[static_cast<std::size_t>(r)].push_back(signal((r + hop) % n));
      plan.steps[static_cast<std::size_t>(r)].push_back(wait((r + n - hop) % n));
    }
  }
  return plan;
}

/// Runs a plan on random 64-bit numbers, with or without separate buffers, and compares with what
/// the collective means. Independent of the verifier, which it checks.
class Interpreter {
 public:
  Interpreter(const Plan& plan, bool in_place) : plan_(plan), in_place_(in_place) {}

  /// Whether the plan ends, takes every message and leaves the right results.
  bool run() {
    const auto n = static_cast<std::size_t>(plan_.ranks);
    std::vector<std::size_t> next(n, 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t r = 0; r < n; ++r) {
        while (next[r] < plan_.steps[r].size()) {
          const std::optional<bool> done = step(static_cast<int>(r), plan_.steps[r][next[r]]);
          if (!done) return false;
          if (!*done) break;
          ++next[r];
          progress = true;
        }
      }
    }
    for (std::size_t r = 0; r < n; ++r) {
      if (next[r] != plan_.steps[r].size()) return false;
    }
    for (const auto& [key, messages] : fifos_) {
      if (!messages.empty()) return false;
    }
    return results_are_right();
  }

 private:
  struct Value {
    std::uint64_t sum = 0;
    std::uint64_t tree = 0;  ///< differs for every order of evaluation
    friend bool operator==(const Value&, const Value&) = default;
  };
  using Cell = std::tuple<int, BufferId, int>;

  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15U;
    return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9U;
  }
  static Value original(int rank, int chunk) {
    const std::uint64_t v =
        mix(static_cast<std::uint64_t>(rank) * 100003U + static_cast<std::uint64_t>(chunk) + 17U);
    return {v, v};
  }
  [[nodiscard]] Cell where(int rank, ChunkRef ref) const {
    if (in_place_ && ref.buffer == BufferId::kInput) {
      const int twin = in_place_twin(plan_, rank, ref.chunk);
      if (twin >= 0) return {rank, BufferId::kOutput, twin};
    }
    return {rank, ref.buffer, ref.chunk};
  }
  std::optional<Value> read(int rank, ChunkRef ref) {
    const auto found = memory_.find(where(rank, ref));
    if (ref.buffer != BufferId::kInput) {
      return found == memory_.end() ? std::nullopt : std::optional(found->second);
    }
    const Value wanted = original(rank, ref.chunk);
    if (found != memory_.end() && found->second != wanted) return std::nullopt;
    return wanted;
  }
  /// Nothing: an error; false: cannot go on yet.
  std::optional<bool> step(int rank, const Step& s) {
    const bool incoming = s.kind == StepKind::kRecv || s.kind == StepKind::kWait;
    const bool note = s.kind == StepKind::kSignal || s.kind == StepKind::kWait;
    if (incoming) {
      auto& fifo = fifos_[{s.peer, rank, s.channel, note}];
      if (fifo.empty()) return false;
      if (!note) memory_[where(rank, s.target)] = fifo.front();
      fifo.erase(fifo.begin());
      return true;
    }
    std::optional<Value> sum;
    for (const ChunkRef& ref : s.source) {
      const std::optional<Value> part = read(rank, ref);
      if (!part) return std::nullopt;
      sum = sum ? Value{sum->sum + part->sum, mix(sum->tree) * 3 + mix(part->tree)} : *part;
    }
    if (s.kind == StepKind::kSend || note) {
      fifos_[{rank, s.peer, s.channel, note}].push_back(sum.value_or(Value{}));
    } else {
      memory_[where(rank, s.target)] = *sum;
    }
    return true;
  }
  [[nodiscard]] bool results_are_right() {
    for (int r = 0; r < plan_.ranks; ++r) {
      for (int c = 0; c < output_chunks(plan_, r); ++c) {
        const auto found = memory_.find({r, BufferId::kOutput, c});
        if (found == memory_.end() || found->second.sum != expected(r, c)) return false;
        if (plan_.kind == CollectiveKind::kAllReduce &&
            found->second.tree != memory_[{0, BufferId::kOutput, c}].tree) {
          return false;
        }
      }
    }
    return true;
  }
  [[nodiscard]] std::uint64_t expected(int r, int c) const {
    const int pieces = plan_.chunks;
    switch (plan_.kind) {
      case CollectiveKind::kBroadcast:
        return original(plan_.root, c).sum;
      case CollectiveKind::kScatter:
        return original(plan_.root, r * pieces + c).sum;
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
        return original(c / pieces, c % pieces).sum;
      case CollectiveKind::kAllToAll:
        return original(c / pieces, r * pieces + c % pieces).sum;
      default:
        break;
    }
    std::uint64_t sum = 0;
    const int chunk = plan_.kind == CollectiveKind::kReduceScatter ? r * pieces + c : c;
    for (int p = 0; p < plan_.ranks; ++p) sum += original(p, chunk).sum;
    return sum;
  }

  const Plan& plan_;
  bool in_place_;
  std::map<Cell, Value> memory_;
  std::map<std::tuple<int, int, int, bool>, std::vector<Value>> fifos_;
};

inline bool computes_right(const Plan& plan) {
  return Interpreter(plan, false).run() && Interpreter(plan, true).run();
}

}  // namespace topocoll::testing
