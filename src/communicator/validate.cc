#include "communicator/validate.h"

#include <cstdint>
#include <limits>

#include <fmt/format.h>

namespace topocoll {
namespace {

Status invalid(const Operation& op, const std::string& what) {
  return Status(Cause::kInvalidArgument, fmt::format("{}: {}", op.to_string(), what));
}

/// Whether `count` elements times `factor` have a size that memory could hold.
bool countable(std::size_t count, std::size_t element, std::size_t factor) {
  constexpr std::size_t kLimit = std::numeric_limits<std::size_t>::max() / 4;
  std::size_t bytes = 0;
  return !__builtin_mul_overflow(count, element * factor, &bytes) && bytes <= kLimit;
}

template <class List>
Status check_blocks(const Operation& op, const List& blocks, const char* field, int ranks) {
  if (blocks.empty()) return {};
  if (blocks.size() != static_cast<std::size_t>(ranks)) {
    return invalid(op, fmt::format("{} has {} entries, the group has {} ranks", field, blocks.size(), ranks));
  }
  std::size_t total = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].count != 0 && blocks[i].data == nullptr) {
      return invalid(op, fmt::format("{}[{}].data is null", field, i));
    }
    total += blocks[i].count;
    if (blocks[i].count > total || !countable(total, size_of(op.type), 2)) {
      return invalid(op, fmt::format("{} is larger than memory", field));
    }
  }
  return {};
}

/// What a kind reads and writes on this rank.
struct Needs {
  bool in = false;
  bool out = false;
};

Needs needs_of(const Operation& op, int rank) {
  const bool at_root = rank == op.root;
  switch (op.kind) {
    case CollectiveKind::kBroadcast: return {at_root, true};
    case CollectiveKind::kReduce: return {true, at_root};
    case CollectiveKind::kGather: return {true, at_root && op.out_blocks.empty()};
    case CollectiveKind::kScatter: return {at_root && op.in_blocks.empty(), true};
    case CollectiveKind::kAllGather: return {true, op.out_blocks.empty()};
    case CollectiveKind::kReduceScatter: return {op.in_blocks.empty(), true};
    case CollectiveKind::kAllToAll: return {op.in_blocks.empty(), op.out_blocks.empty()};
    case CollectiveKind::kSend: return {true, false};
    case CollectiveKind::kRecv: return {false, true};
    case CollectiveKind::kAllReduce: return {true, true};
    case CollectiveKind::kBarrier: return {};
  }
  return {};
}

Status check_peer(const Operation& op, int ranks) {
  const bool receives = op.kind == CollectiveKind::kRecv;
  if (op.peer == kAnySource && receives) return {};
  if (op.peer < 0 || op.peer >= ranks) {
    return invalid(op, fmt::format("peer {} is not in the group of {} ranks", op.peer, ranks));
  }
  return {};
}

/// This rank's own part must say the same in `count` as in the list of blocks.
Status check_own_part(const Operation& op, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  std::size_t listed = op.count;
  if (op.kind == CollectiveKind::kAllGather && !op.out_blocks.empty()) listed = op.out_blocks[own].count;
  if (op.kind == CollectiveKind::kReduceScatter && !op.in_blocks.empty()) listed = op.in_blocks[own].count;
  if (op.kind == CollectiveKind::kGather && rank == op.root && !op.out_blocks.empty()) {
    listed = op.out_blocks[own].count;
  }
  if (op.kind == CollectiveKind::kScatter && rank == op.root && !op.in_blocks.empty()) {
    listed = op.in_blocks[own].count;
  }
  if (op.kind == CollectiveKind::kAllToAll && !op.in_blocks.empty() && !op.out_blocks.empty() &&
      op.in_blocks[own].count != op.out_blocks[own].count) {
    return invalid(op, fmt::format("rank {} sends {} elements to itself but expects {}", rank,
                                   op.in_blocks[own].count, op.out_blocks[own].count));
  }
  if (listed == op.count) return {};
  return invalid(op, fmt::format("rank {}'s own part has {} elements in the list of blocks but count is {}",
                                 rank, listed, op.count));
}

}  // namespace

Status validate(const Operation& op, int rank, int ranks) {
  if (static_cast<int>(op.type) >= kNumDataTypes) {
    return Status(Cause::kInvalidArgument, "the element type is none of topocoll::DataType");
  }
  if (static_cast<int>(op.kind) >= kNumCollectiveKinds) {
    return Status(Cause::kInvalidArgument, "the kind is none of topocoll::CollectiveKind");
  }
  if (has_root(op.kind) && (op.root < 0 || op.root >= ranks)) {
    return invalid(op, fmt::format("root {} is not in the group of {} ranks", op.root, ranks));
  }
  if (op.kind == CollectiveKind::kSend || op.kind == CollectiveKind::kRecv) {
    if (Status s = check_peer(op, ranks); !s.ok()) return s;
    if (op.tag < 0 && !(op.kind == CollectiveKind::kRecv && op.tag == kAnyTag)) {
      return invalid(op, fmt::format("tag {} is negative", op.tag));
    }
  }
  if (reduces(op.kind) && !is_defined(op.reduction.op, op.type)) {
    return Status(Cause::kUnsupported, fmt::format("{}: {} is not defined on {}", op.to_string(),
                                                   name(op.reduction.op), name(op.type)));
  }
  if (!countable(op.count, size_of(op.type), static_cast<std::size_t>(ranks))) {
    return invalid(op, "count is larger than memory");
  }
  if (Status s = check_blocks(op, op.in_blocks, "in_blocks", ranks); !s.ok()) return s;
  if (Status s = check_blocks(op, op.out_blocks, "out_blocks", ranks); !s.ok()) return s;
  const Needs needs = needs_of(op, rank);
  if (op.count != 0 && needs.in && op.in == nullptr) return invalid(op, "in is null");
  if (op.count != 0 && needs.out && op.out == nullptr) return invalid(op, "out is null");
  return check_own_part(op, rank);
}

}  // namespace topocoll
