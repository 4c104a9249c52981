// The part of NVML's binary interface that is used: types and numbers as the driver has them.
// Functions are looked up by name in the library.
#pragma once

namespace topocoll::nvml {

using Device = void*;
/// 0 is success.
using Return = int;

inline constexpr Return kSuccess = 0;
inline constexpr Return kInvalidArgument = 2;
inline constexpr Return kNotSupported = 3;

inline constexpr unsigned kTextBytes = 96;
inline constexpr int kGpuTemperature = 0;
inline constexpr int kVolatileCounter = 0;
inline constexpr int kCorrected = 0;
inline constexpr int kUncorrected = 1;
/// Error counters of an NVLink.
inline constexpr int kReplays = 0;
inline constexpr int kRecoveries = 1;
inline constexpr int kCrcFlits = 2;
/// Fields: 10^6 bytes per second and direction of an NVLink, whose number is the scope; and, with
/// drivers that lack that, of each active one.
inline constexpr unsigned kLinkSpeedField = 164;
inline constexpr unsigned kCommonSpeedField = 90;
/// No GPU has more.
inline constexpr unsigned kMaxLinks = 36;

/// Per cent of the last second or so.
struct Utilization {
  unsigned gpu;
  unsigned memory;
};

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_us;
  int type;  ///< 1: 32 bits without sign; others are wider
  Return status;
  union {
    unsigned ui;
    unsigned long long ull;
  } value;
};
static_assert(sizeof(FieldValue) == 40);

}  // namespace topocoll::nvml
