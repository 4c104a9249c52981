// A benchmark of its own for what a probe of GPUs measures: nothing of topocoll is in it. It uses
// CUDA's runtime where the probe uses the driver, one kernel launch for many passes where the probe
// has a launch for each, buffers of 512 MiB, and clocks of processors for latencies.
//
//   nvcc -O3 -arch=native -o gpu_copy perf/micro/gpu_copy.cu && ./gpu_copy
//
// Prints one line for each figure: from, to, what, value (GB/s, 10^9 bytes per second, or ns); the
// value is the median of 9 runs. perf/compare_gpu_probe sets it beside a probe of the same machine.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr size_t kBytes = size_t{512} << 20;
constexpr size_t kHostBytes = size_t{128} << 20;
constexpr int kRuns = 9;
constexpr int kPasses = 4;
constexpr int kTurns = 2000;
constexpr int kReads = 2000;
constexpr int kFlagStride = 1056;  ///< words: each run has flags elsewhere

void check(cudaError_t code, const char* what, int line) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "gpu_copy: line %d: %s: %s\n", line, what, cudaGetErrorString(code));
  std::exit(1);
}
#define CHECK(call) check(call, #call, __LINE__)

__global__ void __launch_bounds__(1024) pass(float4* to, const float4* from, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 7 * step < count; i += 8 * step) {
    float4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = from[i + k * step];
#pragma unroll
    for (int k = 0; k < 8; ++k) to[i + k * step] = v[k];
  }
  for (; i < count; i += step) to[i] = from[i];
}

__global__ void ping(volatile unsigned* mine, volatile unsigned* theirs, bool first, int turns) {
  for (unsigned turn = 1; turn <= unsigned(turns); ++turn) {
    if (first) *theirs = turn;
    while (*mine < turn) {
    }
    if (!first) *theirs = turn;
  }
}

__global__ void walk(const volatile unsigned* words, int reads, unsigned* last) {
  unsigned at = 0;
  for (int i = 0; i < reads; ++i) at = words[at];
  *last = at;
}

struct Gpu {
  int index = 0;
  char* send = nullptr;
  char* receive = nullptr;
  unsigned* flag = nullptr;
  cudaStream_t stream{};
  cudaEvent_t start{};
  cudaEvent_t end{};
  int processors = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// `work` queues all passes on `gpu`'s stream.
template <class Work>
double gbps(const Gpu& gpu, size_t bytes, Work work) {
  std::vector<double> all;
  for (int run = 0; run < kRuns + 1; ++run) {
    CHECK(cudaSetDevice(gpu.index));
    CHECK(cudaEventRecord(gpu.start, gpu.stream));
    work();
    CHECK(cudaEventRecord(gpu.end, gpu.stream));
    CHECK(cudaEventSynchronize(gpu.end));
    CHECK(cudaGetLastError());
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, gpu.start, gpu.end));
    if (run > 0) all.push_back(double(bytes) * kPasses / (ms * 1e6));
  }
  return median(all);
}

/// Milliseconds of what `work` queues on `gpu`'s stream; `more` may queue on others after it.
template <class Work, class More>
double once_ms(const Gpu& gpu, Work work, More more) {
  CHECK(cudaSetDevice(gpu.index));
  CHECK(cudaEventRecord(gpu.start, gpu.stream));
  work();
  CHECK(cudaEventRecord(gpu.end, gpu.stream));
  more();
  CHECK(cudaSetDevice(gpu.index));
  CHECK(cudaEventSynchronize(gpu.end));
  CHECK(cudaGetLastError());
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, gpu.start, gpu.end));
  return ms;
}

double ping_ms(Gpu& a, Gpu& b, int at, int turns) {
  for (Gpu* g : {&a, &b}) {
    CHECK(cudaSetDevice(g->index));
    CHECK(cudaMemset(g->flag + at, 0, 4));
    CHECK(cudaDeviceSynchronize());
  }
  return once_ms(
      a, [&] { ping<<<1, 1, 0, a.stream>>>(a.flag + at, b.flag + at, true, turns); },
      [&] {
        CHECK(cudaSetDevice(b.index));
        ping<<<1, 1, 0, b.stream>>>(b.flag + at, a.flag + at, false, turns);
        CHECK(cudaStreamSynchronize(b.stream));
      });
}

/// Of one way: what three times the turns take longer than one time.
double ping_ns(Gpu& a, Gpu& b) {
  std::vector<double> all;
  for (int run = 0; run < kRuns + 1; ++run) {
    const int at = std::max(run - 1, 0) * kFlagStride;
    const double ms = ping_ms(a, b, at, 3 * kTurns) - ping_ms(a, b, at, kTurns);
    if (run > 0) all.push_back(ms * 1e6 / (2 * kTurns) / 2);
  }
  return median(all);
}

