#include "collectives/cpu/reduce_parts.h"
#include "collectives/cpu/reduce_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/cpu/reduce_float8.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "collectives/cpu/reduce_narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topocoll {
namespace HWY_NAMESPACE {

ReduceFunction find_float8(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kF8E4M3:
      return find_any<Narrow<std::uint8_t, SmallFloatBits<8, 3, 7, false>>>(op);
    case DataType::kF8E5M2:
      return find_any<Narrow<std::uint8_t, SmallFloatBits<8, 2, 15, true>>>(op);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topocoll
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topocoll {

HWY_EXPORT(find_float8);

ReduceFunction find_float8_reduce(DataType type, ReduceOp op) {
  return HWY_DYNAMIC_DISPATCH(find_float8)(type, op);
}

}  // namespace topocoll
#endif  // HWY_ONCE
