#include "topocoll/plan.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "planner/steps.h"

namespace topocoll {

std::string_view name(BufferId buffer) {
  switch (buffer) {
    case BufferId::kInput:
      return "input";
    case BufferId::kOutput:
      return "output";
    case BufferId::kScratch:
      return "scratch";
  }
  return "?";
}

std::string_view name(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
      return "send";
    case StepKind::kRecv:
      return "recv";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kCopy:
      return "copy";
    case StepKind::kSignal:
      return "signal";
    case StepKind::kWait:
      return "wait";
  }
  return "?";
}

int input_chunks(const Plan& plan, int rank) {
  switch (plan.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
      return plan.chunks;
    case CollectiveKind::kBroadcast:
      return rank == plan.root ? plan.chunks : 0;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return plan.chunks;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return plan.ranks * plan.chunks;
    case CollectiveKind::kScatter:
      return rank == plan.root ? plan.ranks * plan.chunks : 0;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return 0;
}

int output_chunks(const Plan& plan, int rank) {
  switch (plan.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      return plan.chunks;
    case CollectiveKind::kReduce:
      return rank == plan.root ? plan.chunks : 0;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return plan.ranks * plan.chunks;
    case CollectiveKind::kGather:
      return rank == plan.root ? plan.ranks * plan.chunks : 0;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter:
      return plan.chunks;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return 0;
}

bool cuts_message(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kReduce;
}

int in_place_twin(const Plan& plan, int rank, int input) {
  const bool at_root = rank == plan.root;
  const int own_block = rank * plan.chunks;
  const bool in_own_block = input >= own_block && input < own_block + plan.chunks;
  switch (plan.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllToAll:
      return input;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return at_root ? input : -1;
    case CollectiveKind::kAllGather:
      return own_block + input;
    case CollectiveKind::kGather:
      return at_root ? own_block + input : -1;
    case CollectiveKind::kReduceScatter:
      return in_own_block ? input - own_block : -1;
    case CollectiveKind::kScatter:
      return at_root && in_own_block ? input - own_block : -1;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return -1;
}

bool has_peer(StepKind kind) { return kind != StepKind::kReduce && kind != StepKind::kCopy; }

bool has_target(StepKind kind) {
  return kind == StepKind::kRecv || kind == StepKind::kReduce || kind == StepKind::kCopy;
}

std::size_t min_sources(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
    case StepKind::kCopy:
      return 1;
    case StepKind::kReduce:
      return 2;
    case StepKind::kRecv:
    case StepKind::kSignal:
    case StepKind::kWait:
      break;
  }
  return 0;
}

std::size_t max_sources(StepKind kind) {
  return kind == StepKind::kReduce ? static_cast<std::size_t>(kMaxPlanRanks) : min_sources(kind);
}

std::string to_string(ChunkRef ref) { return fmt::format("{}:{}", name(ref.buffer), ref.chunk); }

std::string describe(const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
      return fmt::format("send to {} on channel {}", step.peer, step.channel);
    case StepKind::kRecv:
      return fmt::format("recv from {} on channel {}", step.peer, step.channel);
    case StepKind::kSignal:
      return fmt::format("signal to {} on channel {}", step.peer, step.channel);
    case StepKind::kWait:
      return fmt::format("wait for {} on channel {}", step.peer, step.channel);
    case StepKind::kReduce:
      return "reduce into " + to_string(step.target);
    case StepKind::kCopy:
      return "copy into " + to_string(step.target);
  }
  return fmt::format("unknown kind {}", static_cast<int>(step.kind));
}

std::string location(const Plan& plan, int rank, std::size_t step) {
  const auto& program = plan.steps[static_cast<std::size_t>(rank)];
  return fmt::format("rank {}, step {} ({})", rank, step,
                     step < program.size() ? describe(program[step]) : "end");
}

}  // namespace topocoll
