#include "call.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "errors.h"
#include "precompiled.h"

namespace topocoll::plugin {
namespace {

std::optional<DataType> core_type(at::ScalarType type) {
  switch (type) {
    case at::kBool: return DataType::kBool;
    case at::kByte: return DataType::kU8;
    case at::kChar: return DataType::kI8;
    case at::kUInt16: return DataType::kU16;
    case at::kShort: return DataType::kI16;
    case at::kUInt32: return DataType::kU32;
    case at::kInt: return DataType::kI32;
    case at::kUInt64: return DataType::kU64;
    case at::kLong: return DataType::kI64;
    case at::kHalf: return DataType::kF16;
    case at::kBFloat16: return DataType::kBF16;
    case at::kFloat: return DataType::kF32;
    case at::kDouble: return DataType::kF64;
    case at::kComplexFloat: return DataType::kC64;
    case at::kComplexDouble: return DataType::kC128;
    case at::kFloat8_e4m3fn: return DataType::kF8E4M3;
    case at::kFloat8_e5m2: return DataType::kF8E5M2;
    default: return std::nullopt;
  }
}

Reduction core_reduction(const c10d::ReduceOp& op, const char* operation) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::kSum;
    case c10d::ReduceOp::AVG: return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::kProd;
    case c10d::ReduceOp::MIN: return ReduceOp::kMin;
    case c10d::ReduceOp::MAX: return ReduceOp::kMax;
    case c10d::ReduceOp::BAND: return ReduceOp::kBand;
    case c10d::ReduceOp::BOR: return ReduceOp::kBor;
    case c10d::ReduceOp::BXOR: return ReduceOp::kBxor;
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      require(factor != nullptr, operation, "a PREMUL_SUM without its factor");
      return Reduction::premul_sum(factor->tensor_factor.defined()
                                       ? factor->tensor_factor.item<double>()
                                       : factor->double_factor);
    }
    default: raise_invalid(operation, "unknown reduction " + std::to_string(int{op.op_}));
  }
}

struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// The bytes between a tensor's first and last element, whatever its strides.
Range extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return {};
  }
  std::size_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    last += static_cast<std::size_t>((tensor.size(d) - 1) * tensor.stride(d));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * tensor.element_size()};
}

