// Direct plans: every pair of ranks talks. All of them reduce contributions in rank order, so they
// agree bit for bit with each other.
//
// Within a rank all sends of a stage come before the receives of that stage, so that no rank waits
// while it could feed others, and peers are visited from rank + 1 on, so that no rank is
// everybody's first target. A contribution of rank p waits in scratch:p.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/steps.h"
#include "topocoll/plan.h"

namespace topocoll {
namespace {

// n ranks need n^2 steps or more; beyond this a direct plan is neither useful nor small.
constexpr int kMaxDirectRanks = 1024;

constexpr ChunkRef input(int chunk) { return {BufferId::kInput, chunk}; }
constexpr ChunkRef output(int chunk) { return {BufferId::kOutput, chunk}; }
constexpr ChunkRef scratch(int chunk) { return {BufferId::kScratch, chunk}; }

/// Writes the program of one rank.
class Program {
 public:
  Program(int ranks, int rank) : ranks_(ranks), rank_(rank) {}

  /// All other ranks, from the next one on.
  [[nodiscard]] std::vector<int> peers() const {
    std::vector<int> result;
    for (int k = 1; k < ranks_; ++k) result.push_back((rank_ + k) % ranks_);
    return result;
  }
  void send(int peer, ChunkRef source) {
    steps_.push_back({StepKind::kSend, {source}, {}, peer, 0});
  }
  void recv(int peer, ChunkRef target) { steps_.push_back({StepKind::kRecv, {}, target, peer, 0}); }
  void copy(ChunkRef source, ChunkRef target) {
    steps_.push_back({StepKind::kCopy, {source}, target, -1, 0});
  }
  void signal(int peer) { steps_.push_back({StepKind::kSignal, {}, {}, peer, 0}); }
  void wait(int peer) { steps_.push_back({StepKind::kWait, {}, {}, peer, 0}); }

  void recv_contributions() {
    for (int p : peers()) recv(p, scratch(p));
  }
  /// target = the contributions of ranks 0..n-1 in this order; the rank's own is input chunk `own`.
  void reduce(int own, ChunkRef target) {
    if (ranks_ == 1) return copy(input(own), target);
    Step step{StepKind::kReduce, {}, target, -1, 0};
    for (int p = 0; p < ranks_; ++p) step.source.push_back(p == rank_ ? input(own) : scratch(p));
    steps_.push_back(std::move(step));
  }
  std::vector<Step> take() { return std::move(steps_); }

 private:
  int ranks_;
  int rank_;
  std::vector<Step> steps_;
};

void one_shot_rooted(CollectiveKind kind, int rank, int root, Program& p) {
  const bool at_root = rank == root;
  switch (kind) {
    case CollectiveKind::kReduce:
      if (!at_root) return p.send(root, input(0));
      p.recv_contributions();
      return p.reduce(0, output(0));
    case CollectiveKind::kGather:
      if (!at_root) return p.send(root, input(0));
      p.copy(input(0), output(rank));
      for (int q : p.peers()) p.recv(q, output(q));
      return;
    case CollectiveKind::kBroadcast:
      if (!at_root) return p.recv(root, output(0));
      for (int q : p.peers()) p.send(q, input(0));
      return p.copy(input(0), output(0));
    case CollectiveKind::kScatter:
      if (!at_root) return p.recv(root, output(0));
      for (int q : p.peers()) p.send(q, input(q));
      return p.copy(input(rank), output(0));
    default:
      return;
  }
}

void one_shot(CollectiveKind kind, int rank, Program& p) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      for (int q : p.peers()) p.send(q, input(0));
      p.recv_contributions();
      return p.reduce(0, output(0));
    case CollectiveKind::kReduceScatter:
      for (int q : p.peers()) p.send(q, input(q));
      p.recv_contributions();
      return p.reduce(rank, output(0));
    case CollectiveKind::kAllGather:
      for (int q : p.peers()) p.send(q, input(0));
      p.copy(input(0), output(rank));
      for (int q : p.peers()) p.recv(q, output(q));
      return;
    case CollectiveKind::kAllToAll:
      for (int q : p.peers()) p.send(q, input(q));
      p.copy(input(rank), output(rank));
      for (int q : p.peers()) p.recv(q, output(q));
      return;
    case CollectiveKind::kBarrier:
      for (int q : p.peers()) p.signal(q);
      for (int q : p.peers()) p.wait(q);
      return;
    default:
      return;
  }
}

