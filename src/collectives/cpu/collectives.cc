// Which way an operation goes: the first line that holds.
//
//   where                  when
//   meet()                 all_reduce that slots hold, more ranks than cores (Tuning::meet): the
//                          last to arrive reduces for all
//   slots, consume()       every rank's payload is in its slot (is_eager()), or there is one rank
//   ring, the user's plan  one serves kind, root and size (given_plan())
//   ring, two_shot         all_reduce and reduce of more than two ranks; all_reduce of two ranks
//                          where rank 0's announcement says so (two_shot())
//   ring, one_shot         everything else
//
// What a user's plan serves, and an all_reduce with two_shot or exchange forced, is in no slot at
// any size. What rank 0 has learnt (method.h) may keep an all_reduce of two ranks out of slots from
// kMinRingBytes on, and choose its plan from kMinTwoShotBytes on.
#include "collectives/cpu/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

namespace topocoll {
namespace {

using shm::EntryLine;

/// All-reduces of two ranks from here may learn which plan wins; below, two rounds of waiting never pay.
constexpr std::size_t kMinTwoShotBytes = std::size_t(256) << 10;

/// All-reduces of two ranks from here, of those that a slot would hold, may learn whether the ring wins.
constexpr std::size_t kMinRingBytes = std::size_t(8) << 10;

/// Cells larger than this do not move faster, and leave less of the ring for overlap.
constexpr std::size_t kMaxCellBytes = std::size_t(256) << 10;

}  // namespace

bool CpuCollectives::is_eager(const Request& request, Method method) const {
  const std::size_t capacity = c_.segment->layout().eager_capacity;
  if (request.counts_bytes + request.payload_bytes > capacity) return false;
  const bool forced = all_reduce() == AllReduceAlgorithm::kTwoShot ||
                      all_reduce() == AllReduceAlgorithm::kExchange;
  if (forced && request.op->kind == CollectiveKind::kAllReduce) return request.payload_bytes == 0;
  if (given_plan(request.descriptor, request.element, request.lists_counts) >= 0) return request.payload_bytes == 0;
  return request.payload_bytes <= c_.tuning.eager_bytes && !method.ring;
}

bool CpuCollectives::meets(const Request& request) const {
  return c_.tuning.meet != 0 && request.op->kind == CollectiveKind::kAllReduce && request.op->count != 0 &&
         is_eager(request, {});
}

void CpuCollectives::learn(const std::vector<CopyKind>& copies) {
  MethodChooser::Options options;
  options.copies = copies;
  options.eager_bytes = c_.tuning.eager_bytes;
  const bool plan_is_free = c_.ranks == 2 && all_reduce() == AllReduceAlgorithm::kAuto;
  if (plan_is_free) options.two_shot_min_bytes = kMinTwoShotBytes;
  if (c_.tuning.ring_from_bytes != 0) options.ring_min_bytes = kMinRingBytes;
  options.has_ring = [this] { return c_.segment->commit_ring(*c_.os, c_.tuning.ring_bytes).ok(); };
  chooser_.emplace(c_.segment->header(), c_.tuning, std::move(options));
}

ExecResult CpuCollectives::execute(const Operation& op, std::uint64_t seq, shm::Deadline& deadline) {
  const Request request = Request::of(op, c_.rank, c_.ranks);
  const std::size_t bytes = request.payload_bytes;
  const bool timed = chooser_ && bytes >= kMinMethodBytes && !meets(request) && chooser_->begin(op.kind, bytes);
  method_ = current_method(c_.segment->header(), c_.tuning, bytes);
  if (!timed) [[likely]] return run(request, seq, deadline, nullptr);
  Clock::duration waited{};
  const TimePoint start = c_.os->now();
  ExecResult result = run(request, seq, deadline, &waited);
  chooser_->report(bytes, static_cast<double>((c_.os->now() - start - waited).count()));
  return result;
}

ExecResult CpuCollectives::run(const Request& request, std::uint64_t seq, shm::Deadline& deadline,
                               Clock::duration* waited) {
  if (meets(request)) return meet(request, seq, deadline);
  const bool eager = is_eager(request, method_);
  if (ExecResult r = announce(request, seq, eager); !r.ok()) return r;
  const TimePoint announced = waited != nullptr ? c_.os->now() : TimePoint{};
  if (ExecResult r = await_announcements(seq, deadline); !r.ok()) return r;
  if (waited != nullptr) *waited = c_.os->now() - announced;
  if (const int culprit = find_mismatch(c_, seq); culprit >= 0) return {Stop::kMismatch, culprit, {}};
  // Alone there is nothing to overlap, and no ring.
  if (c_.ranks > 1 && !all_eager(seq)) return pipeline(request, seq, deadline);
  consume(request, seq);
  return {};
}

ExecResult CpuCollectives::announce(const Request& request, std::uint64_t seq, bool eager) {
  const int parity = static_cast<int>(seq & 1);
  EntryLine& line = c_.segment->entry(parity, c_.rank);
  std::byte* slot = c_.segment->slot(parity, c_.rank);
  line.descriptor = request.descriptor;
  std::uint64_t flag = seq;
  if (c_.rank == 0 && !eager && two_shot(request.op->kind, method_)) flag |= shm::kTwoShot;
  if (request.lists_counts) {
    write_counts(request, c_.ranks, slot);
    flag |= shm::kCounts;
  }
  if (eager) {
    flag |= shm::kEager;
    const Operation& op = *request.op;
    const bool blocks = op.kind == CollectiveKind::kReduceScatter || op.kind == CollectiveKind::kAllToAll ||
                        op.kind == CollectiveKind::kScatter;
    if (request.payload_bytes == 0 || (op.kind == CollectiveKind::kBroadcast && c_.rank != op.root)) {
      // Nothing of this rank's is read by others.
    } else if (blocks) {
      const CopyFunction copy_to_slot = copy_function(method_.copy);
      std::byte* at = slot + request.counts_bytes;
      for (int q = 0; q < c_.ranks; ++q) {
        const Piece piece = request.in_blocks[q];
        const std::size_t bytes = piece.count * request.element;
        if (bytes != 0) copy_to_slot(at, piece.data, bytes);
        at += bytes;
      }
    } else if (request.payload_bytes <= shm::kInlineBytes && !request.lists_counts) {
      std::memcpy(line.payload.data(), op.in, request.payload_bytes);
    } else {
      copy_function(method_.copy)(slot + request.counts_bytes, op.in, request.payload_bytes);
    }
  }
  if (!c_.gate.enter(c_.rank, seq, flag)) return {Stop::kFrozen, -1, {}};
  shm::ring(*c_.os, *c_.segment);
  return {};
}

ExecResult CpuCollectives::await_announcements(std::uint64_t seq, shm::Deadline& deadline) {
  const int parity = static_cast<int>(seq & 1);
  for (int k = 1; k < c_.ranks; ++k) {
    const int peer = c_.rank + k < c_.ranks ? c_.rank + k : c_.rank + k - c_.ranks;
    const std::atomic<std::uint64_t>& flag = c_.segment->entry(parity, peer).flag;
    // A peer may already be one operation of this parity ahead only if this rank was, too.
    const auto there = [&flag, seq] {
      return (flag.load(std::memory_order_acquire) & shm::kSeqMask) >= seq;
    };
    if (there()) continue;
    if (const auto w = c_.waiter.until(seq, deadline, there); !w.ready()) return ExecResult::from(w);
  }
  return {};
}

bool CpuCollectives::all_eager(std::uint64_t seq) const {
  const Announcements all(c_, seq);
  for (int r = 0; r < c_.ranks; ++r) {
    if (!all.eager(r)) return false;
  }
  return true;
}

ExecResult CpuCollectives::confirm(std::uint64_t seq, shm::Deadline& deadline) {
  if (!c_.gate.complete(c_.rank, seq)) return {Stop::kFrozen, -1, {}};
  shm::ring(*c_.os, *c_.segment);
  for (int k = 1; k < c_.ranks; ++k) {
    const int peer = c_.rank + k < c_.ranks ? c_.rank + k : c_.rank + k - c_.ranks;
    const std::atomic<std::uint64_t>& done = c_.segment->block(peer).done;
    const auto there = [&done, seq] {
      return (done.load(std::memory_order_acquire) & shm::kSeqMask) >= seq;
    };
    if (there()) continue;
    if (const auto w = c_.waiter.until(seq, deadline, there); !w.ready()) return ExecResult::from(w);
  }
  return {};
}

// More ranks than cores: every rank that had to read all slots itself would need the others' cache
// lines and its own time slice n times over. The last to arrive evaluates the same expression, in
// rank order, for all; the others wait for one word.
ExecResult CpuCollectives::meet(const Request& request, std::uint64_t seq, shm::Deadline& deadline) {
  if (ExecResult r = announce(request, seq, true); !r.ok()) return r;
  shm::MeetingBlock& meeting = c_.segment->meeting();
  const int parity = static_cast<int>(seq & 1);
  // Counts arrivals of this sequence number: the last rank to come resets it for the next of its parity,
  // which nobody can enter before this one is done.
  const bool last = meeting.arrivals[parity].fetch_add(1) + 1 == static_cast<std::uint64_t>(c_.ranks);
  const Operation& op = *request.op;
  if (last) {
    meeting.reducer.store(c_.rank, std::memory_order_relaxed);
    meeting.arrivals[parity].store(0, std::memory_order_release);
    if (const int culprit = find_mismatch(c_, seq); culprit >= 0) return {Stop::kMismatch, culprit, {}};
    reduce_slots(request, seq, c_.segment->result(parity), op.in, op.count, 0);
    meeting.ready.store(seq);
    shm::ring(*c_.os, *c_.segment);
  } else {
    const auto ready = [&meeting, seq] { return meeting.ready.load(std::memory_order_acquire) >= seq; };
    if (auto w = c_.waiter.until(seq, deadline, ready); !w.ready()) {
      // All have come, but the one that reduces for them does not go on.
      const bool all_came = meeting.arrivals[parity].load(std::memory_order_acquire) == 0;
      if (w.wake == shm::Wake::kTimeout && all_came) w.rank = meeting.reducer.load(std::memory_order_relaxed);
      return ExecResult::from(w);
    }
  }
  std::memcpy(op.out, c_.segment->result(parity), request.payload_bytes);
  return {};
}

const std::byte* CpuCollectives::payload(std::uint64_t seq, int rank, std::size_t bytes,
                                         bool counts) const {
  const int parity = static_cast<int>(seq & 1);
  if (bytes <= shm::kInlineBytes && !counts) return c_.segment->entry(parity, rank).payload.data();
  return c_.segment->slot(parity, rank);
}

void CpuCollectives::reduce_slots(const Request& request, std::uint64_t seq, void* target,
                                  const void* own, std::size_t count, std::size_t offset) {
  std::array<const void*, shm::kMaxRanks> sources;
  std::array<double, shm::kMaxRanks> factors;
  const bool packed = request.op->kind == CollectiveKind::kReduceScatter;
  const bool premul = request.descriptor.op == ReduceOp::kPremulSum;
  const int parity = static_cast<int>(seq & 1);
  for (int q = 0; q < c_.ranks; ++q) {
    const auto i = static_cast<std::size_t>(q);
    if (q == c_.rank) {
      sources[i] = own;
    } else if (packed) {
      sources[i] = c_.segment->slot(parity, q) + offset;
    } else {
      sources[i] = payload(seq, q, request.payload_bytes, false);
    }
    if (premul) factors[i] = c_.segment->entry(parity, q).descriptor.factor;
  }
  ReduceCall r;
  r.target = target;
  r.sources = sources.data();
  r.num_sources = c_.ranks;
  r.count = count;
  r.factors = factors.data();
  r.divisor = c_.ranks;
  reducer(request.op->type, request.descriptor.op)(r);
}

ReduceFunction CpuCollectives::reducer(DataType type, ReduceOp op) {
  if (type != last_reducer_.type || op != last_reducer_.op || last_reducer_.function == nullptr) {
    last_reducer_ = {type, op, reduce_function(type, op)};
  }
  return last_reducer_.function;
}

void CpuCollectives::consume(const Request& request, std::uint64_t seq) {
  const Operation& op = *request.op;
  switch (op.kind) {
    case CollectiveKind::kAllReduce:
      if (op.count != 0) reduce_slots(request, seq, op.out, op.in, op.count, 0);
      return;
    case CollectiveKind::kReduce:
      if (op.count != 0 && c_.rank == op.root) reduce_slots(request, seq, op.out, op.in, op.count, 0);
      return;
    case CollectiveKind::kBroadcast: {
      const void* from =
          c_.rank == op.root ? op.in : payload(seq, op.root, request.payload_bytes, false);
      if (request.payload_bytes != 0 && from != op.out) std::memcpy(op.out, from, request.payload_bytes);
      return;
    }
    case CollectiveKind::kBarrier: return;
    default: return consume_blocks(request, seq);
  }
}

void CpuCollectives::consume_blocks(const Request& request, std::uint64_t seq) {
  const Operation& op = *request.op;
  const Announcements all(c_, seq);
  const int parity = static_cast<int>(seq & 1);
  const int me = c_.rank;
  const std::size_t element = request.element;
  const auto list_bytes = [&](int rank) -> std::size_t {
    if (!all.lists_counts(rank)) return 0;
    const std::size_t lists = op.kind == CollectiveKind::kAllToAll ? 2 : 1;
    return (lists * static_cast<std::size_t>(c_.ranks) * sizeof(std::uint64_t) + 63) / 64 * 64;
  };
  const auto take = [&](const Piece& to, const std::byte* from) {
    if (to.count != 0 && to.data != from) std::memcpy(to.data, from, to.count * element);
  };
  const auto own_in = static_cast<const std::byte*>(op.in);
  switch (op.kind) {
    case CollectiveKind::kAllGather:
      for (int q = 0; q < c_.ranks; ++q) {
        const Piece to = request.out_blocks[q];
        take(to, q == me ? own_in : payload(seq, q, to.count * element, false));
      }
      return;
    case CollectiveKind::kReduceScatter: {
      std::size_t offset = 0;
      for (int q = 0; q < me; ++q) offset += request.in_blocks[q].count * element;
      const Piece own = request.in_blocks[me];
      if (own.count != 0) reduce_slots(request, seq, op.out, own.data, own.count, offset);
      return;
    }
    case CollectiveKind::kAllToAll:
      for (int q = 0; q < c_.ranks; ++q) {
        const std::byte* from = c_.segment->slot(parity, q) + list_bytes(q);
        for (int k = 0; k < me; ++k) from += all.sends(q, k) * element;
        take(request.out_blocks[q], q == me ? request.in_blocks[me].data : from);
      }
      return;
    case CollectiveKind::kGather:
      if (me != op.root) return;
      for (int q = 0; q < c_.ranks; ++q) {
        const Piece to = request.out_blocks[q];
        take(to, q == me ? own_in : payload(seq, q, to.count * element, false));
      }
      return;
    case CollectiveKind::kScatter: {
      const std::byte* from = c_.segment->slot(parity, op.root) + list_bytes(op.root);
      for (int k = 0; k < me; ++k) from += all.at_root(op.root, k) * element;
      take({static_cast<std::byte*>(op.out), op.count}, me == op.root ? request.in_blocks[me].data : from);
      return;
    }
    default: return;
  }
}

bool CpuCollectives::two_shot(CollectiveKind kind, Method method) const {
  if (kind == CollectiveKind::kReduce) return c_.ranks > 2;
  if (kind != CollectiveKind::kAllReduce) return false;
  switch (all_reduce()) {
    case AllReduceAlgorithm::kOneShot:
    case AllReduceAlgorithm::kExchange: return false;
    case AllReduceAlgorithm::kTwoShot: return true;
    case AllReduceAlgorithm::kAuto: break;
  }
  return c_.ranks > 2 || method.two_shot;
}

int CpuCollectives::given_plan(const shm::Descriptor& op, std::size_t element, bool lists) const {
  if (plans_.empty()) return -1;
  const auto n = static_cast<std::uint64_t>(c_.ranks);
  const bool listed = op.counts_hash != 0;  // the count is then the sum of all ranks'
  std::uint64_t bytes = op.count * element;
  switch (op.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBroadcast: break;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter: bytes *= listed ? 1 : n; break;
    case CollectiveKind::kAllToAll:
      // Counts may differ from pair to pair then, so ranks could not agree on a plan by size.
      if (lists) return -1;
      bytes *= n;
      break;
    default: return -1;
  }
  for (std::size_t i = plans_.size(); i-- > 0;) {
    const Plan& plan = plans_[i];
    if (plan.kind != op.kind || (has_root(op.kind) && plan.root != op.root)) continue;
    if (bytes >= plan.min_bytes && bytes <= plan.max_bytes) return static_cast<int>(i);
  }
  return -1;
}

Result<const Program*> CpuCollectives::program(CollectiveKind kind, int which, int root) {
  auto& cached = programs_[{kind, has_root(kind) ? root : 0, which}];
  if (cached == nullptr) {
    Result<Plan> plan = which >= kFirstGiven
                            ? Result<Plan>(plans_[static_cast<std::size_t>(which - kFirstGiven)])
                            : make_direct_plan(kind, which == kTwoShot ? "two_shot" : "one_shot", c_.ranks,
                                               has_root(kind) ? root : 0);
    if (!plan.ok()) return plan.status();
    if (Status s = verify(*plan); !s.ok()) return s;
    auto compiled = compile(*plan, c_.rank);
    if (!compiled.ok()) return compiled.status();
    cached = std::make_unique<const Program>(std::move(*compiled));
  }
  return cached.get();
}

std::size_t CpuCollectives::largest_block(const Request& request, std::uint64_t seq) const {
  const Announcements all(c_, seq);
  const Operation& op = *request.op;
  std::size_t most = 0;
  for (int r = 0; r < c_.ranks; ++r) {
    switch (op.kind) {
      case CollectiveKind::kAllGather: most = std::max(most, request.out_blocks[r].count); break;
      case CollectiveKind::kReduceScatter: most = std::max(most, request.in_blocks[r].count); break;
      case CollectiveKind::kAllToAll:
        for (int q = 0; q < c_.ranks; ++q) most = std::max<std::size_t>(most, all.sends(r, q));
        break;
      default: most = std::max<std::size_t>(most, all.own(r)); break;
    }
  }
  return most;
}

Result<std::size_t> CpuCollectives::cell_bytes(const PipelineCall& call, std::size_t bytes, bool exchange) const {
  const Program& program = *call.program;
  const auto slots = static_cast<std::size_t>(std::max(2, program.phases));
  const std::size_t room =
      c_.segment->ring_share() / slots / static_cast<std::size_t>(std::max(1, program.values)) / 64 * 64;
  const std::size_t unit = grain_of(call.element) * call.element;
  if (room < unit) {
    return Status(Cause::kUnsupported,
                  fmt::format("the {} plan keeps {} chunks in each of {} phases, for which the group's {} bytes of "
                              "ring on each rank are too few: use a plan with fewer chunks or steps",
                              program.algorithm, program.values, program.phases, c_.segment->ring_share()));
  }
  std::size_t cell = kMaxCellBytes;
  if (call.striped && exchange) {
    cell = c_.tuning.exchange_bytes;
  } else if (call.striped) {
    // Two windows at least where it pays to overlap them, and no more than fit.
    const std::size_t most = bytes >= (2u << 20) ? bytes / 2 : bytes;
    cell = std::min<std::size_t>(c_.tuning.window_bytes, most) / static_cast<std::size_t>(call.chunks);
  }
  return std::max(unit, std::min(cell, room) / unit * unit);
}

ExecResult CpuCollectives::pipeline(const Request& request, std::uint64_t seq, shm::Deadline& deadline) {
  const Operation& op = *request.op;
  if (Status s = c_.segment->commit_ring(*c_.os, c_.tuning.ring_bytes); !s.ok()) return {Stop::kResource, c_.rank, s};
  // What rank 0 published before its announcement is in the table by now.
  method_ = current_method(c_.segment->header(), c_.tuning, request.payload_bytes);
  const std::size_t bytes = op.count * request.element;
  const Announcements announced(c_, seq);
  const bool two = announced.two_shot();
  bool lists = false;
  for (int r = 0; r < c_.ranks; ++r) lists |= announced.lists_counts(r);
  const int given = given_plan(announced.descriptor(0), request.element, lists);
  auto compiled = program(op.kind, given >= 0 ? kFirstGiven + given : two ? kTwoShot : kOneShot, op.root);
  if (!compiled.ok()) return {Stop::kResource, c_.rank, compiled.status()};

  PipelineCall call;
  call.program = *compiled;
  call.seq = seq;
  call.base = pipeline_base_;
  call.passed = &ring_passed_;
  call.element = request.element;
  call.striped = is_striped(op.kind);
  call.chunks = call.program->chunks;
  std::size_t message = op.count;
  if (call.striped) {
    call.input = View::striped(op.in, op.count);
    call.output = View::striped(op.out, op.count);
  } else {
    const bool single_in = op.kind == CollectiveKind::kAllGather || op.kind == CollectiveKind::kGather;
    const bool single_out = op.kind == CollectiveKind::kReduceScatter || op.kind == CollectiveKind::kScatter;
    call.input = View::blocked(single_in ? Blocks(op.in, op.count, request.element) : request.in_blocks);
    call.output = View::blocked(single_out ? Blocks(op.out, op.count, request.element) : request.out_blocks);
    message = largest_block(request, seq);
  }
  auto cell = cell_bytes(call, bytes, !two && given < 0);
  if (!cell.ok()) return {Stop::kResource, c_.rank, cell.status()};
  call.window_count = *cell / request.element * static_cast<std::size_t>(call.chunks);
  call.windows = (message + call.window_count - 1) / call.window_count;
  call.slot_copy = method_.copy;
  call.stream_output = op.in != op.out && bytes >= c_.tuning.stream_bytes;
  std::array<double, shm::kMaxRanks> factors;
  if (reduces(op.kind)) {
    for (int r = 0; r < c_.ranks; ++r) factors[static_cast<std::size_t>(r)] = announced.descriptor(r).factor;
    call.reduce = reduce_function(op.type, op.reduction.op);
    // A mean is divided once, when the last contribution is in.
    const bool mean = op.reduction.op == ReduceOp::kAvg;
    call.reduce_part = mean ? reduce_function(op.type, ReduceOp::kSum) : call.reduce;
    call.factors = factors.data();
    call.divisor = c_.ranks;
  }
  if (call.windows == 0) return {};
  pipeline_base_ += pipeline_steps(*call.program, call.windows);
  return run_pipeline(c_, call, deadline);
}

Choice CpuCollectives::choice(const Operation& op) const {
  Choice choice;
  choice.transport = c_.ranks == 1 ? "self" : "shm";
  choice.channels = 1;
  const Request request = Request::of(op, c_.rank, c_.ranks);
  const Method method = current_method(c_.segment->header(), c_.tuning, request.payload_bytes);
  const bool two = !is_eager(request, method) && two_shot(op.kind, method);
  const int given = given_plan(request.descriptor, request.element, request.lists_counts);
  choice.algorithm = given >= 0 ? plans_[static_cast<std::size_t>(given)].algorithm : two ? "two_shot" : "one_shot";
  return choice;
}

}  // namespace topocoll
