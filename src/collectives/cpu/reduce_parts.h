// The parts of reduce_function(), one per file of kernels; each returns null for what is not its own.
// Thread rule: pure functions.
#pragma once

#include "collectives/cpu/reduce.h"

namespace topocoll {

ReduceFunction find_float_reduce(DataType type, ReduceOp op);    ///< f32, f64; complex but prod
ReduceFunction find_complex_prod(DataType type);                 ///< c64, c128
ReduceFunction find_half_reduce(DataType type, ReduceOp op);     ///< f16, bf16
ReduceFunction find_float8_reduce(DataType type, ReduceOp op);   ///< f8e4m3, f8e5m2
ReduceFunction find_integer_reduce(DataType type, ReduceOp op);  ///< bool and integers but avg
ReduceFunction find_integer_average(DataType type);              ///< integers

}  // namespace topocoll