bool overlap(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

bool any_overlap(std::span<const at::Tensor> tensors) {
  std::vector<Range> ranges;
  ranges.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != 0) {
      ranges.push_back(extent(tensor));
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (overlap(ranges[i - 1], ranges[i])) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

bool overlap(const at::Tensor& a, std::span<const at::Tensor> b) {
  const Range range = extent(a);
  return std::any_of(b.begin(), b.end(),
                     [&](const at::Tensor& tensor) { return overlap(range, extent(tensor)); });
}

Element element_of(const at::Tensor& tensor) {
  if (const auto type = core_type(tensor.scalar_type())) {
    return {*type, 1};
  }
  return {DataType::kU8, static_cast<std::size_t>(tensor.element_size())};
}

void require_usable(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined()) {
    raise_invalid(operation, "an undefined tensor");
  }
  const at::Device device = tensor.device();
  if (device.is_cuda()) {
    raise(Status(Cause::kUnsupported, "topocoll was built without CUDA: " + std::string(operation) +
                                          " got a tensor on " + device.str() +
                                          "; move it to the CPU"));
  }
  if (!device.is_cpu()) {
    raise(Status(Cause::kUnsupported, "topocoll cannot move tensors on " + device.str() + ": " +
                                          operation + " needs CPU tensors"));
  }
  require(tensor.layout() == at::kStrided, operation, "sparse tensors work with all_reduce only");
}

Element require_one_type(std::span<const at::Tensor> tensors, const char* operation) {
  for (const at::Tensor& tensor : tensors) {
    require_usable(tensor, operation);
    if (tensor.scalar_type() != tensors[0].scalar_type()) {
      raise_invalid(operation, std::string("tensors of different types, ") +
                                   c10::toString(tensors[0].scalar_type()) + " and " +
                                   c10::toString(tensor.scalar_type()));
    }
  }
  return element_of(tensors[0]);
}

Operation& Call::add(CollectiveKind kind, std::chrono::milliseconds timeout) {
  Operation& operation = operations.emplace_back();
  operation.kind = kind;
  if (timeout.count() > 0) {
    operation.timeout = timeout;
  }
  return operation;
}

void Call::set_moved_type(Operation& operation, const at::Tensor& like) const {
  const Element element = element_of(like);
  operation.type = element.type;
  operation.count = static_cast<std::size_t>(like.numel()) * element.scale;
}

void Call::set_reduction(Operation& operation, const at::Tensor& like,
                         const c10d::ReduceOp& op) const {
  const auto type = core_type(like.scalar_type());
  const Reduction reduction = core_reduction(op, name.plain());
  if (!type || !is_defined(reduction.op, *type)) {
    const std::string shown(type ? topocoll::name(*type) : c10::toString(like.scalar_type()));
    raise_invalid(name.plain(),
                  std::string(topocoll::name(reduction.op)) + " of " + shown + " is not defined");
  }
  operation.type = *type;
  operation.count = static_cast<std::size_t>(like.numel());
  operation.reduction = reduction;
}

at::Tensor Call::staged(const at::Tensor& tensor, bool copy) {
  // Below the autograd keys: the caller's tensors may be views, inference tensors or require gradients.
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor scratch = at::empty_like(tensor, tensor.options(), at::MemoryFormat::Contiguous);
  if (copy) {
    scratch.copy_(tensor);
  }
  scratch_.push_back(scratch);
  return scratch;
}

const void* Call::input(const at::Tensor& tensor, bool stage) {
  kept_.push_back(tensor);
  if (!stage && is_plain(tensor)) {
    return tensor.const_data_ptr();
  }
  return staged(tensor, true).const_data_ptr();
}

void Call::require_writable(const at::Tensor& tensor) const {
  require(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, name.plain(),
          "several elements of an output share one memory location, as after expand(); clone() it");
}

void* Call::output(const at::Tensor& tensor, bool stage) {
  kept_.push_back(tensor);
  if (!stage && is_plain(tensor)) {
    return tensor.mutable_data_ptr();
  }
  require_writable(tensor);
  const at::Tensor scratch = staged(tensor, false);
  copies_.emplace_back(tensor, scratch);
  return scratch.mutable_data_ptr();
}

void* Call::in_out(const at::Tensor& tensor) {
  kept_.push_back(tensor);
  if (is_plain(tensor)) {
    return tensor.mutable_data_ptr();
  }
  require_writable(tensor);
  const at::Tensor scratch = staged(tensor, true);
  copies_.emplace_back(tensor, scratch);
  return scratch.mutable_data_ptr();
}

std::vector<ConstBlock> Call::input_blocks(std::span<const at::Tensor> tensors,
                                           const Element& element, bool stage) {
  std::vector<ConstBlock> blocks;
  blocks.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    blocks.push_back({input(tensor, stage), static_cast<std::size_t>(tensor.numel()) * element.scale});
  }
  return blocks;
}

std::vector<Block> Call::output_blocks(std::span<const at::Tensor> tensors,
                                       const Element& element) {
  const bool stage = any_overlap(tensors);
  std::vector<Block> blocks;
  blocks.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    blocks.push_back(
        {output(tensor, stage), static_cast<std::size_t>(tensor.numel()) * element.scale});
  }
  return blocks;
}

void Call::copy_back() {
  if (copies_.empty()) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  for (const auto& [to, from] : copies_) {
    to.copy_(from);
  }
}

void Call::absorb(Call&& other) {
  std::move(other.operations.begin(), other.operations.end(), std::back_inserter(operations));
  std::move(other.outputs.begin(), other.outputs.end(), std::back_inserter(outputs));
  std::move(other.kept_.begin(), other.kept_.end(), std::back_inserter(kept_));
  std::move(other.scratch_.begin(), other.scratch_.end(), std::back_inserter(scratch_));
  std::move(other.copies_.begin(), other.copies_.end(), std::back_inserter(copies_));
}

std::size_t Call::collectives() const {
  const auto count =
      std::count_if(operations.begin(), operations.end(), [](const Operation& operation) {
        return operation.kind != CollectiveKind::kSend && operation.kind != CollectiveKind::kRecv;
      });
  return static_cast<std::size_t>(count);
}

}  // namespace topocoll::plugin