double read_ns(Gpu& gpu, unsigned* words) {
  std::vector<double> all;
  const auto ms = [&](int reads) {
    return once_ms(
        gpu, [&] { walk<<<1, 1, 0, gpu.stream>>>(words, reads, gpu.flag); }, [] {});
  };
  for (int run = 0; run < kRuns + 1; ++run) {
    const double longer = ms(3 * kReads) - ms(kReads);
    if (run > 0) all.push_back(longer * 1e6 / (2 * kReads));
  }
  return median(all);
}

void print(const std::string& from, const std::string& to, const char* what, double value) {
  std::printf("%s %s %s %.2f\n", from.c_str(), to.c_str(), what, value);
  std::fflush(stdout);
}

std::string bus_id(int gpu) {
  char text[32] = {};
  CHECK(cudaDeviceGetPCIBusId(text, sizeof text, gpu));
  return std::string("gpu:") + text;
}

/// A launch for each pass: within one, a cache may answer the second time.
void copy(const Gpu& at, char* to, const char* from, size_t bytes) {
  for (int i = 0; i < kPasses; ++i) {
    pass<<<at.processors, 1024, 0, at.stream>>>(reinterpret_cast<float4*>(to),
                                                reinterpret_cast<const float4*>(from), bytes / 16);
  }
}

void copy_engine(const Gpu& at, char* to, const char* from, size_t bytes) {
  for (int i = 0; i < kPasses; ++i) {
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, at.stream));
  }
}

}  // namespace

int main() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  std::vector<Gpu> gpus(count);
  for (int i = 0; i < count; ++i) {
    Gpu& g = gpus[i];
    g.index = i;
    CHECK(cudaSetDevice(i));
    CHECK(cudaMalloc(&g.send, kBytes));
    CHECK(cudaMalloc(&g.receive, kBytes));
    CHECK(cudaMemset(g.send, 0x5a + i, kBytes));
    CHECK(cudaMalloc(&g.flag, kRuns * kFlagStride * 4));
    CHECK(cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&g.start));
    CHECK(cudaEventCreate(&g.end));
    CHECK(cudaDeviceGetAttribute(&g.processors, cudaDevAttrMultiProcessorCount, i));
    for (int peer = 0; peer < count; ++peer) {
      int can = 0;
      CHECK(cudaDeviceCanAccessPeer(&can, i, peer));
      if (peer != i && can != 0) CHECK(cudaDeviceEnablePeerAccess(peer, 0));
    }
  }
  char* host = nullptr;
  CHECK(cudaHostAlloc(&host, 2 * kHostBytes, cudaHostAllocPortable | cudaHostAllocMapped));
  for (size_t i = 0; i < 2 * kHostBytes; ++i) host[i] = static_cast<char>(i * 31);
  unsigned* words = nullptr;
  CHECK(cudaHostAlloc(&words, 1 << 16, cudaHostAllocPortable | cudaHostAllocMapped));
  for (unsigned i = 0; i < 128; ++i) words[i * 64] = (i + 37) % 128 * 64;

  for (Gpu& a : gpus) {
    const std::string name = bus_id(a.index);
    for (Gpu& b : gpus) {
      if (&a == &b) continue;
      const std::string peer = bus_id(b.index);
      int can = 0;
      CHECK(cudaDeviceCanAccessPeer(&can, a.index, b.index));
      if (can == 0) continue;
      print(name, peer, "stores_gbps",
            gbps(a, kBytes, [&] { copy(a, b.receive, a.send, kBytes); }));
      print(name, peer, "loads_gbps", gbps(b, kBytes, [&] { copy(b, b.receive, a.send, kBytes); }));
      print(name, peer, "copy_engine_gbps",
            gbps(a, kBytes, [&] { copy_engine(a, b.receive, a.send, kBytes); }));
      print(name, peer, "latency_ns", ping_ns(a, b));
    }
    print("memory", name, "loads_gbps",
          gbps(a, kHostBytes, [&] { copy(a, a.receive, host, kHostBytes); }));
    print("memory", name, "copy_engine_gbps",
          gbps(a, kHostBytes, [&] { copy_engine(a, a.receive, host, kHostBytes); }));
    print(name, "memory", "stores_gbps",
          gbps(a, kHostBytes, [&] { copy(a, host + kHostBytes, a.send, kHostBytes); }));
    print(name, "memory", "copy_engine_gbps",
          gbps(a, kHostBytes, [&] { copy_engine(a, host + kHostBytes, a.send, kHostBytes); }));
    print("memory", name, "latency_ns", read_ns(a, words));
  }
  return 0;
}
