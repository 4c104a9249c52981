// The kernels of gpu_kernels.cu as the driver loads them.
#pragma once

#include <cstddef>
#include <span>

namespace topocoll {

/// A fat binary; empty if this build had no CUDA compiler.
std::span<const std::byte> gpu_kernels();

}  // namespace topocoll
