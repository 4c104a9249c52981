// A libnvidia-ml.so.1 without a driver: two GPUs, of which the first has three links (one is down)
// and the second is older.
#include "fake_nvml.h"

#include <cstdio>
#include <cstring>

#include "base/cuda/nvml_abi.h"

using topocoll::nvml::Device;
using topocoll::nvml::FieldValue;
using topocoll::nvml::PciInfo;
using topocoll::nvml::Return;
using topocoll::testing::FakeNvml;

extern "C" {
FakeNvml fake_nvml_state;
}

namespace {

constexpr Return kUnknownError = 999;

Return verdict(const char* function) {
  if (fake_nvml_state.unsupported.contains(function)) return topocoll::nvml::kNotSupported;
  if (fake_nvml_state.broken.contains(function)) return kUnknownError;
  return topocoll::nvml::kSuccess;
}

bool is_first(Device device) { return device == &fake_nvml_state; }

template <class T>
Return give(const char* function, T* target, T value) {
  const Return code = verdict(function);
  if (code == topocoll::nvml::kSuccess) *target = value;
  return code;
}

Return write(const char* function, char* target, unsigned bytes, const char* value) {
  const Return code = verdict(function);
  if (code == topocoll::nvml::kSuccess) std::snprintf(target, bytes, "%s", value);
  return code;
}

}  // namespace

extern "C" {

Return nvmlInit_v2() {
  if (fake_nvml_state.init == 0) ++fake_nvml_state.initialised;
  return fake_nvml_state.init;
}
Return nvmlShutdown() {
  --fake_nvml_state.initialised;
  return 0;
}
const char* nvmlErrorString(Return code) {
  if (code == 9) return "Driver Not Loaded";
  return code == kUnknownError ? "Unknown Error" : "Something";
}
Return nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return write(__func__, text, bytes, "580.1");
}
Return nvmlDeviceGetCount_v2(unsigned* count) { return give(__func__, count, 2U); }
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  return give<Device>(__func__, device,
                      index == 0 ? static_cast<void*>(&fake_nvml_state) : &fake_nvml_state.broken);
}
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
  return write(__func__, info->bus_id, sizeof info->bus_id,
               is_first(device) ? "00000000:4E:00.0" : "00010000:05:00.0");
}
Return nvmlDeviceGetUUID(Device device, char* text, unsigned bytes) {
  return write(__func__, text, bytes, is_first(device) ? "GPU-1" : "GPU-2");
}
Return nvmlDeviceGetName(Device, char* text, unsigned bytes) {
  return write(__func__, text, bytes, "Fake");
}
Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* active) {
  if (!is_first(device)) return topocoll::nvml::kNotSupported;
  if (link > 2) return topocoll::nvml::kInvalidArgument;
  return give(__func__, active, link == 1 ? 0U : 1U);
}
Return nvmlDeviceGetNvLinkVersion(Device, unsigned, unsigned* version) {
  return give(__func__, version, 4U);
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device, unsigned link, PciInfo* info) {
  const char* bdf = link == 0 ? "00000000:C3:00.0" : "00000000:C4:00.0";
  return write(__func__, info->bus_id, sizeof info->bus_id,
               fake_nvml_state.hide_remotes ? "FFFFFFFF:FF:FF.0" : bdf);
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device, unsigned, int* kind) {
  return give(__func__, kind, 2);
}
Return nvmlDeviceGetNvLinkErrorCounter(Device, unsigned link, int counter,
                                       unsigned long long* value) {
  return give(__func__, value, 10ULL * link + static_cast<unsigned long long>(counter));
}
Return nvmlDeviceGetUtilizationRates(Device, topocoll::nvml::Utilization* used) {
  *used = {12, 3};
  return verdict(__func__);
}
Return nvmlDeviceGetFieldValues(Device, int, FieldValue* field) {
  field->type = 1;
  const bool common = field->field == topocoll::nvml::kCommonSpeedField;
  const bool own = field->field == topocoll::nvml::kLinkSpeedField && field->scope == 0;
  const bool known = fake_nvml_state.common_speed ? common : own;
  field->status = known ? 0 : topocoll::nvml::kInvalidArgument;
  field->value.ui = 26562;
  return verdict(__func__);
}
Return nvmlDeviceGetCurrPcieLinkGeneration(Device, unsigned* value) {
  return give(__func__, value, 1U);
}
Return nvmlDeviceGetCurrPcieLinkWidth(Device, unsigned* value) { return give(__func__, value, 8U); }
Return nvmlDeviceGetMaxPcieLinkGeneration(Device, unsigned* value) {
  return give(__func__, value, 5U);
}
Return nvmlDeviceGetMaxPcieLinkWidth(Device, unsigned* value) { return give(__func__, value, 16U); }
Return nvmlDeviceGetPcieReplayCounter(Device, unsigned* value) { return give(__func__, value, 7U); }
Return nvmlDeviceGetTemperature(Device, int, unsigned* value) { return give(__func__, value, 41U); }
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device, unsigned long long* value) {
  return give(__func__, value, 0x1ULL | 0x4ULL | 0x40ULL);
}
Return nvmlDeviceGetTotalEccErrors(Device, int kind, int, unsigned long long* value) {
  return give(__func__, value, kind == 1 ? 2ULL : 5ULL);
}

}  // extern "C"
