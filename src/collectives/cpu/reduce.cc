#include "collectives/cpu/reduce.h"

#include "collectives/cpu/reduce_parts.h"

namespace topocoll {

ReduceFunction reduce_function(DataType type, ReduceOp op) {
  if (!is_defined(op, type)) return nullptr;
  switch (type) {
    case DataType::kF32:
    case DataType::kF64:
      return find_float_reduce(type, op);
    case DataType::kC64:
    case DataType::kC128:
      return op == ReduceOp::kProd ? find_complex_prod(type) : find_float_reduce(type, op);
    case DataType::kF16:
    case DataType::kBF16:
      return find_half_reduce(type, op);
    case DataType::kF8E4M3:
    case DataType::kF8E5M2:
      return find_float8_reduce(type, op);
    default:
      return op == ReduceOp::kAvg ? find_integer_average(type) : find_integer_reduce(type, op);
  }
}

}  // namespace topocoll