// Rank q owns chunk q: the others hand it their contributions to it, or (broadcast) the root hands
// it the chunk, and the owner passes the result on.
void two_shot(CollectiveKind kind, int rank, int root, Program& p) {
  const bool at_root = rank == root;
  if (kind == CollectiveKind::kBroadcast) {
    if (at_root) {
      for (int q : p.peers()) p.send(q, input(q));
      for (int q : p.peers()) p.send(q, input(root));
      for (int c = 0; c <= static_cast<int>(p.peers().size()); ++c) p.copy(input(c), output(c));
      return;
    }
    p.recv(root, output(rank));
    for (int q : p.peers()) {
      if (q != root) p.send(q, output(rank));
    }
    for (int q : p.peers()) p.recv(q, output(q));
    return;
  }
  for (int q : p.peers()) p.send(q, input(q));
  p.recv_contributions();
  if (kind == CollectiveKind::kReduce && !at_root) {
    p.reduce(rank, scratch(rank));
    return p.send(root, scratch(rank));
  }
  p.reduce(rank, output(rank));
  if (kind == CollectiveKind::kAllReduce) {
    for (int q : p.peers()) p.send(q, output(rank));
  }
  for (int q : p.peers()) p.recv(q, output(q));
}

Status check_request(CollectiveKind kind, std::string_view algorithm, int ranks, int root) {
  if (ranks < 1) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("a plan needs 1 rank or more, not {}", ranks));
  }
  if (has_root(kind) && (root < 0 || root >= ranks)) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("root {} is not a rank of 0 to {}", root, ranks - 1));
  }
  if (ranks > kMaxDirectRanks) {
    return Status(Cause::kUnsupported, fmt::format("direct plans serve {} ranks at most, not {}",
                                                   kMaxDirectRanks, ranks));
  }
  if (kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv) {
    return Status(Cause::kUnsupported, fmt::format("{} is not a collective", name(kind)));
  }
  if (algorithm != "one_shot" && algorithm != "two_shot") {
    return Status(Cause::kUnsupported,
                  fmt::format("no direct plan is called \"{}\": one_shot and two_shot are",
                              algorithm.substr(0, kMaxNameBytes)));
  }
  if (algorithm == "two_shot" && !cuts_message(kind)) {
    return Status(
        Cause::kUnsupported,
        fmt::format("two_shot serves all_reduce, reduce and broadcast, not {}", name(kind)));
  }
  return Status();
}

}  // namespace

Result<Plan> make_direct_plan(CollectiveKind kind, std::string_view algorithm, int ranks,
                              int root) {
  if (Status s = check_request(kind, algorithm, ranks, root); !s.ok()) return s;
  const bool twice = algorithm == "two_shot";
  Plan plan;
  plan.kind = kind;
  plan.algorithm = std::string(algorithm);
  plan.ranks = ranks;
  plan.root = has_root(kind) ? root : 0;
  plan.chunks = twice ? ranks : 1;
  plan.scratch_chunks = reduces(kind) && ranks > 1 ? ranks : 0;
  for (int rank = 0; rank < ranks; ++rank) {
    Program program(ranks, rank);
    if (twice) {
      two_shot(kind, rank, plan.root, program);
    } else if (has_root(kind)) {
      one_shot_rooted(kind, rank, plan.root, program);
    } else {
      one_shot(kind, rank, program);
    }
    plan.steps.push_back(program.take());
  }
  return plan;
}

}  // namespace topocoll
