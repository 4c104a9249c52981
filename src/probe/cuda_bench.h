// The GpuBench of real GPUs, through CUDA's driver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/cuda/driver.h"
#include "base/os.h"
#include "probe/gpu_bench.h"

namespace topocoll {

struct OpenedBench {
  std::unique_ptr<GpuBench> bench;
  std::vector<cuda::DeviceFacts> devices;  ///< as GpuBench::gpus()
  std::vector<std::string> notes;          ///< what takes no part, and why
};

/// `numa_nodes`: the kernel's numbers of those whose memory is to take part. kUnsupported without a
/// driver or a GPU.
Result<OpenedBench> open_cuda_bench(Os& os, const std::vector<int>& numa_nodes,
                                    const std::string& library = cuda::kDriverLibrary);

}  // namespace topocoll
