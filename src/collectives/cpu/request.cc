#include "collectives/cpu/request.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/hash.h"

namespace topocoll {
namespace {

constexpr std::size_t round64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Equal lists give equal numbers on all ranks; 0 is kept for "all equal". As FNV-1a, but a count
/// at a time instead of a byte: the shift brings what differs in high bits down, which products
/// only carry up.
template <class List>
std::uint64_t hash_counts(const List& list) {
  std::uint64_t h = kFnvOffset;
  for (const auto& block : list) {
    h = (h ^ block.count) * kFnvPrime;
    h ^= h >> 29;
  }
  return h == 0 ? 1 : h;
}

template <class List>
bool all_equal(const List& list) {
  return std::all_of(list.begin(), list.end(),
                     [&](const auto& b) { return b.count == list.front().count; });
}

template <class List>
std::size_t total(const List& list) {
  std::size_t sum = 0;
  for (const auto& b : list) sum += b.count;
  return sum;
}

bool pairwise(CollectiveKind kind) {
  return kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter ||
         kind == CollectiveKind::kAllToAll;
}

/// all_gather and reduce_scatter: all ranks know all counts; a list of equal ones counts as none.
template <class List>
void describe_known_list(const List& list, shm::Descriptor& d) {
  if (list.empty()) return;
  if (all_equal(list)) {
    d.count = list.front().count;
    return;
  }
  d.count = total(list);
  d.counts_hash = hash_counts(list);
}

}  // namespace

Request Request::of(const Operation& op, int rank, int ranks) {
  Request r;
  r.op = &op;
  r.element = size_of(op.type);
  r.descriptor.kind = op.kind;
  r.descriptor.type = op.type;
  r.descriptor.count = op.count;
  if (has_root(op.kind)) r.descriptor.root = op.root;
  if (reduces(op.kind)) {
    r.descriptor.op = op.reduction.op;
    r.descriptor.factor = op.reduction.factor;
  }
  if (is_striped(op.kind) || op.kind == CollectiveKind::kBarrier) {
    // The payload of a broadcast is the same on all ranks, so that all choose one path.
    if (op.kind != CollectiveKind::kBarrier) r.payload_bytes = op.count * r.element;
    return r;
  }
  const auto n = static_cast<std::size_t>(ranks);
  r.in_blocks = op.in_blocks.empty() ? Blocks(op.in, op.count, r.element) : Blocks(op.in_blocks.data());
  r.out_blocks = op.out_blocks.empty() ? Blocks(op.out, op.count, r.element) : Blocks(op.out_blocks.data());
  const std::size_t in_total = op.in_blocks.empty() ? n * op.count : total(op.in_blocks);
  switch (op.kind) {
    case CollectiveKind::kGather:
      r.payload_bytes = op.count * r.element;
      break;
    case CollectiveKind::kAllGather:
      describe_known_list(op.out_blocks, r.descriptor);
      r.payload_bytes = op.count * r.element;
      break;
    case CollectiveKind::kReduceScatter:
      describe_known_list(op.in_blocks, r.descriptor);
      r.payload_bytes = in_total * r.element;
      break;
    case CollectiveKind::kAllToAll:
      r.lists_counts = !op.in_blocks.empty() || !op.out_blocks.empty();
      r.counts_bytes = r.lists_counts ? round64(2 * n * sizeof(std::uint64_t)) : 0;
      r.payload_bytes = in_total * r.element;
      break;
    case CollectiveKind::kScatter:
      r.payload_bytes = rank == op.root ? in_total * r.element : 0;
      break;
    default: break;
  }
  const bool at_root = rank == op.root;
  if ((op.kind == CollectiveKind::kGather && at_root && !op.out_blocks.empty()) ||
      (op.kind == CollectiveKind::kScatter && at_root && !op.in_blocks.empty())) {
    r.lists_counts = true;
    r.counts_bytes = round64(n * sizeof(std::uint64_t));
  }
  return r;
}

void write_counts(const Request& request, int ranks, std::byte* slot) {
  auto* counts = reinterpret_cast<std::uint64_t*>(slot);
  const Blocks& first =
      request.op->kind == CollectiveKind::kGather ? request.out_blocks : request.in_blocks;
  for (int q = 0; q < ranks; ++q) counts[q] = first[q].count;
  if (request.op->kind != CollectiveKind::kAllToAll) return;
  for (int q = 0; q < ranks; ++q) counts[ranks + q] = request.out_blocks[q].count;
}

std::uint64_t Announcements::sends(int from, int to) const {
  return lists_counts(from) ? counts(from)[to] : descriptor(from).count;
}

std::uint64_t Announcements::expects(int to, int from) const {
  return lists_counts(to) ? counts(to)[ranks_ + from] : descriptor(to).count;
}

std::uint64_t Announcements::at_root(int root, int rank) const {
  return lists_counts(root) ? counts(root)[rank] : descriptor(root).count;
}

Operation Announcements::call(int rank) const {
  const shm::Descriptor& d = descriptor(rank);
  Operation op;
  op.kind = d.kind;
  op.type = d.type;
  op.reduction.op = d.op;
  op.reduction.factor = d.factor;
  op.root = d.root;
  op.count = static_cast<std::size_t>(d.count);
  if (d.counts_hash != 0)
    op.out_blocks = {{nullptr, op.count}};  // a list, of which the sum is known
  if (!lists_counts(rank)) return op;
  for (int q = 0; q < ranks_; ++q) {
    const std::size_t first = counts(rank)[q];
    if (d.kind == CollectiveKind::kGather) {
      op.out_blocks.push_back({nullptr, first});
    } else {
      op.in_blocks.push_back({nullptr, first});
    }
    if (d.kind == CollectiveKind::kAllToAll)
      op.out_blocks.push_back({nullptr, counts(rank)[ranks_ + q]});
  }
  return op;
}

namespace {

bool any_lists_counts(const Announcements& all, int ranks) {
  for (int r = 0; r < ranks; ++r) {
    if (all.lists_counts(r)) return true;
  }
  return false;
}

/// Whether what must agree is counts of pairs of ranks. Where nobody lists any, all have one count.
bool by_pair(const Announcements& all, int ranks) {
  return pairwise(all.descriptor(0).kind) && any_lists_counts(all, ranks);
}

bool agree(const shm::Descriptor& a, const shm::Descriptor& b, bool by_pair) {
  if (a.kind != b.kind || a.type != b.type || a.op != b.op || a.root != b.root) return false;
  return by_pair || (a.count == b.count && a.counts_hash == b.counts_hash);
}

/// The first rank that does not call what most ranks call; where two calls have as many ranks, the one
/// of the lowest rank counts as right.
int odd_one_out(const Announcements& all, int ranks, bool by_pair) {
  int model = 0;
  std::ptrdiff_t most = 0;
  std::vector<int> numbers(static_cast<std::size_t>(ranks));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (int r = 0; r < ranks; ++r) {
    const auto as_r = std::count_if(numbers.begin(), numbers.end(), [&](int other) {
      return agree(all.descriptor(r), all.descriptor(other), by_pair);
    });
    if (as_r > most) {
      most = as_r;
      model = r;
    }
  }
  return *std::find_if(numbers.begin(), numbers.end(), [&](int r) {
    return !agree(all.descriptor(model), all.descriptor(r), by_pair);
  });
}

bool all_agree(const Announcements& all, int ranks, bool by_pair) {
  for (int r = 1; r < ranks; ++r) {
    if (!agree(all.descriptor(0), all.descriptor(r), by_pair)) return false;
  }
  return true;
}

/// All pairs that differ; each names the rank to blame if it is the only one.
std::vector<CountMismatch> differing_pairs(const Announcements& all, int ranks) {
  std::vector<CountMismatch> pairs;
  for (int to = 0; to < ranks; ++to) {
    for (int from = 0; from < ranks; ++from) {
      const std::uint64_t sent = all.sends(from, to), expected = all.expects(to, from);
      if (sent != expected) pairs.push_back({to, from, to, sent, expected});
    }
  }
  return pairs;
}

std::vector<CountMismatch> pairs_that_differ_from_root(const Announcements& all, int ranks) {
  const shm::Descriptor& call = all.descriptor(0);
  std::vector<CountMismatch> pairs;
  for (int r = 0; r < ranks; ++r) {
    const std::uint64_t own = all.own(r), at_root = all.at_root(call.root, r);
    if (own == at_root) continue;
    pairs.push_back(call.kind == CollectiveKind::kGather
                        ? CountMismatch{r, r, call.root, own, at_root}
                        : CountMismatch{r, call.root, r, at_root, own});
  }
  return pairs;
}

bool concerns(const CountMismatch& pair, int rank) { return pair.from == rank || pair.to == rank; }

/// Who is in most of the pairs is to blame: whose lists are wrong differs from many.
CountMismatch blame(const std::vector<CountMismatch>& pairs, int ranks) {
  const auto pairs_of = [&](int rank) {
    return std::count_if(pairs.begin(), pairs.end(),
                         [&](auto& pair) { return concerns(pair, rank); });
  };
  int culprit = pairs.front().culprit;
  for (int r = 0; r < ranks; ++r) {
    if (pairs_of(r) > pairs_of(culprit)) culprit = r;
  }
  CountMismatch first = *std::find_if(pairs.begin(), pairs.end(),
                                      [&](auto& pair) { return concerns(pair, culprit); });
  first.culprit = culprit;
  return first;
}

/// Of announcements that agree in all but counts by pair.
std::optional<CountMismatch> compare_pairs(const Announcements& all, int ranks) {
  const auto pairs = all.descriptor(0).kind == CollectiveKind::kAllToAll
                         ? differing_pairs(all, ranks)
                         : pairs_that_differ_from_root(all, ranks);
  return pairs.empty() ? std::nullopt : std::optional(blame(pairs, ranks));
}

}  // namespace

int find_mismatch(const Context& context, std::uint64_t seq) {
  const Announcements all(context, seq);
  const bool pairs = by_pair(all, context.ranks);
  if (!all_agree(all, context.ranks, pairs)) return odd_one_out(all, context.ranks, pairs);
  if (!pairs) return -1;
  const auto counts = compare_pairs(all, context.ranks);
  return counts ? counts->culprit : -1;
}

std::optional<CountMismatch> find_count_mismatch(const Context& context, std::uint64_t seq) {
  const Announcements all(context, seq);
  if (!by_pair(all, context.ranks) || !all_agree(all, context.ranks, true)) return std::nullopt;
  return compare_pairs(all, context.ranks);
}

}  // namespace topocoll
