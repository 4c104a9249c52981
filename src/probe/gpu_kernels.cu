// What GPUs run to measure their links. Compiled for several architectures into one fat binary,
// which gpu_kernels() hands out; launched by cuda_bench.cc, which says what the arguments are.
#include <cstddef>
#include <cstdint>

namespace {

/// Seen by all of the machine, and ordered against nothing: a fence would be timed with it.
__device__ void store_flag(std::uint32_t* address, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

/// Neither from a register nor from this processor's cache.
__device__ std::uint32_t load_afresh(const std::uint32_t* address) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

}  // namespace

/// Copies `count` pieces of 16 bytes: stores where `to` lies elsewhere, loads where `from` does.
/// Four pieces of a thread are under way at once, and caches are told that none is used again.
extern "C" __global__ void topocoll_copy(uint4* to, const uint4* from, std::size_t count) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = __ldcs(from + i);
    const uint4 b = __ldcs(from + i + step);
    const uint4 c = __ldcs(from + i + 2 * step);
    const uint4 d = __ldcs(from + i + 3 * step);
    __stcs(to + i, a);
    __stcs(to + i + step, b);
    __stcs(to + i + 2 * step, c);
    __stcs(to + i + 3 * step, d);
  }
  for (; i < count; i += step) to[i] = from[i];
}

/// One of two threads, on two GPUs, that take turns: each polls its own flag and sets the other's.
/// The first `warm` turns are not timed. Writes the nanoseconds of the timed `turns`, or 0 if the
/// other did not answer within `patience_ns`.
extern "C" __global__ void topocoll_turns(std::uint32_t* mine, std::uint32_t* theirs, int leads,
                                          std::uint32_t warm, std::uint32_t turns,
                                          std::uint64_t patience_ns, std::uint64_t* result) {
  *result = 0;
  const std::uint64_t begun = nanoseconds();
  std::uint64_t start = begun;
  for (std::uint32_t turn = 1; turn <= warm + turns; ++turn) {
    if (leads != 0) store_flag(theirs, turn);
    for (std::uint32_t spins = 1; load_afresh(mine) < turn; ++spins) {
      if (spins % 1024 == 0 && nanoseconds() - begun > patience_ns) return;
    }
    if (leads == 0) store_flag(theirs, turn);
    if (turn == warm) start = nanoseconds();
  }
  *result = nanoseconds() - start;
}

/// Reads `steps` words one after the other, each the index of the next, the first `warm` untimed.
/// Writes the nanoseconds of the others. No word is UINT32_MAX: asking for it makes the clock wait.
extern "C" __global__ void topocoll_chase(const std::uint32_t* words, std::uint32_t warm,
                                          std::uint32_t steps, std::uint64_t* result) {
  *result = 0;
  std::uint32_t at = 0;
  for (std::uint32_t i = 0; i < warm; ++i) at = load_afresh(words + at);
  if (at == UINT32_MAX) return;
  const std::uint64_t start = nanoseconds();
  for (std::uint32_t i = 0; i < steps; ++i) at = load_afresh(words + at);
  if (at == UINT32_MAX) return;
  *result = nanoseconds() - start;
}
