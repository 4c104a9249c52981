#include "collectives/cpu/reduce_parts.h"
#include "collectives/cpu/reduce_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/cpu/reduce_float.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "collectives/cpu/reduce_kernel-inl.h"
#include "collectives/cpu/reduce_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {

/// Sums of complex numbers are sums of twice as many reals (kScale).
template <class T, std::size_t kScale>
ReduceFunction find_sum(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return &reduce<Plain<T>, Sum, kScale>;
    case ReduceOp::kAvg:
      return &reduce<Plain<T>, Average, kScale>;
    case ReduceOp::kPremulSum:
      return &reduce<Plain<T>, PremulSum, kScale>;
    default:
      return nullptr;
  }
}

template <class T>
ReduceFunction find_real(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd:
      return &reduce<Plain<T>, Prod>;
    case ReduceOp::kMin:
      return &reduce<Plain<T>, Min>;
    case ReduceOp::kMax:
      return &reduce<Plain<T>, Max>;
    default:
      return find_sum<T, 1>(op);
  }
}

ReduceFunction find_float(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kF32:
      return find_real<float>(op);
    case DataType::kF64:
      return find_real<double>(op);
    case DataType::kC64:
      return find_sum<float, 2>(op);
    case DataType::kC128:
      return find_sum<double, 2>(op);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topocoll {

HWY_EXPORT(find_float);

ReduceFunction find_float_reduce(DataType type, ReduceOp op) {
  return HWY_DYNAMIC_DISPATCH(find_float)(type, op);
}

}  // namespace topocoll
#endif  // HWY_ONCE
