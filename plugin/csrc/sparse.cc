// all_reduce of sparse tensors: everybody gathers everybody's entries and adds them up.
//
// It blocks even if it was asked for asynchronously, because the second step's sizes are the first step's
// result and no other collective of the group may come between them.
#include <array>
#include <utility>

#include "backend.h"
#include "errors.h"
#include "precompiled.h"

namespace topocoll::plugin {
namespace {

constexpr CallName kSparse{c10d::OpType::_ALLREDUCE_SPARSE, "topocoll:all_reduce_sparse"};

constexpr std::size_t kMaxDims = 12;
// What ranks tell each other about their tensors.
struct Shape {
  std::int64_t type = 0;
  std::int64_t sparse_dims = 0;
  std::int64_t dense_dims = 0;
  std::array<std::int64_t, kMaxDims> sizes{};
  std::int64_t entries = 0;

  [[nodiscard]] bool fits(const Shape& other) const {
    return type == other.type && sparse_dims == other.sparse_dims &&
           dense_dims == other.dense_dims && sizes == other.sizes;
  }
};
static_assert(sizeof(Shape) % sizeof(std::int64_t) == 0);

Shape shape_of(const at::Tensor& tensor) {
  Shape shape;
  shape.type = static_cast<std::int64_t>(tensor.scalar_type());
  shape.sparse_dims = tensor.sparse_dim();
  shape.dense_dims = tensor.dense_dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape.sizes.begin());
  shape.entries = tensor._nnz();
  return shape;
}

void require_same_shape(const std::vector<Shape>& shapes) {
  for (std::size_t rank = 1; rank < shapes.size(); ++rank) {
    if (!shapes[rank].fits(shapes[0])) {
      raise(Status(Cause::kMismatch,
                   "all_reduce of sparse tensors: rank " + std::to_string(rank) +
                       " brought another shape or type than rank 0"));
    }
  }
}

}  // namespace

WorkPtr TopocollBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  require(tensors.size() == 1, kSparse.plain(), "expects one tensor per call and rank");
  const at::Tensor& tensor = tensors[0];
  require(tensor.layout() == at::kSparse, kSparse.plain(), "expects a sparse COO tensor");
  require_usable(tensor._values(), kSparse.plain());
  require(opts.reduceOp == c10d::ReduceOp::SUM || opts.reduceOp == c10d::ReduceOp::AVG,
          kSparse.plain(), "only SUM and AVG are defined for sparse tensors");
  require(opts.reduceOp == c10d::ReduceOp::SUM || tensor.is_floating_point() || tensor.is_complex(),
          kSparse.plain(), "AVG of sparse tensors needs a floating-point type");
  require(tensor.dim() <= static_cast<std::int64_t>(kMaxDims), kSparse.plain(), "too many dimensions");
  require(open_groups_ == 0 || open_group() == nullptr, kSparse.plain(),
          "sparse tensors cannot be part of a coalesced group");

  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor own = tensor.coalesce();
  std::vector<Shape> shapes(ranks());
  const Shape mine = shape_of(own);
  Call exchange(kSparse);
  Operation& meta = exchange.add(CollectiveKind::kAllGather, opts.timeout);
  meta.type = DataType::kI64;
  meta.count = sizeof(Shape) / sizeof(std::int64_t);
  meta.in = &mine;
  meta.out = shapes.data();
  raise_if_failed(run_and_wait(exchange));
  require_same_shape(shapes);

  Tensors all_indices;
  Tensors all_values;
  for (const Shape& shape : shapes) {
    all_indices.push_back(at::empty({shape.sparse_dims, shape.entries}, own.indices().options()));
    auto sizes = own.values().sizes().vec();
    sizes[0] = shape.entries;
    all_values.push_back(at::empty(sizes, own.values().options()));
  }
  const std::array pairs{std::pair{own.indices(), &all_indices}, std::pair{own.values(), &all_values}};
  for (const auto& [part, whole] : pairs) {
    Call gather(kSparse);
    Operation& operation = gather.add(CollectiveKind::kAllGather, opts.timeout);
    gather.set_moved_type(operation, part);
    operation.in = gather.input(part);
    operation.out_blocks = gather.output_blocks(*whole, element_of(part));
    raise_if_failed(run_and_wait(gather));
    gather.copy_back();
  }
  at::Tensor sum = at::sparse_coo_tensor(at::cat(all_indices, 1), at::cat(all_values, 0),
                                         tensor.sizes(), tensor.options())
                       .coalesce();
  if (opts.reduceOp == c10d::ReduceOp::AVG) {
    sum.values().div_(static_cast<double>(size_));
  }
  tensor.copy_(sum);

  Call done(kSparse);
  done.outputs = tensors;
  auto work = make_work(done);
  work->finish_now(std::move(done), Status(), -1, issued_);
  return work;
}

}  // namespace topocoll::plugin
