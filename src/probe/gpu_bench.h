// GpuBench: moves data between GPUs, and between GPUs and memory, and times it. What is to be
// measured, how often and what follows from it is for others (gpu_probe.h); tests put a simulated
// machine in its place.
//
// Thread rule: one thread. Failure rule: a transfer that the machine cannot make is kUnsupported;
// after kTimeout or kSystem the bench is of no more use.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "topocoll/status.h"

namespace topocoll {

/// One end of a transfer.
struct GpuPlace {
  enum class Kind : std::uint8_t { kGpu, kMemory };
  Kind kind = Kind::kGpu;
  int index = 0;  ///< into GpuBench::gpus() or GpuBench::numa_nodes()
  friend bool operator==(const GpuPlace&, const GpuPlace&) = default;
};

/// Who carries the bytes.
enum class Mover : std::uint8_t {
  kCopyEngine,
  kStores,  ///< the processors of the GPU at `from`
  kLoads,   ///< those of the GPU at `to`
};

struct GpuFlow {
  GpuPlace from;
  GpuPlace to;  ///< one of the two is a GPU
  Mover mover = Mover::kStores;
  friend bool operator==(const GpuFlow&, const GpuFlow&) = default;
};

struct BenchGpu {
  std::string bdf;  ///< "0000:4e:00.0"
  std::string uuid;
};

class GpuBench {
 public:
  virtual ~GpuBench() = default;
  [[nodiscard]] virtual const std::vector<BenchGpu>& gpus() const = 0;
  /// The kernel's numbers of the NUMA nodes whose memory takes part.
  [[nodiscard]] virtual const std::vector<int>& numa_nodes() const = 0;

  /// One sample: what each flow carries while all of them run, in 10^9 bytes per second. They start
  /// together, and each moves as much as takes a few milliseconds alone.
  virtual Result<std::vector<double>> move(const std::vector<GpuFlow>& flows) = 0;

  /// One sample, while `load` runs. Between GPUs: one way of an exchange of flags, in nanoseconds.
  /// Between memory and a GPU: the GPU's read of one word.
  virtual Result<double> latency_ns(GpuPlace from, GpuPlace to,
                                    const std::vector<GpuFlow>& load) = 0;

  /// Sends a pattern that never was there before and looks at what arrives: "" if it is the same,
  /// else what is wrong with it ("3 of 262144 words differ, the first at byte 64").
  virtual Result<std::string> verify(const GpuFlow& flow) = 0;

  /// Keeps all links between memory and GPUs busy, both ways, for `time` at least, and calls `look`
  /// before it stops: only then have links left their power-saving state.
  virtual Status under_load(std::chrono::milliseconds time, const std::function<void()>& look) = 0;
};

}  // namespace topocoll
