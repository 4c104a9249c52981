// The door for every plan: structure first, then a symbolic run, then what the outputs hold.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/expression.h"
#include "planner/steps.h"
#include "planner/symbolic.h"
#include "topocoll/plan.h"

namespace topocoll {
namespace {

constexpr std::size_t kMaxOrderBytesInMessage = 200;

Status invalid(std::string text) { return Status(Cause::kInvalidArgument, std::move(text)); }

Status check_range(std::string_view field, int value, int low, int high) {
  if (value >= low && value <= high) return Status();
  return invalid(fmt::format("plan: {} is {}, allowed are {} to {}", field, value, low, high));
}

Status check_header(const Plan& plan) {
  const auto kind = static_cast<int>(plan.kind);
  if (kind >= kNumCollectiveKinds || plan.kind == CollectiveKind::kSend ||
      plan.kind == CollectiveKind::kRecv) {
    return invalid(fmt::format("plan: kind {} is not a collective", kind));
  }
  const int max_chunks = plan.kind == CollectiveKind::kBarrier ? 1 : kMaxPlanChunks;
  for (const Status& s :
       {check_range("ranks", plan.ranks, 1, kMaxPlanRanks),
        check_range("root", plan.root, 0, has_root(plan.kind) ? plan.ranks - 1 : 0),
        check_range("chunks", plan.chunks, 1, max_chunks),
        check_range("scratch_chunks", plan.scratch_chunks, 0, kMaxPlanChunks),
        check_range("channels", plan.channels, 1, kMaxPlanChannels)}) {
    if (!s.ok()) return s;
  }
  if (plan.min_bytes > plan.max_bytes) {
    return invalid(
        fmt::format("plan: min_bytes {} exceeds max_bytes {}", plan.min_bytes, plan.max_bytes));
  }
  if (plan.steps.size() != static_cast<std::size_t>(plan.ranks)) {
    return invalid(fmt::format("plan: steps for {} ranks are given, but ranks is {}",
                               plan.steps.size(), plan.ranks));
  }
  const auto block =
      static_cast<std::uint64_t>(plan.chunks) * static_cast<std::uint64_t>(plan.ranks);
  if (block > kMaxPlanCells) {
    return invalid(fmt::format(
        "plan: {} ranks with {} chunks each, {} chunks on all ranks together are allowed",
        plan.ranks, plan.chunks, kMaxPlanCells));
  }
  std::uint64_t cells = 0;
  for (int r = 0; r < plan.ranks; ++r) {
    cells += static_cast<std::uint64_t>(input_chunks(plan, r)) +
             static_cast<std::uint64_t>(output_chunks(plan, r)) +
             static_cast<std::uint64_t>(plan.scratch_chunks);
  }
  if (cells > kMaxPlanCells) {
    return invalid(
        fmt::format("plan: {} chunks on all ranks together, {} are allowed", cells, kMaxPlanCells));
  }
  return Status();
}

/// Empty, or why the reference does not exist on `rank`.
std::string check_ref(const Plan& plan, int rank, ChunkRef ref) {
  int count = 0;
  switch (ref.buffer) {
    case BufferId::kInput:
      count = input_chunks(plan, rank);
      break;
    case BufferId::kOutput:
      count = output_chunks(plan, rank);
      break;
    case BufferId::kScratch:
      count = plan.scratch_chunks;
      break;
  }
  if (ref.chunk >= 0 && ref.chunk < count) return "";
  return fmt::format("{} is out of bounds, the rank has {} {} chunks", to_string(ref), count,
                     name(ref.buffer));
}

/// Empty, or what is wrong with peer and channel.
std::string check_peer(const Plan& plan, int rank, const Step& step) {
  if (!has_peer(step.kind)) {
    if (step.peer == -1 && step.channel == 0) return "";
    return fmt::format("a {} has no peer and no channel", name(step.kind));
  }
  if (step.peer < 0 || step.peer >= plan.ranks) {
    return fmt::format("peer {} is not a rank of 0 to {}", step.peer, plan.ranks - 1);
  }
  if (step.peer == rank) return "the peer is the rank itself";
  if (step.channel < 0 || step.channel >= plan.channels) {
    return fmt::format("channel {} is not one of 0 to {}", step.channel, plan.channels - 1);
  }
  return "";
}

/// Empty, or what is wrong with sources and target.
std::string check_chunks(const Plan& plan, int rank, const Step& step) {
  const std::size_t given = step.source.size();
  if (given < min_sources(step.kind) || given > max_sources(step.kind)) {
    return fmt::format(
        "a {} has {} sources, {} are given", name(step.kind),
        step.kind == StepKind::kReduce ? "2 or more" : std::to_string(min_sources(step.kind)),
        given);
  }
  for (const ChunkRef& ref : step.source) {
    if (std::string s = check_ref(plan, rank, ref); !s.empty()) return "source " + s;
  }
  if (!has_target(step.kind)) {
    if (step.target == ChunkRef()) return "";
    return fmt::format("a {} has no target", name(step.kind));
  }
  if (step.target.buffer == BufferId::kInput) {
    return fmt::format("target {}: a plan never writes the input", to_string(step.target));
  }
  if (std::string s = check_ref(plan, rank, step.target); !s.empty()) return "target " + s;
  if (step.kind == StepKind::kReduce && !reduces(plan.kind)) {
    return fmt::format("{} has no reduction", name(plan.kind));
  }
  return "";
}

using RouteKey = std::tuple<int, int, int>;
RouteKey key_of(const Route& route) { return {route.from, route.to, route.channel}; }

/// Routes are in order, each once, and every send has one.
Status check_routes(const Plan& plan) {
  if (plan.routes.empty()) return Status();
  for (std::size_t i = 0; i < plan.routes.size(); ++i) {
    const Route& route = plan.routes[i];
    const auto bad = [&](std::string_view why) {
      return invalid(fmt::format("plan: routes[{}]: {}", i, why));
    };
    if (std::min(route.from, route.to) < 0 || std::max(route.from, route.to) >= plan.ranks) {
      return bad(
          fmt::format("from {} to {}, ranks are 0 to {}", route.from, route.to, plan.ranks - 1));
    }
    if (route.from == route.to) return bad("both ends are the same rank");
    if (route.channel < 0 || route.channel >= plan.channels) {
      return bad(fmt::format("channel {} is not one of 0 to {}", route.channel, plan.channels - 1));
    }
    if (!std::isfinite(route.gbps) || route.gbps < 0) return bad("gbps is not a number from 0 on");
    if (route.path.size() < 2) return bad("the path needs both its ends");
    if (i > 0 && key_of(plan.routes[i - 1]) >= key_of(route)) {
      return bad("routes must be ordered by from, to and channel, each once");
    }
  }
  const auto less = [](const Route& route, const RouteKey& key) { return key_of(route) < key; };
  for (int r = 0; r < plan.ranks; ++r) {
    const auto& program = plan.steps[static_cast<std::size_t>(r)];
    for (std::size_t s = 0; s < program.size(); ++s) {
      if (program[s].kind != StepKind::kSend) continue;
      const RouteKey key{r, program[s].peer, program[s].channel};
      const auto found = std::lower_bound(plan.routes.begin(), plan.routes.end(), key, less);
      if (found != plan.routes.end() && key_of(*found) == key) continue;
      return invalid(location(plan, r, s) + ": no route is given for it, though others have one");
    }
  }
  return Status();
}

/// The step of `rank` that decides what its output chunk holds; past the end if there is none.
std::size_t last_writer(const Plan& plan, int rank, int chunk) {
  const auto& program = plan.steps[static_cast<std::size_t>(rank)];
  const ChunkRef ref{BufferId::kOutput, chunk};
  for (std::size_t s = program.size(); s-- > 0;) {
    if (has_target(program[s].kind) && program[s].target == ref) return s;
  }
  return program.size();
}

/// What output chunk `chunk` of `rank` must hold: which input chunk of which ranks.
struct Wanted {
  int chunk = 0;
  int first_rank = 0;
  int last_rank = 0;
};

Wanted wanted(const Plan& plan, int rank, int chunk) {
  const int block = chunk / plan.chunks;  // of the rank it comes from, where the output has blocks
  const int piece = chunk % plan.chunks;
  const int own = rank * plan.chunks;
  switch (plan.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
      return {chunk, 0, plan.ranks - 1};
    case CollectiveKind::kReduceScatter:
      return {own + chunk, 0, plan.ranks - 1};
    case CollectiveKind::kBroadcast:
      return {chunk, plan.root, plan.root};
    case CollectiveKind::kScatter:
      return {own + chunk, plan.root, plan.root};
    case CollectiveKind::kAllToAll:
      return {own + piece, block, block};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return {piece, block, block};
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return {};
}

/// Empty, or how the contributions differ from what is wanted.
std::string difference(const std::map<Contribution, std::uint64_t>& held, const Wanted& want) {
  for (const auto& [part, count] : held) {
    if (part.chunk != want.chunk || part.rank < want.first_rank || part.rank > want.last_rank) {
      return fmt::format("holds input:{} of rank {}, which does not belong there", part.chunk,
                         part.rank);
    }
    if (count != 1) {
      return fmt::format("holds the contribution of rank {} {} times", part.rank, count);
    }
  }
  for (int r = want.first_rank; r <= want.last_rank; ++r) {
    if (!held.contains({r, want.chunk})) {
      return fmt::format("lacks the contribution of rank {}", r);
    }
  }
  return "";
}

/// Empty, or what is wrong with one output chunk after the run.
std::string check_output(const Plan& plan, const SymbolicRun& run, int rank, int chunk) {
  const ExpressionPool& pool = run.expressions();
  const ExpressionPool::Id held = run.output(rank, chunk);
  if (held == ExpressionPool::kNothing) return "is never written";
  const bool everywhere = plan.kind == CollectiveKind::kAllReduce;
  // Rank 0 has been checked; equal ids are equal expressions.
  if (everywhere && rank > 0 && held == run.output(0, chunk)) return "";
  std::string wrong = difference(pool.contributions(held), wanted(plan, rank, chunk));
  if (!wrong.empty() || !everywhere || rank == 0) return wrong;
  return fmt::format("is evaluated as {}, but on rank 0 as {}",
                     pool.to_string(held, kMaxOrderBytesInMessage),
                     pool.to_string(run.output(0, chunk), kMaxOrderBytesInMessage));
}

Status check_outputs(const Plan& plan, const SymbolicRun& run) {
  for (int r = 0; r < plan.ranks; ++r) {
    for (int c = 0; c < output_chunks(plan, r); ++c) {
      const std::string wrong = check_output(plan, run, r, c);
      if (wrong.empty()) continue;
      return invalid(
          fmt::format("{}: output:{} {}", location(plan, r, last_writer(plan, r, c)), c, wrong));
    }
    if (plan.kind != CollectiveKind::kBarrier) continue;
    if (const auto missing = run.unheard_of(r)) {
      return invalid(fmt::format("{}: passes the barrier though rank {} may not have entered it",
                                 location(plan, r, plan.steps[static_cast<std::size_t>(r)].size()),
                                 *missing));
    }
  }
  return Status();
}

}  // namespace

Status check_structure(const Plan& plan) {
  if (Status s = check_header(plan); !s.ok()) return s;
  if (Status s = check_routes(plan); !s.ok()) return s;
  for (int r = 0; r < plan.ranks; ++r) {
    const auto& program = plan.steps[static_cast<std::size_t>(r)];
    for (std::size_t s = 0; s < program.size(); ++s) {
      const Step& step = program[s];
      std::string wrong = static_cast<int>(step.kind) > static_cast<int>(StepKind::kWait)
                              ? "no such kind of step"
                              : check_peer(plan, r, step);
      if (wrong.empty()) wrong = check_chunks(plan, r, step);
      if (!wrong.empty()) return invalid(location(plan, r, s) + ": " + wrong);
    }
  }
  return Status();
}

Status verify(const Plan& plan) {
  if (Status s = check_structure(plan); !s.ok()) return s;
  SymbolicRun run(plan);
  if (Status s = run.run(); !s.ok()) return s;
  return check_outputs(plan, run);
}

Result<std::vector<std::string>> evaluation_orders(const Plan& plan, int rank) {
  if (Status s = check_structure(plan); !s.ok()) return s;
  if (rank < 0 || rank >= plan.ranks) return invalid(fmt::format("rank {} is not in this plan", rank));
  SymbolicRun run(plan);
  if (Status s = run.run(); !s.ok()) return s;
  if (Status s = check_outputs(plan, run); !s.ok()) return s;
  std::vector<std::string> orders;
  for (int chunk = 0; chunk < output_chunks(plan, rank); ++chunk) {
    orders.push_back(run.expressions().to_string(run.output(rank, chunk), std::string::npos));
  }
  return orders;
}

Result<std::string> evaluation_order(const Plan& plan, int rank, int chunk) {
  auto orders = evaluation_orders(plan, rank);
  if (!orders.ok()) return orders.status();
  if (chunk < 0 || chunk >= static_cast<int>(orders->size())) {
    return invalid(fmt::format("rank {} has no output chunk {} in this plan", rank, chunk));
  }
  return std::move((*orders)[static_cast<std::size_t>(chunk)]);
}

}  // namespace topocoll
