// torch's collectives as topocoll operations.
#include <algorithm>
#include <utility>

#include "backend.h"
#include "errors.h"
#include "precompiled.h"

namespace topocoll::plugin {
namespace {

using c10d::OpType;

constexpr CallName kAllReduce{OpType::ALLREDUCE, "topocoll:all_reduce"};
constexpr CallName kAllReduceCoalesced{OpType::ALLREDUCE_COALESCED, "topocoll:all_reduce_coalesced"};
constexpr CallName kBroadcast{OpType::BROADCAST, "topocoll:broadcast"};
constexpr CallName kReduce{OpType::REDUCE, "topocoll:reduce"};
constexpr CallName kAllGather{OpType::ALLGATHER, "topocoll:all_gather"};
constexpr CallName kAllGatherSingle{OpType::_ALLGATHER_BASE, "topocoll:all_gather_into_tensor"};
constexpr CallName kAllGatherCoalesced{OpType::ALLGATHER_COALESCED, "topocoll:all_gather_coalesced"};
constexpr CallName kReduceScatter{OpType::REDUCE_SCATTER, "topocoll:reduce_scatter"};
constexpr CallName kReduceScatterSingle{OpType::_REDUCE_SCATTER_BASE,
                                        "topocoll:reduce_scatter_tensor"};
constexpr CallName kReduceScatterCoalesced{OpType::COALESCED,
                                           "topocoll:reduce_scatter_tensor_coalesced"};
constexpr CallName kGather{OpType::GATHER, "topocoll:gather"};
constexpr CallName kScatter{OpType::SCATTER, "topocoll:scatter"};
constexpr CallName kAllToAllSingle{OpType::ALLTOALL_BASE, "topocoll:all_to_all_single"};
constexpr CallName kAllToAll{OpType::ALLTOALL, "topocoll:all_to_all"};
constexpr CallName kBarrier{OpType::BARRIER, "topocoll:barrier"};

const at::Tensor& only(const Tensors& tensors, const char* operation) {
  require(tensors.size() == 1, operation, "expects one tensor per call and rank");
  require_usable(tensors[0], operation);
  return tensors[0];
}

// The parts for or from every rank that list calls carry.
const Tensors& parts(const TensorLists& lists, std::size_t ranks, const char* operation) {
  require(lists.size() == 1, operation, "expects one list of tensors per call and rank");
  if (lists[0].size() != ranks) {
    raise_invalid(operation, "a list of " + std::to_string(lists[0].size()) +
                                 " tensors in a group of " + std::to_string(ranks));
  }
  return lists[0];
}

Element one_type(const at::Tensor& single, const Tensors& list, const char* operation) {
  Tensors all{single};
  all.insert(all.end(), list.begin(), list.end());
  return require_one_type(all, operation);
}

void require_own_part(const at::Tensor& part, const at::Tensor& own, const char* operation) {
  if (part.numel() != own.numel()) {
    raise_invalid(operation, "this rank's own part has " + std::to_string(own.numel()) +
                                 " elements, its place in the list " + std::to_string(part.numel()));
  }
}

void require_multiple(const at::Tensor& whole, const at::Tensor& part, std::size_t ranks,
                      const char* operation) {
  if (whole.numel() != part.numel() * static_cast<std::int64_t>(ranks)) {
    raise_invalid(operation, "the whole has " + std::to_string(whole.numel()) +
                                 " elements, which is not " + std::to_string(ranks) + " times the " +
                                 std::to_string(part.numel()) + " of a part");
  }
}

// Where rank `rank` finds its part of `whole`.
const void* place_of(const at::Tensor& whole, const at::Tensor& part, int rank) {
  return static_cast<const char*>(whole.const_data_ptr()) + part.nbytes() * static_cast<std::size_t>(rank);
}

bool in_place(const at::Tensor& whole, const at::Tensor& part, int rank) {
  return is_plain(whole) && is_plain(part) && part.const_data_ptr() == place_of(whole, part, rank);
}

void add_all_reduce(Call& call, const at::Tensor& tensor, const c10d::AllreduceOptions& opts) {
  require_usable(tensor, call.name.plain());
  Operation& operation = call.add(CollectiveKind::kAllReduce, opts.timeout);
  call.set_reduction(operation, tensor, opts.reduceOp);
  operation.in = operation.out = call.in_out(tensor);
  call.outputs.push_back(tensor);
}

void add_all_gather_single(Call& call, const at::Tensor& output, const at::Tensor& input, int rank,
                           std::size_t ranks, std::chrono::milliseconds timeout) {
  require_one_type(Tensors{output, input}, call.name.plain());
  require_multiple(output, input, ranks, call.name.plain());
  Operation& operation = call.add(CollectiveKind::kAllGather, timeout);
  call.set_moved_type(operation, input);
  operation.in =
      call.input(input, overlap(input, {&output, 1}) && !in_place(output, input, rank));
  operation.out = call.output(output);
  call.outputs.push_back(output);
}

void add_reduce_scatter_single(Call& call, const at::Tensor& output, const at::Tensor& input,
                               int rank, std::size_t ranks,
                               const c10d::ReduceScatterOptions& opts) {
  require_one_type(Tensors{output, input}, call.name.plain());
  require_multiple(input, output, ranks, call.name.plain());
  Operation& operation = call.add(CollectiveKind::kReduceScatter, opts.timeout);
  call.set_reduction(operation, output, opts.reduceOp);
  operation.in =
      call.input(input, overlap(input, {&output, 1}) && !in_place(input, output, rank));
  operation.out = call.output(output);
  call.outputs.push_back(output);
}

void add_all_gather(Call& call, const Tensors& outputs, const at::Tensor& input, int rank,
                    std::chrono::milliseconds timeout) {
  const Element element = one_type(input, outputs, call.name.plain());
  const at::Tensor& own = outputs[static_cast<std::size_t>(rank)];
  require_own_part(own, input, call.name.plain());
  Operation& operation = call.add(CollectiveKind::kAllGather, timeout);
  call.set_moved_type(operation, input);
  operation.in = call.input(input, overlap(input, outputs));
  operation.out_blocks = call.output_blocks(outputs, element);
  call.outputs.insert(call.outputs.end(), outputs.begin(), outputs.end());
}

// The counts of a single-buffer all-to-all, in elements: rows of the first dimension by rank.
std::vector<std::size_t> split_counts(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                      std::size_t ranks, const char* operation) {
  const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  const auto n = static_cast<std::int64_t>(ranks);
  if (splits.empty()) {
    if (rows % n != 0) {
      raise_invalid(operation, "a first dimension of " + std::to_string(rows) +
                                   " does not divide by the group's " + std::to_string(ranks));
    }
    return std::vector<std::size_t>(ranks, static_cast<std::size_t>(tensor.numel() / n));
  }
  if (splits.size() != ranks) {
    raise_invalid(operation, std::to_string(splits.size()) + " splits for a group of " +
                                 std::to_string(ranks) + " ranks");
  }
  std::int64_t left = rows;  // and no sum, which could wrap
  std::vector<std::size_t> counts;
  for (const std::int64_t split : splits) {
    left = split < 0 || split > left ? -1 : left - split;
    if (left < 0) {
      break;
    }
    counts.push_back(rows == 0 ? 0 : static_cast<std::size_t>(split * (tensor.numel() / rows)));
  }
  if (left != 0) {
    raise_invalid(operation, c10::str("the splits ", c10::ArrayRef<std::int64_t>(splits),
                                      " do not add up to the first dimension, which is ", rows));
  }
  return counts;
}

template <class B, class P>
std::vector<B> consecutive(P* base, const std::vector<std::size_t>& counts, const Element& element,
                           std::size_t bytes_per_element) {
  std::vector<B> blocks;
  for (const std::size_t count : counts) {
    blocks.push_back({base, count * element.scale});
    base += count * bytes_per_element;
  }
  return blocks;
}

}  // namespace

WorkPtr TopocollBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  Call call(kAllReduce);
  add_all_reduce(call, only(tensors, kAllReduce.plain()), opts);
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::allreduce_coalesced(Tensors& tensors,
                                             const c10d::AllreduceCoalescedOptions& opts) {
  Call call(kAllReduceCoalesced);
  for (const at::Tensor& tensor : tensors) {
    add_all_reduce(call, tensor, opts);
  }
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  Call call(kBroadcast);
  const at::Tensor& tensor = only(tensors, kBroadcast.plain());
  require_rank(opts.rootRank, kBroadcast.plain());
  Operation& operation = call.add(CollectiveKind::kBroadcast, opts.timeout);
  call.set_moved_type(operation, tensor);
  operation.root = static_cast<int>(opts.rootRank);
  operation.in = operation.out = call.in_out(tensor);
  call.outputs = tensors;
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  Call call(kReduce);
  const at::Tensor& tensor = only(tensors, kReduce.plain());
  require_rank(opts.rootRank, kReduce.plain());
  Operation& operation = call.add(CollectiveKind::kReduce, opts.timeout);
  call.set_reduction(operation, tensor, opts.reduceOp);
  operation.root = static_cast<int>(opts.rootRank);
  if (operation.root == rank_) {
    operation.in = operation.out = call.in_out(tensor);
  } else {
    operation.in = call.input(tensor);
  }
  call.outputs = tensors;
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                   const c10d::AllgatherOptions& opts) {
  Call call(kAllGather);
  call.lists = 1;
  add_all_gather(call, parts(outputs, ranks(), kAllGather.plain()),
                 only(inputs, kAllGather.plain()), rank_, opts.timeout);
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::AllgatherOptions& opts) {
  Call call(kAllGatherSingle);
  add_all_gather_single(call, output, input, rank_, ranks(), opts.timeout);
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& opts) {
  // torch's order: outputs[rank][i] takes inputs[i] of that rank.
  constexpr auto kName = kAllGatherCoalesced;
  require(outputs.size() == ranks(), kName.plain(), "the number of lists is not the group's size");
  Call call(kName);
  call.lists = outputs.size();
  for (const Tensors& list : outputs) {
    require(list.size() == inputs.size(), kName.plain(), "a list has not one tensor per input");
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors by_rank;
    for (const Tensors& list : outputs) {
      by_rank.push_back(list[i]);
    }
    add_all_gather(call, by_rank, inputs[i], rank_, opts.timeout);
  }
  call.outputs.clear();
  for (const Tensors& list : outputs) {
    call.outputs.insert(call.outputs.end(), list.begin(), list.end());
  }
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const c10d::AllgatherOptions& opts) {
  constexpr auto kName = kAllGatherCoalesced;
  require(outputs.size() == inputs.size(), kName.plain(), "as many outputs as inputs are needed");
  Call call(kName);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    add_all_gather_single(call, outputs[i], inputs[i], rank_, ranks(), opts.timeout);
  }
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                        const c10d::ReduceScatterOptions& opts) {
  Call call(kReduceScatter);
  const at::Tensor& output = only(outputs, kReduceScatter.plain());
  const Tensors& input = parts(inputs, ranks(), kReduceScatter.plain());
  const Element element = one_type(output, input, kReduceScatter.plain());
  require_own_part(input[static_cast<std::size_t>(rank_)], output, kReduceScatter.plain());
  Operation& operation = call.add(CollectiveKind::kReduceScatter, opts.timeout);
  call.set_reduction(operation, output, opts.reduceOp);
  operation.in_blocks = call.input_blocks(input, element, overlap(output, input));
  operation.out = call.output(output);
  call.outputs = outputs;
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::ReduceScatterOptions& opts) {
  Call call(kReduceScatterSingle);
  add_reduce_scatter_single(call, output, input, rank_, ranks(), opts);
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const c10d::ReduceScatterOptions& opts) {
  constexpr auto kName = kReduceScatterCoalesced;
  require(outputs.size() == inputs.size(), kName.plain(), "as many outputs as inputs are needed");
  Call call(kName);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    add_reduce_scatter_single(call, outputs[i], inputs[i], rank_, ranks(), opts);
  }
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::gather(TensorLists& outputs, Tensors& inputs,
                                const c10d::GatherOptions& opts) {
  Call call(kGather);
  const at::Tensor& input = only(inputs, kGather.plain());
  require_rank(opts.rootRank, kGather.plain());
  Operation& operation = call.add(CollectiveKind::kGather, opts.timeout);
  operation.root = static_cast<int>(opts.rootRank);
  call.set_moved_type(operation, input);
  if (operation.root != rank_) {
    require(outputs.empty() || (outputs.size() == 1 && outputs[0].empty()), kGather.plain(),
            "only the root has outputs");
    operation.in = call.input(input);
    return issue(std::move(call), opts.asyncOp);
  }
  const Tensors& output = parts(outputs, ranks(), kGather.plain());
  const Element element = one_type(input, output, kGather.plain());
  require_own_part(output[static_cast<std::size_t>(rank_)], input, kGather.plain());
  operation.in = call.input(input, overlap(input, output));
  operation.out_blocks = call.output_blocks(output, element);
  call.outputs = output;
  call.lists = 1;
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                            const c10d::GatherOptions& opts) {
  Call call(kGather);
  require_usable(input, kGather.plain());
  require_rank(opts.rootRank, kGather.plain());
  Operation& operation = call.add(CollectiveKind::kGather, opts.timeout);
  operation.root = static_cast<int>(opts.rootRank);
  call.set_moved_type(operation, input);
  if (operation.root != rank_) {
    operation.in = call.input(input);
    return issue(std::move(call), opts.asyncOp);
  }
  require_one_type(Tensors{output, input}, kGather.plain());
  require_multiple(output, input, ranks(), kGather.plain());
  operation.in = call.input(input, overlap(input, {&output, 1}));
  operation.out = call.output(output);
  call.outputs.push_back(output);
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                 const c10d::ScatterOptions& opts) {
  Call call(kScatter);
  const at::Tensor& output = only(outputs, kScatter.plain());
  require_rank(opts.rootRank, kScatter.plain());
  Operation& operation = call.add(CollectiveKind::kScatter, opts.timeout);
  operation.root = static_cast<int>(opts.rootRank);
  call.set_moved_type(operation, output);
  call.outputs = outputs;
  if (operation.root != rank_) {
    require(inputs.empty() || (inputs.size() == 1 && inputs[0].empty()), kScatter.plain(),
            "only the root has inputs");
    operation.out = call.output(output);
    return issue(std::move(call), opts.asyncOp);
  }
  const Tensors& input = parts(inputs, ranks(), kScatter.plain());
  const Element element = one_type(output, input, kScatter.plain());
  require_own_part(input[static_cast<std::size_t>(rank_)], output, kScatter.plain());
  operation.in_blocks = call.input_blocks(input, element, overlap(output, input));
  operation.out = call.output(output);
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                       std::vector<int64_t>& output_splits,
                                       std::vector<int64_t>& input_splits,
                                       const c10d::AllToAllOptions& opts) {
  constexpr auto kName = kAllToAllSingle;
  Call call(kName);
  const Element element = require_one_type(Tensors{output, input}, kName.plain());
  const auto sent = split_counts(input, input_splits, ranks(), kName.plain());
  const auto received = split_counts(output, output_splits, ranks(), kName.plain());
  const auto own = static_cast<std::size_t>(rank_);
  if (sent[own] != received[own]) {
    raise_invalid(kName.plain(), "this rank's part for itself has " + std::to_string(sent[own]) +
                                     " elements in the input and " + std::to_string(received[own]) +
                                     " in the output");
  }
  Operation& operation = call.add(CollectiveKind::kAllToAll, opts.timeout);
  call.set_moved_type(operation, input);
  const auto* in = static_cast<const char*>(call.input(input, overlap(input, {&output, 1})));
  auto* out = static_cast<char*>(call.output(output));
  if (input_splits.empty() && output_splits.empty()) {
    operation.count = sent[0] * element.scale;
    operation.in = in;
    operation.out = out;
  } else {
    operation.in_blocks = consecutive<ConstBlock>(in, sent, element, input.element_size());
    operation.out_blocks = consecutive<Block>(out, received, element, output.element_size());
  }
  call.outputs.push_back(output);
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                  const c10d::AllToAllOptions& opts) {
  Call call(kAllToAll);
  require(outputs.size() == ranks() && inputs.size() == ranks(), kAllToAll.plain(),
          "one input and one output per rank are needed");
  const Element element = one_type(inputs[0], inputs, kAllToAll.plain());
  one_type(inputs[0], outputs, kAllToAll.plain());
  const auto own = static_cast<std::size_t>(rank_);
  require_own_part(outputs[own], inputs[own], kAllToAll.plain());
  Operation& operation = call.add(CollectiveKind::kAllToAll, opts.timeout);
  operation.type = element.type;
  const bool stage = std::any_of(inputs.begin(), inputs.end(),
                                 [&](const at::Tensor& input) { return overlap(input, outputs); });
  operation.in_blocks = call.input_blocks(inputs, element, stage);
  operation.out_blocks = call.output_blocks(outputs, element);
  call.outputs = outputs;
  return issue(std::move(call), opts.asyncOp);
}

WorkPtr TopocollBackend::barrier(const c10d::BarrierOptions& opts) {
  Call call(kBarrier);
  call.add(CollectiveKind::kBarrier, opts.timeout);
  return issue(std::move(call), opts.asyncOp);
}

}  // namespace topocoll::plugin
