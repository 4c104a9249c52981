// CudaRig: what measuring GPUs needs of the driver: on each GPU buffers, kernels, streams and
// events; memory of NUMA nodes that GPUs may use; and a gate in front of all streams, so that what
// is queued on several GPUs starts at once and no launch is timed.
//
// Thread rule: one thread. Failure rule: after kTimeout something still runs on a GPU and nothing
// can be let go of safely: the rig refuses all further work and keeps what it owns for ever.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cuda/driver.h"
#include "base/os.h"
#include "probe/gpu_bench.h"

namespace topocoll {

/// A flow of `chunks` pieces of `bytes` each, one after the other.
struct CudaTransfer {
  GpuFlow flow;
  std::size_t bytes = 0;  ///< a multiple of 16, at most CudaRig::buffer_bytes(flow)
  int chunks = 1;
};

class CudaRig {
 public:
  struct Gpu;
  /// Under way on a stream: when it started and when each chunk ended.
  struct Running {
    Gpu* gpu = nullptr;
    cuda::StreamHandle stream = nullptr;
    std::vector<cuda::EventHandle> events;  ///< the first before the first chunk
  };

  /// `numa_nodes`: the kernel's numbers. What cannot take part is left out and noted.
  static Result<std::unique_ptr<CudaRig>> open(Os& os, const std::vector<int>& numa_nodes,
                                               const std::string& library);
  CudaRig(const CudaRig&) = delete;
  CudaRig& operator=(const CudaRig&) = delete;
  ~CudaRig();

  [[nodiscard]] const std::vector<BenchGpu>& gpus() const { return names_; }
  [[nodiscard]] const std::vector<int>& numa_nodes() const { return node_numbers_; }
  [[nodiscard]] const std::vector<cuda::DeviceFacts>& devices() const { return devices_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  /// OK, or why this machine cannot move data so.
  [[nodiscard]] Status can_move(const GpuFlow& flow) const;
  [[nodiscard]] std::size_t buffer_bytes(const GpuFlow& flow) const;

  /// Queues all transfers; with `held` they wait for open_gate().
  Result<std::vector<Running>> queue(std::span<const CudaTransfer> transfers, bool held);
  void open_gate();
  /// Until all have ended.
  Status wait(const std::vector<Running>& running);
  [[nodiscard]] bool has_ended(const Running& running) const;
  /// Milliseconds from the start to the end of each chunk, ascending.
  [[nodiscard]] Result<std::vector<double>> chunk_ends_ms(const Running& running) const;

  /// Nanoseconds that `turns` exchanges of flags between two GPUs take.
  Result<double> time_turns(int leader, int other, int turns);
  /// Nanoseconds that a GPU takes to read `steps` words of memory, each after the one before.
  Result<double> time_reads(int gpu, int memory, int steps);

  /// A GPU and a node have room that flows read and room that they write.
  enum class Side { kRead, kWritten };
  static constexpr std::size_t kMostWords = std::size_t{1} << 18;
  Status put(const GpuPlace& place, Side side, std::span<const std::uint32_t> words);
  Result<std::vector<std::uint32_t>> get(const GpuPlace& place, Side side, std::size_t words);

 private:
  struct Memory;
  explicit CudaRig(Os& os);

  Status add_gpu(const std::shared_ptr<const cuda::Driver>& driver,
                 const cuda::DeviceFacts& device);
  Status load_kernels(Gpu& gpu);
  Status add_memory(int node);
  Status make_gate();
  void enable_peers(const cuda::Driver& driver);
  Status fill_buffers();
  Status try_kernels();

  /// The GPU that a flow's work is queued on.
  [[nodiscard]] int executor(const GpuFlow& flow) const;
  /// Where `gpu` finds a place's room.
  [[nodiscard]] cuda::DeviceAddress address(const GpuPlace& place, Side side, int gpu) const;
  [[nodiscard]] std::byte* host_address(const GpuPlace& place, Side side) const;
  Status copy_chunk(const GpuFlow& flow, std::size_t bytes, Gpu& gpu, cuda::StreamHandle stream);
  Status launch(Gpu& gpu, cuda::FunctionHandle function, unsigned blocks, unsigned threads,
                cuda::StreamHandle stream, std::span<void*> parameters);
  Result<cuda::StreamHandle> stream(Gpu& gpu, std::size_t number);
  Result<cuda::EventHandle> event(Gpu& gpu);
  Status drain(Gpu& gpu, cuda::StreamHandle stream);
  Status write(Gpu& gpu, cuda::DeviceAddress to, std::span<const std::byte> bytes);
  Status read(Gpu& gpu, cuda::DeviceAddress from, std::span<std::byte> bytes);
  Result<double> result_of(Gpu& gpu, cuda::DeviceAddress result);

  Os& os_;
  std::shared_ptr<const cuda::Driver> driver_;
  std::vector<std::unique_ptr<Gpu>> gpu_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::unique_ptr<Memory> gate_;  ///< a word that streams wait for, then room for results
  std::uint32_t gate_value_ = 0;
  std::size_t flag_line_ = 0;
  std::vector<BenchGpu> names_;
  std::vector<int> node_numbers_;
  std::vector<cuda::DeviceFacts> devices_;
  std::vector<std::vector<bool>> access_;  ///< [gpu][peer]
  std::vector<std::string> notes_;
  Status stuck_;
};

}  // namespace topocoll
