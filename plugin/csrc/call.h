// Call: one torch collective as topocoll operations, with the tensors that must live until it ends and
// the copies that make any memory layout look contiguous.
//
// Thread rule: a Call is built on the caller's thread, moved into its Work, and finished on the thread
// that sees the operation end.
// Failure rule: what the caller got wrong raises CollectiveError before anything is sent.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "topocoll/operation.h"

namespace topocoll::plugin {

/// A kind of call, as torch's tools name it.
struct CallName {
  c10d::OpType type;
  const char* title;  ///< "topocoll:all_reduce": the profiler's event

  /// "all_reduce"
  [[nodiscard]] const char* plain() const { return title + sizeof("topocoll:") - 1; }
};

/// How a tensor's elements are described to the core. Types that the core does not know are moved as
/// bytes, `scale` of them per element.
struct Element {
  DataType type = DataType::kU8;
  std::size_t scale = 1;
};

class Call {
 public:
  explicit Call(CallName call_name) : name(call_name) {}

  CallName name;
  c10::SmallVector<Operation, 1> operations;
  /// What result() and the Future give, and how many equal lists those tensors form (0: one flat list).
  std::vector<at::Tensor> outputs;
  std::size_t lists = 0;

  /// Appends an operation of `kind`. A moved or reduced type is given by `like`.
  Operation& add(CollectiveKind kind, std::chrono::milliseconds timeout);
  void set_moved_type(Operation& operation, const at::Tensor& like) const;
  void set_reduction(Operation& operation, const at::Tensor& like, const c10d::ReduceOp& op) const;

  /// A pointer to the tensor's elements in row-major order, valid until the call ends. `stage` forces a
  /// copy, for tensors that overlap others.
  const void* input(const at::Tensor& tensor, bool stage = false);
  /// As input(), but what the operation writes there ends up in `tensor`.
  void* output(const at::Tensor& tensor, bool stage = false);
  /// Both: the elements are read and overwritten.
  void* in_out(const at::Tensor& tensor);
  /// One part per rank.
  std::vector<ConstBlock> input_blocks(std::span<const at::Tensor> tensors, const Element& element,
                                       bool stage);
  /// One part per rank. Parts that overlap each other are staged and take effect in rank order.
  std::vector<Block> output_blocks(std::span<const at::Tensor> tensors, const Element& element);

  /// Brings staged results to where they belong. Only after success.
  void copy_back();
  /// Adds the other call's operations, tensors and copies to this one.
  void absorb(Call&& other);
  [[nodiscard]] std::size_t collectives() const;
  /// The caller's tensors, for the profiler.
  [[nodiscard]] std::vector<at::Tensor> tensors() const { return {kept_.begin(), kept_.end()}; }

 private:
  /// Raises invalid_argument if a result cannot be copied into `tensor`.
  void require_writable(const at::Tensor& tensor) const;
  at::Tensor staged(const at::Tensor& tensor, bool copy);

  c10::SmallVector<at::Tensor, 2> kept_;
  std::vector<at::Tensor> scratch_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // to, from
};

/// Whether an element of `a` may lie in the memory of an element of `b`.
bool overlap(const at::Tensor& a, std::span<const at::Tensor> b);
/// Whether the elements lie in memory in row-major order as they are.
bool is_plain(const at::Tensor& tensor);
/// How `tensor` is moved.
Element element_of(const at::Tensor& tensor);
/// Raises unless `tensor` is dense and on the CPU.
void require_usable(const at::Tensor& tensor, const char* operation);
/// Raises unless the tensors have one type, which is returned; `tensors` is not empty.
Element require_one_type(std::span<const at::Tensor> tensors, const char* operation);

}  // namespace topocoll::plugin
