// A libcuda.so without a GPU. What is queued happens at once; time is what copies would take at
// fixed rates: 50 GB/s between host and device, 400 by copy engines between devices, 300 by stores,
// 200 by loads. An exchange of flags takes 1 us each way, a read of host memory 700 ns. Copies of
// more than 1 MiB take time and move nothing.
#include "probe/fake_cuda.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/cuda/driver_abi.h"

using namespace topocoll::cuda;  // NOLINT: this file is that interface
using topocoll::testing::FakeCuda;

namespace topocoll::cuda {

struct ContextObject {
  int device = 0;
};
struct StreamObject {
  double ms = 0;
  long queried = 0;
};
struct EventObject {
  double ms = 0;
  StreamObject* stream = nullptr;
  long queried = 0;
};
struct ModuleObject {};
struct FunctionObject {
  std::string name;
};

}  // namespace topocoll::cuda

extern "C" FakeCuda fake_cuda_state;
FakeCuda fake_cuda_state;

namespace {

FakeCuda& fake = fake_cuda_state;
constexpr Return kUnknownError = 999;
constexpr Return kInvalidValue = 1;
constexpr Return kInvalidContext = 201;
constexpr std::size_t kMoved = std::size_t{1} << 20;

ContextObject contexts[16] = {{0}, {1}, {2},  {3},  {4},  {5},  {6},  {7},
                              {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};
thread_local std::vector<ContextObject*> current;

struct Allocation {
  std::size_t bytes = 0;
  int device = 0;
};
std::map<DeviceAddress, Allocation> allocations;

int device_of(DeviceAddress address) {
  const auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return -1;
  const auto& [start, allocation] = *std::prev(after);
  return address < start + allocation.bytes ? allocation.device : -1;
}

int self() { return current.empty() ? -1 : current.back()->device; }
bool is_broken(const char* function, Device device) {
  if (fake.broken != function) return false;
  if (fake.broken_device >= 0 && fake.broken_device != device) return false;
  return fake.works-- <= 0;
}
/// A function that belongs to the current context.
Return call(const char* function) {
  if (current.empty()) return kInvalidContext;
  return is_broken(function, self()) ? kUnknownError : kSuccess;
}
std::byte* memory(DeviceAddress address) { return reinterpret_cast<std::byte*>(address); }

Return copy(std::byte* to, const std::byte* from, std::size_t bytes, double gbps,
            StreamHandle stream, bool between_devices) {
  if (self() == fake.slow_device) gbps /= 2;
  stream->ms += static_cast<double>(bytes) / (gbps * 1e6);
  if (bytes > kMoved || (between_devices && fake.loses_copies)) return kSuccess;
  std::memcpy(to, from, bytes);
  if (between_devices && fake.lies_at_byte >= 0) to[fake.lies_at_byte] ^= std::byte{1};
  return kSuccess;
}

template <class T>
T parameter(void** parameters, int i) {
  T value;
  std::memcpy(&value, parameters[i], sizeof value);
  return value;
}

void answer(DeviceAddress result, std::uint64_t ns) {
  if (fake.answer_ns >= 0) ns = static_cast<std::uint64_t>(fake.answer_ns);
  std::memcpy(memory(result), &ns, sizeof ns);
}

}  // namespace

extern "C" {

Return cuInit(unsigned) {
  allocations.clear();  // of a bench that hangs
  return fake.init;
}
Return cuGetErrorString(Return code, const char** text) {
  static thread_local std::string words;
  words = "fake error " + std::to_string(code);
  *text = words.c_str();
  return kSuccess;
}
Return cuDeviceGetCount(int* count) {
  if (is_broken("cuDeviceGetCount", -1)) return kUnknownError;
  *count = fake.devices;
  return kSuccess;
}
Return cuDeviceGet(Device* device, int ordinal) {
  if (is_broken("cuDeviceGet", ordinal)) return kUnknownError;
  *device = ordinal;
  return kSuccess;
}
Return cuDeviceGetPCIBusId(char* text, int bytes, Device device) {
  if (is_broken("cuDeviceGetPCIBusId", device)) return kUnknownError;
  const std::string own = "00000000:4" + std::string(1, "EF0123456789ABCD"[device]) + ":00.0";
  const std::string& id = fake.bus_id.empty() ? own : fake.bus_id;
  if (static_cast<std::size_t>(bytes) <= id.size()) return kUnknownError;
  std::memcpy(text, id.c_str(), id.size() + 1);
  return kSuccess;
}
Return cuDeviceGetUuid(Uuid* uuid, Device device) {
  if (is_broken("cuDeviceGetUuid", device)) return kUnknownError;
  std::memset(uuid->bytes, device, sizeof uuid->bytes);
  return kSuccess;
}
Return cuDeviceGetAttribute(int* value, int attribute, Device device) {
  if (is_broken("cuDeviceGetAttribute", device)) return kUnknownError;
  *value = attribute == kMultiprocessors ? fake.multiprocessors
           : attribute == kMajor         ? 9
           : attribute == kMinor         ? 0
                                         : 1;
  return kSuccess;
}
Return cuDeviceCanAccessPeer(int* can, Device device, Device) {
  if (is_broken("cuDeviceCanAccessPeer", device)) return kUnknownError;
  *can = fake.peers ? 1 : 0;
  return kSuccess;
}
Return cuDevicePrimaryCtxRetain(ContextHandle* context, Device device) {
  if (is_broken("cuDevicePrimaryCtxRetain", device)) return kUnknownError;
  *context = &contexts[device];
  ++fake.alive;
  return kSuccess;
}
Return cuDevicePrimaryCtxRelease_v2(Device) {
  --fake.alive;
  return is_broken("cuDevicePrimaryCtxRelease", self()) ? kUnknownError : kSuccess;
}
Return cuCtxPushCurrent_v2(ContextHandle context) {
  if (is_broken("cuCtxPushCurrent", context->device)) return kUnknownError;
  current.push_back(context);
  return kSuccess;
}
Return cuCtxPopCurrent_v2(ContextHandle* context) {
  *context = current.back();
  current.pop_back();
  return kSuccess;
}
Return cuCtxEnablePeerAccess(ContextHandle, unsigned) {
  if (const Return code = call("cuCtxEnablePeerAccess"); code != kSuccess) return code;
  return kSuccess;
}

Return cuMemAlloc_v2(DeviceAddress* address, std::size_t bytes) {
  if (const Return code = call("cuMemAlloc"); code != kSuccess) return code;
  std::size_t used = 0;
  for (const auto& [start, allocation] : allocations) {
    if (allocation.device == self()) used += allocation.bytes;
  }
  if (self() == fake.full_device || used + bytes > fake.free_bytes) return kOutOfMemory;
  void* const made = std::calloc(bytes, 1);
  if (made == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<DeviceAddress>(made);
  allocations[*address] = {bytes, self()};
  ++fake.alive;
  return kSuccess;
}
Return cuMemFree_v2(DeviceAddress address) {
  allocations.erase(address);
  std::free(reinterpret_cast<void*>(address));
  --fake.alive;
  return is_broken("cuMemFree", self()) ? kUnknownError : kSuccess;
}
Return cuMemHostRegister_v2(void*, std::size_t, unsigned) {
  if (const Return code = call("cuMemHostRegister"); code != kSuccess) return code;
  ++fake.alive;
  return kSuccess;
}
Return cuMemHostUnregister(void*) {
  --fake.alive;
  return is_broken("cuMemHostUnregister", self()) ? kUnknownError : kSuccess;
}
Return cuMemHostGetDevicePointer_v2(DeviceAddress* address, void* memory_of_host, unsigned) {
  if (const Return code = call("cuMemHostGetDevicePointer"); code != kSuccess) return code;
  *address = reinterpret_cast<DeviceAddress>(memory_of_host);
  return kSuccess;
}

Return cuMemcpyHtoDAsync_v2(DeviceAddress to, const void* from, std::size_t bytes,
                            StreamHandle stream) {
  if (const Return code = call("cuMemcpyHtoDAsync"); code != kSuccess) return code;
  return copy(memory(to), static_cast<const std::byte*>(from), bytes, 50, stream, false);
}
Return cuMemcpyDtoHAsync_v2(void* to, DeviceAddress from, std::size_t bytes, StreamHandle stream) {
  if (const Return code = call("cuMemcpyDtoHAsync"); code != kSuccess) return code;
  return copy(static_cast<std::byte*>(to), memory(from), bytes, 50, stream, false);
}
Return cuMemcpyPeerAsync(DeviceAddress to, ContextHandle, DeviceAddress from, ContextHandle,
                         std::size_t bytes, StreamHandle stream) {
  if (const Return code = call("cuMemcpyPeerAsync"); code != kSuccess) return code;
  return copy(memory(to), memory(from), bytes, 400, stream, true);
}

Return cuStreamCreate(StreamHandle* stream, unsigned) {
  if (const Return code = call("cuStreamCreate"); code != kSuccess) return code;
  *stream = new StreamObject;
  ++fake.alive;
  return kSuccess;
}
Return cuStreamDestroy_v2(StreamHandle stream) {
  delete stream;
  --fake.alive;
  return is_broken("cuStreamDestroy", self()) ? kUnknownError : kSuccess;
}
Return cuStreamQuery(StreamHandle stream) {
  if (const Return code = call("cuStreamQuery"); code != kSuccess) return code;
  ++stream->queried;
  return fake.never_ends ? kNotReady : kSuccess;
}
Return cuStreamWaitValue32_v2(StreamHandle, DeviceAddress address, std::uint32_t value, unsigned) {
  if (const Return code = call("cuStreamWaitValue32"); code != kSuccess) return code;
  std::uint32_t there = 0;
  std::memcpy(&there, memory(address), sizeof there);
  if (there < value) ++fake.held;
  return kSuccess;
}

Return cuEventCreate(EventHandle* event, unsigned) {
  if (const Return code = call("cuEventCreate"); code != kSuccess) return code;
  *event = new EventObject;
  ++fake.alive;
  return kSuccess;
}
Return cuEventDestroy_v2(EventHandle event) {
  delete event;
  --fake.alive;
  return is_broken("cuEventDestroy", self()) ? kUnknownError : kSuccess;
}
Return cuEventRecord(EventHandle event, StreamHandle stream) {
  if (const Return code = call("cuEventRecord"); code != kSuccess) return code;
  *event = {stream->ms, stream, stream->queried};
  return kSuccess;
}
/// Runs until somebody asks for its stream.
Return cuEventQuery(EventHandle event) {
  if (const Return code = call("cuEventQuery"); code != kSuccess) return code;
  return event->stream->queried > event->queried ? kSuccess : kNotReady;
}
Return cuEventElapsedTime(float* milliseconds, EventHandle start, EventHandle end) {
  if (const Return code = call("cuEventElapsedTime"); code != kSuccess) return code;
  *milliseconds = static_cast<float>((end->ms - start->ms) * fake.clock);
  return kSuccess;
}

Return cuModuleLoadData(ModuleHandle* module, const void*) {
  if (const Return code = call("cuModuleLoadData"); code != kSuccess) return code;
  *module = new ModuleObject;
  ++fake.alive;
  return kSuccess;
}
Return cuModuleUnload(ModuleHandle module) {
  delete module;
  --fake.alive;
  return is_broken("cuModuleUnload", self()) ? kUnknownError : kSuccess;
}
Return cuModuleGetFunction(FunctionHandle* function, ModuleHandle, const char* name) {
  if (const Return code = call("cuModuleGetFunction"); code != kSuccess) return code;
  static std::map<std::string, FunctionObject> functions;
  functions[name].name = name;
  *function = &functions[name];
  return kSuccess;
}
Return cuLaunchKernel(FunctionHandle function, unsigned blocks, unsigned, unsigned, unsigned,
                      unsigned, unsigned, unsigned, StreamHandle stream, void** parameters,
                      void**) {
  if (const Return code = call("cuLaunchKernel"); code != kSuccess) return code;
  if (blocks == 0) return kInvalidValue;
  if (function->name == "topocoll_copy") {
    const auto to = parameter<DeviceAddress>(parameters, 0);
    const auto from = parameter<DeviceAddress>(parameters, 1);
    const std::size_t bytes = parameter<std::size_t>(parameters, 2) * 16;
    const bool loads = device_of(to) == self();
    const bool between =
        device_of(to) != device_of(from) && device_of(to) >= 0 && device_of(from) >= 0;
    return copy(memory(to), memory(from), bytes, loads ? 200 : 300, stream, between);
  }
  if (function->name == "topocoll_turns") {
    answer(parameter<DeviceAddress>(parameters, 6),
           parameter<std::uint32_t>(parameters, 4) * 2000UL);
  } else {
    answer(parameter<DeviceAddress>(parameters, 3),
           parameter<std::uint32_t>(parameters, 2) * 700UL);
  }
  return kSuccess;
}

}  // extern "C"
