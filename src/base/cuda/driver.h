// Driver: CUDA's driver library, loaded at run time, and owners of what it hands out. Nothing of
// CUDA is needed to build.
//
// Thread rule: a Driver serves any thread; a Context and what was made in it belong to one thread
// at a time. A process that has loaded a Driver may not use it in a child after fork().
// Failure rule: no library, no driver or no device is kUnsupported; memory that cannot be had is
// kResource, everything else kSystem with the function's name and the driver's words.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/driver_abi.h"
#include "base/library.h"
#include "topocoll/status.h"

namespace topocoll::cuda {

inline constexpr const char* kDriverLibrary = "libcuda.so.1";

struct DeviceFacts {
  Device device = 0;
  std::string bdf;   ///< "0000:4e:00.0"
  std::string uuid;  ///< "GPU-..." as NVML writes it; of a part of a GPU (MIG) the whole one's
  int multiprocessors = 0;
  int architecture = 0;  ///< 90 for compute capability 9.0
  bool gpudirect_rdma = false;
};

class Driver {
 public:
  static Result<std::shared_ptr<const Driver>> load(const std::string& library = kDriverLibrary);

  [[nodiscard]] const DriverApi& api() const { return api_; }
  /// OK, or what a call of `function` that returned `code` means.
  [[nodiscard]] Status check(Return code, const char* function) const;
  /// The devices that this process may use (CUDA_VISIBLE_DEVICES), in the driver's order.
  [[nodiscard]] Result<std::vector<DeviceFacts>> devices() const;
  /// Whether kernels on `device` may use memory of `peer`.
  [[nodiscard]] bool can_access(Device device, Device peer) const;

 private:
  explicit Driver(Library library) : library_(std::move(library)) {}
  Status bind();

  Library library_;
  DriverApi api_{};
};

/// A device's primary context, which other users of CUDA in this process share.
class Context {
 public:
  static Result<std::shared_ptr<const Context>> open(std::shared_ptr<const Driver> driver,
                                                     Device device);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] const DriverApi& api() const { return driver_->api(); }
  [[nodiscard]] ContextHandle handle() const { return handle_; }

 private:
  Context(std::shared_ptr<const Driver> driver, Device device, ContextHandle handle)
      : driver_(std::move(driver)), device_(device), handle_(handle) {}

  std::shared_ptr<const Driver> driver_;
  Device device_;
  ContextHandle handle_;
};

/// Makes a context the calling thread's current one while this lives.
class Current {
 public:
  explicit Current(const Context& context) : api_(context.api()) {
    pushed_ = api_.context_push(context.handle()) == kSuccess;
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    ContextHandle popped = nullptr;
    if (pushed_) static_cast<void>(api_.context_pop(&popped));
  }

 private:
  const DriverApi& api_;
  bool pushed_ = false;
};

/// A stream, event, module, piece of memory or registration, let go of when this ends.
template <class Handle>
class Owned {
 public:
  using Release = Return (*DriverApi::*)(Handle);
  Owned() = default;
  Owned(std::shared_ptr<const Context> context, Handle handle, Release release)
      : context_(std::move(context)), handle_(handle), release_(release) {}
  Owned(Owned&& other) noexcept
      : context_(std::move(other.context_)), handle_(other.handle_), release_(other.release_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Owned() {
    if (!context_) return;
    const Current current(*context_);
    static_cast<void>((context_->api().*release_)(handle_));
  }
  [[nodiscard]] Handle get() const { return handle_; }

 private:
  std::shared_ptr<const Context> context_;
  Handle handle_{};
  Release release_ = nullptr;
};

using Stream = Owned<StreamHandle>;
using Event = Owned<EventHandle>;
using Module = Owned<ModuleHandle>;
using DeviceMemory = Owned<DeviceAddress>;
using HostRegistration = Owned<void*>;

Result<Stream> make_stream(const std::shared_ptr<const Context>& context);
Result<Event> make_event(const std::shared_ptr<const Context>& context);
/// `image`: a fat binary, that of an architecture, or PTX.
Result<Module> load_module(const std::shared_ptr<const Context>& context, const void* image);
Result<DeviceMemory> allocate(const std::shared_ptr<const Context>& context, std::size_t bytes);
/// Lets every device use [memory, memory + bytes) of this process; both on page borders.
Result<HostRegistration> register_host(const std::shared_ptr<const Context>& context, void* memory,
                                       std::size_t bytes);

}  // namespace topocoll::cuda
