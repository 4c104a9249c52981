// The part of the CUDA driver's binary interface that is used: types, numbers and functions as the
// driver has them. Functions are looked up by name in the library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace topocoll::cuda {

/// 0 is success.
using Return = int;
using Device = int;
using ContextHandle = struct ContextObject*;
using StreamHandle = struct StreamObject*;
using EventHandle = struct EventObject*;
using ModuleHandle = struct ModuleObject*;
using FunctionHandle = struct FunctionObject*;
using DeviceAddress = unsigned long long;
struct Uuid {
  unsigned char bytes[16];
};

inline constexpr Return kSuccess = 0;
inline constexpr Return kOutOfMemory = 2;
inline constexpr Return kNoDevice = 100;
inline constexpr Return kNotReady = 600;
inline constexpr Return kPeerAccessAlreadyEnabled = 704;
inline constexpr Return kNotSupported = 801;

/// Attributes of a device.
inline constexpr int kMultiprocessors = 16;
inline constexpr int kMajor = 75;
inline constexpr int kMinor = 76;
inline constexpr int kGpuDirectRdma = 116;

inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kDefaultEvent = 0;
/// Every context may use the memory, and kernels see it.
inline constexpr unsigned kRegisterPortable = 1;
inline constexpr unsigned kRegisterMapped = 2;
inline constexpr unsigned kWaitAtLeast = 0;

/// The functions, by the names in the library that stand beside them in driver.cc.
struct DriverApi {
  Return (*init)(unsigned flags);
  Return (*error_string)(Return code, const char** text);
  Return (*device_count)(int* count);
  Return (*device_get)(Device* device, int ordinal);
  Return (*device_pci_bus_id)(char* text, int bytes, Device device);
  Return (*device_uuid)(Uuid* uuid, Device device);
  Return (*device_attribute)(int* value, int attribute, Device device);
  Return (*can_access_peer)(int* can, Device device, Device peer);
  Return (*context_retain)(ContextHandle* context, Device device);
  Return (*context_release)(Device device);
  Return (*context_push)(ContextHandle context);
  Return (*context_pop)(ContextHandle* context);
  Return (*enable_peer_access)(ContextHandle peer, unsigned flags);
  Return (*memory_allocate)(DeviceAddress* address, std::size_t bytes);
  Return (*memory_free)(DeviceAddress address);
  Return (*host_register)(void* memory, std::size_t bytes, unsigned flags);
  Return (*host_unregister)(void* memory);
  Return (*host_address)(DeviceAddress* address, void* memory, unsigned flags);
  Return (*copy_to_device)(DeviceAddress to, const void* from, std::size_t bytes,
                           StreamHandle stream);
  Return (*copy_to_host)(void* to, DeviceAddress from, std::size_t bytes, StreamHandle stream);
  Return (*copy_peer)(DeviceAddress to, ContextHandle to_context, DeviceAddress from,
                      ContextHandle from_context, std::size_t bytes, StreamHandle stream);
  Return (*stream_create)(StreamHandle* stream, unsigned flags);
  Return (*stream_destroy)(StreamHandle stream);
  Return (*stream_query)(StreamHandle stream);
  Return (*stream_wait_value)(StreamHandle stream, DeviceAddress address, std::uint32_t value,
                              unsigned flags);
  Return (*event_create)(EventHandle* event, unsigned flags);
  Return (*event_destroy)(EventHandle event);
  Return (*event_record)(EventHandle event, StreamHandle stream);
  Return (*event_query)(EventHandle event);
  Return (*event_elapsed_ms)(float* milliseconds, EventHandle start, EventHandle end);
  Return (*module_load)(ModuleHandle* module, const void* image);
  Return (*module_unload)(ModuleHandle module);
  Return (*module_function)(FunctionHandle* function, ModuleHandle module, const char* name);
  Return (*launch)(FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   StreamHandle stream, void** parameters, void** extra);
};

}  // namespace topocoll::cuda
