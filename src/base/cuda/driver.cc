#include "base/cuda/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/cuda/bus_id.h"

namespace topocoll::cuda {
namespace {

constexpr int kMaxDevices = 1024;

std::string words(const Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    fmt::format_to(std::back_inserter(text), "{:02x}", uuid.bytes[i]);
  }
  return text;
}

/// What `make` creates in a context, with its owner.
template <class Handle, class Make>
Result<Owned<Handle>> make_in(const std::shared_ptr<const Context>& context, const char* function,
                              typename Owned<Handle>::Release release, Make make) {
  const Current current(*context);
  Handle handle{};
  if (Status s = context->driver().check(make(context->api(), handle), function); !s.ok()) return s;
  return Owned<Handle>(context, handle, release);
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::load(const std::string& library) {
  auto opened = Library::open(library);
  if (!opened.ok()) return opened.status().annotated("no CUDA driver");
  const std::shared_ptr<Driver> driver(new Driver(std::move(*opened)));
  if (Status s = driver->bind(); !s.ok()) return s.annotated(library);
  if (const Return code = driver->api_.init(0); code != kSuccess) {
    return Status(Cause::kUnsupported,
                  fmt::format("CUDA cannot be used: {}", driver->check(code, "cuInit").text()));
  }
  return std::shared_ptr<const Driver>(driver);
}

Status Driver::bind() {
  Status status;
  const auto find = [&](const char* name, auto*& f) { library_.bind(name, f, status); };
  find("cuInit", api_.init);
  find("cuGetErrorString", api_.error_string);
  find("cuDeviceGetCount", api_.device_count);
  find("cuDeviceGet", api_.device_get);
  find("cuDeviceGetPCIBusId", api_.device_pci_bus_id);
  find("cuDeviceGetUuid", api_.device_uuid);
  find("cuDeviceGetAttribute", api_.device_attribute);
  find("cuDeviceCanAccessPeer", api_.can_access_peer);
  find("cuDevicePrimaryCtxRetain", api_.context_retain);
  find("cuDevicePrimaryCtxRelease_v2", api_.context_release);
  find("cuCtxPushCurrent_v2", api_.context_push);
  find("cuCtxPopCurrent_v2", api_.context_pop);
  find("cuCtxEnablePeerAccess", api_.enable_peer_access);
  find("cuMemAlloc_v2", api_.memory_allocate);
  find("cuMemFree_v2", api_.memory_free);
  find("cuMemHostRegister_v2", api_.host_register);
  find("cuMemHostUnregister", api_.host_unregister);
  find("cuMemHostGetDevicePointer_v2", api_.host_address);
  find("cuMemcpyHtoDAsync_v2", api_.copy_to_device);
  find("cuMemcpyDtoHAsync_v2", api_.copy_to_host);
  find("cuMemcpyPeerAsync", api_.copy_peer);
  find("cuStreamCreate", api_.stream_create);
  find("cuStreamDestroy_v2", api_.stream_destroy);
  find("cuStreamQuery", api_.stream_query);
  find("cuStreamWaitValue32_v2", api_.stream_wait_value);
  find("cuEventCreate", api_.event_create);
  find("cuEventDestroy_v2", api_.event_destroy);
  find("cuEventRecord", api_.event_record);
  find("cuEventQuery", api_.event_query);
  find("cuEventElapsedTime", api_.event_elapsed_ms);
  find("cuModuleLoadData", api_.module_load);
  find("cuModuleUnload", api_.module_unload);
  find("cuModuleGetFunction", api_.module_function);
  find("cuLaunchKernel", api_.launch);
  return status.ok() ? status : status.annotated("the driver is too old");
}

Status Driver::check(Return code, const char* function) const {
  if (code == kSuccess) return {};
  const char* text = nullptr;
  if (api_.error_string(code, &text) != kSuccess) text = nullptr;
  const Cause cause = code == kOutOfMemory                         ? Cause::kResource
                      : code == kNoDevice || code == kNotSupported ? Cause::kUnsupported
                                                                   : Cause::kSystem;
  return {cause, fmt::format("{}: {}", function,
                             text != nullptr ? std::string(text) : fmt::format("error {}", code))};
}

Result<std::vector<DeviceFacts>> Driver::devices() const {
  int count = 0;
  if (Status s = check(api_.device_count(&count), "cuDeviceGetCount"); !s.ok()) return s;
  std::vector<DeviceFacts> devices;
  for (int ordinal = 0; ordinal < std::min(count, kMaxDevices); ++ordinal) {
    DeviceFacts facts;
    if (Status s = check(api_.device_get(&facts.device, ordinal), "cuDeviceGet"); !s.ok()) return s;
    char bus_id[32] = {};
    if (Status s = check(api_.device_pci_bus_id(bus_id, sizeof bus_id, facts.device),
                         "cuDeviceGetPCIBusId");
        !s.ok()) {
      return s;
    }
    facts.bdf = kernel_bus_id(bus_id);
    Uuid uuid{};
    if (api_.device_uuid(&uuid, facts.device) == kSuccess) facts.uuid = words(uuid);
    const auto attribute = [&](int which) {
      int value = 0;
      return api_.device_attribute(&value, which, facts.device) == kSuccess ? value : 0;
    };
    facts.multiprocessors = attribute(kMultiprocessors);
    facts.architecture = attribute(kMajor) * 10 + attribute(kMinor);
    facts.gpudirect_rdma = attribute(kGpuDirectRdma) != 0;
    devices.push_back(std::move(facts));
  }
  return devices;
}

bool Driver::can_access(Device device, Device peer) const {
  int can = 0;
  return api_.can_access_peer(&can, device, peer) == kSuccess && can != 0;
}

Result<std::shared_ptr<const Context>> Context::open(std::shared_ptr<const Driver> driver,
                                                     Device device) {
  ContextHandle handle = nullptr;
  if (Status s =
          driver->check(driver->api().context_retain(&handle, device), "cuDevicePrimaryCtxRetain");
      !s.ok()) {
    return s;
  }
  return std::shared_ptr<const Context>(new Context(std::move(driver), device, handle));
}

Context::~Context() { static_cast<void>(api().context_release(device_)); }

Result<Stream> make_stream(const std::shared_ptr<const Context>& context) {
  return make_in<StreamHandle>(
      context, "cuStreamCreate", &DriverApi::stream_destroy,
      [](const auto& api, auto& stream) { return api.stream_create(&stream, kNonBlockingStream); });
}

Result<Event> make_event(const std::shared_ptr<const Context>& context) {
  return make_in<EventHandle>(
      context, "cuEventCreate", &DriverApi::event_destroy,
      [](const auto& api, auto& event) { return api.event_create(&event, kDefaultEvent); });
}

Result<Module> load_module(const std::shared_ptr<const Context>& context, const void* image) {
  return make_in<ModuleHandle>(
      context, "cuModuleLoadData", &DriverApi::module_unload,
      [&](const auto& api, auto& module) { return api.module_load(&module, image); });
}

Result<DeviceMemory> allocate(const std::shared_ptr<const Context>& context, std::size_t bytes) {
  return make_in<DeviceAddress>(
      context, "cuMemAlloc", &DriverApi::memory_free,
      [&](const auto& api, auto& address) { return api.memory_allocate(&address, bytes); });
}

Result<HostRegistration> register_host(const std::shared_ptr<const Context>& context, void* memory,
                                       std::size_t bytes) {
  return make_in<void*>(context, "cuMemHostRegister", &DriverApi::host_unregister,
                        [&](const auto& api, auto& registered) {
                          registered = memory;
                          return api.host_register(memory, bytes,
                                                   kRegisterPortable | kRegisterMapped);
                        });
}

}  // namespace topocoll::cuda
