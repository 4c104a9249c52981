#include "coll_perf/exchange.h"

#include <algorithm>
#include <cstring>

#include "coll_perf/pattern.h"

namespace topocoll::perf {
namespace {

CollectiveKind kind_of(Collective test) {
  switch (test) {
    case Collective::kAllReduce:
      return CollectiveKind::kAllReduce;
    case Collective::kAllGather:
      return CollectiveKind::kAllGather;
    case Collective::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case Collective::kBroadcast:
      return CollectiveKind::kBroadcast;
    case Collective::kReduce:
      return CollectiveKind::kReduce;
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      return CollectiveKind::kAllToAll;
    case Collective::kGather:
      return CollectiveKind::kGather;
    case Collective::kScatter:
      return CollectiveKind::kScatter;
    case Collective::kSendRecv:
    case Collective::kHypercube:
      return CollectiveKind::kSend;
  }
  return CollectiveKind::kBarrier;
}

}  // namespace

bool has_in_place(Collective test) {
  return test != Collective::kSendRecv && test != Collective::kAllToAllV;
}

Exchange::Exchange(const Subject& subject, std::byte* send, std::byte* recv)
    : s_(subject), element_(size_of(subject.type)), in_(send), out_(recv) {
  if (s_.in_place) {
    in_ = recv;
    const std::size_t mine = static_cast<std::size_t>(s_.rank) * s_.shape.count;
    // A rank's own part lies where it belongs in the whole.
    if (s_.test == Collective::kAllGather || s_.test == Collective::kHypercube)
      in_ = at(recv, mine);
    if (s_.test == Collective::kReduceScatter) out_ = at(recv, mine);
    if (s_.test == Collective::kGather && is_root()) in_ = at(recv, mine);
    if (s_.test == Collective::kScatter && is_root()) out_ = at(recv, mine);
  }
  make_operations();
}

void Exchange::make_operations() {
  if (s_.test == Collective::kHypercube) return make_hypercube();
  Operation operation;
  operation.kind = kind_of(s_.test);
  operation.type = s_.type;
  operation.reduction = s_.op == ReduceOp::kPremulSum
                            ? Reduction::premul_sum(premul_factor(s_.rank))
                            : Reduction(s_.op);
  operation.root = has_root(s_.test) ? s_.root : 0;
  operation.in = in_;
  operation.out = out_;
  operation.count = s_.shape.count;
  if (s_.test == Collective::kAllToAllV) make_uneven(operation);
  if (s_.test == Collective::kSendRecv) {
    operation.out = nullptr;
    operation.peer = (s_.rank + 1) % s_.ranks;
    Operation receive = operation;
    receive.kind = CollectiveKind::kRecv;
    receive.in = nullptr;
    receive.out = out_;
    receive.peer = (s_.rank + s_.ranks - 1) % s_.ranks;
    operations_ = {operation, receive};
    group_ = 2;
    return;
  }
  operations_ = {operation};
}

void Exchange::make_uneven(Operation& operation) {
  std::size_t sent = 0;
  std::size_t received = 0;
  for (int peer = 0; peer < s_.ranks; ++peer) {
    const std::size_t to = uneven_part(s_.shape.count, s_.rank, peer);
    const std::size_t from = uneven_part(s_.shape.count, peer, s_.rank);
    operation.in_blocks.push_back({at(in_, sent), to});
    operation.out_blocks.push_back({at(out_, received), from});
    sent += to;
    received += from;
  }
  operation.in = nullptr;
  operation.out = nullptr;
}

void Exchange::make_hypercube() {
  // Each step doubles what a rank has, by an exchange with the rank that differs in one bit.
  for (int bit = 1; bit < s_.ranks; bit <<= 1) {
    const int peer = s_.rank ^ bit;
    const std::size_t mine = static_cast<std::size_t>(s_.rank & ~(bit - 1)) * s_.shape.count;
    const std::size_t theirs = static_cast<std::size_t>(peer & ~(bit - 1)) * s_.shape.count;
    Operation send;
    send.kind = CollectiveKind::kSend;
    send.type = s_.type;
    send.peer = peer;
    send.count = s_.shape.count * static_cast<std::size_t>(bit);
    send.in = at(out_, mine);
    Operation receive = send;
    receive.kind = CollectiveKind::kRecv;
    receive.in = nullptr;
    receive.out = at(out_, theirs);
    operations_.push_back(send);
    operations_.push_back(receive);
  }
  group_ = 2;
  if (operations_.empty()) operations_.emplace_back();  // one rank: a barrier
}

Status Exchange::issue(Communicator& communicator, int times) const {
  if (s_.test == Collective::kHypercube) {
    for (int i = 0; i < times; ++i) {
      std::byte* own = at(out_, static_cast<std::size_t>(s_.rank) * s_.shape.count);
      if (own != in_) std::memcpy(own, in_, s_.shape.count * element_);
      for (std::size_t step = 0; step < operations_.size(); step += group_) {
        const auto begin = operations_.begin() + static_cast<std::ptrdiff_t>(step);
        const auto count = std::min(group_, operations_.size() - step);
        std::vector<Operation> group(begin, begin + static_cast<std::ptrdiff_t>(count));
        if (Status s = communicator.enqueue(std::move(group))->wait(); !s.ok()) return s;
      }
    }
    return {};
  }
  if (times == 1 && group_ == 1) return communicator.run(operations_.front());
  std::vector<Operation> group;
  for (int i = 0; i < times; ++i) group.insert(group.end(), operations_.begin(), operations_.end());
  return communicator.enqueue(std::move(group))->wait();
}

template <class F>
void Exchange::for_each_input(F f) const {
  const std::size_t c = s_.shape.count;
  switch (s_.test) {
    case Collective::kBroadcast:
      if (is_root()) f(in_, c, s_.rank);
      return;
    case Collective::kScatter:
    case Collective::kAllToAll:
      if (s_.test == Collective::kScatter && !is_root()) return;
      for (int to = 0; to < s_.ranks; ++to) {
        f(at(in_, c * static_cast<std::size_t>(to)), c, s_.rank * s_.ranks + to);
      }
      return;
    case Collective::kAllToAllV:
      for (int to = 0; to < s_.ranks; ++to) {
        const ConstBlock& block = operations_.front().in_blocks[static_cast<std::size_t>(to)];
        f(static_cast<std::byte*>(const_cast<void*>(block.data)), block.count,
          s_.rank * s_.ranks + to);
      }
      return;
    default:
      f(in_, c, s_.rank);
  }
}

template <class F>
void Exchange::for_each_output(F f) const {
  const std::size_t c = s_.shape.count;
  switch (s_.test) {
    case Collective::kBroadcast:
      return f(out_, c, s_.root);
    case Collective::kSendRecv:
      return f(out_, c, (s_.rank + s_.ranks - 1) % s_.ranks);
    case Collective::kScatter:
      return f(out_, c, s_.root * s_.ranks + s_.rank);
    case Collective::kAllToAllV:
      for (int from = 0; from < s_.ranks; ++from) {
        const Block& block = operations_.front().out_blocks[static_cast<std::size_t>(from)];
        f(static_cast<std::byte*>(block.data), block.count, from * s_.ranks + s_.rank);
      }
      return;
    case Collective::kGather:
      if (!is_root()) return;
      [[fallthrough]];
    default:  // one part from every rank
      for (int from = 0; from < s_.ranks; ++from) {
        const int id = s_.test == Collective::kAllToAll ? from * s_.ranks + s_.rank : from;
        f(at(out_, c * static_cast<std::size_t>(from)), c, id);
      }
  }
}

void Exchange::fill(std::uint64_t salt) const {
  // Spoil the output first: in place it contains the input.
  if (reduces(s_.test)) {
    const std::size_t outputs = s_.shape.recv;
    if (!s_.in_place) std::memset(out_, 0xa5, outputs * element_);
    Pattern::contribution(s_.type, s_.op, s_.rank, s_.ranks, salt).fill(in_, s_.shape.send);
    return;
  }
  for_each_output([&](std::byte* data, std::size_t count, int) {
    std::memset(data, s_.type == DataType::kBool ? 0 : 0xa5, count * element_);
  });
  for_each_input([&](std::byte* data, std::size_t count, int id) {
    Pattern::message(s_.type, id, salt).fill(data, count);
  });
}

std::size_t Exchange::wrong(std::uint64_t salt) const {
  std::size_t wrong = 0;
  if (reduces(s_.test)) {
    if (s_.test != Collective::kReduce || is_root()) {
      const bool scattered = s_.test == Collective::kReduceScatter;
      const std::size_t first = scattered ? s_.shape.count * static_cast<std::size_t>(s_.rank) : 0;
      wrong += Pattern::reduced(s_.type, s_.op, s_.ranks, salt).wrong(out_, s_.shape.recv, first);
    }
    if (!s_.in_place) {
      wrong +=
          Pattern::contribution(s_.type, s_.op, s_.rank, s_.ranks, salt).wrong(in_, s_.shape.send);
    }
    return wrong;
  }
  for_each_output([&](std::byte* data, std::size_t count, int id) {
    wrong += Pattern::message(s_.type, id, salt).wrong(data, count);
  });
  if (!s_.in_place) {
    for_each_input([&](std::byte* data, std::size_t count, int id) {
      wrong += Pattern::message(s_.type, id, salt).wrong(data, count);
    });
  }
  return wrong;
}

}  // namespace topocoll::perf
