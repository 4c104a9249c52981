#include "base/cuda/nvml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/cuda/bus_id.h"
#include "base/cuda/nvml_abi.h"
#include "base/library.h"

namespace topocoll {
namespace {

using nvml::Device;
using nvml::Return;

constexpr unsigned kMaxDevices = 1024;
/// What a hidden device is called.
constexpr const char* kHidden = "ffffffff:ff:ff";

constexpr std::array<std::pair<unsigned long long, const char*>, 7> kThrottleReasons = {
    {{0x4, "sw_power_cap"},
     {0x8, "hw_slowdown"},
     {0x10, "sync_boost"},
     {0x20, "sw_thermal"},
     {0x40, "hw_thermal"},
     {0x80, "hw_power_brake"},
     {0x2, "application_clocks"}}};

/// The loaded library, initialised while this lives.
class Nvml {
 public:
  static Result<std::unique_ptr<Nvml>> open(const std::string& name) {
    auto library = Library::open(name);
    if (!library.ok()) return library.status().annotated("no NVIDIA driver");
    auto nvml = std::unique_ptr<Nvml>(new Nvml(std::move(*library)));
    const Return code = nvml->call<>("nvmlInit_v2");
    if (code != nvml::kSuccess) {
      return Status(Cause::kUnsupported,
                    fmt::format("{} cannot be used: {}", name, nvml->words(code)));
    }
    nvml->initialised_ = true;
    return nvml;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (initialised_) static_cast<void>(call<>("nvmlShutdown"));
  }

  /// Calls a function by its name; one that an old driver lacks is not supported.
  template <class... A>
  Return call(const char* function, A... arguments) const {
    auto* const symbol = library_.find<Return(A...)>(function);
    return symbol == nullptr ? nvml::kNotSupported : symbol(arguments...);
  }

  [[nodiscard]] std::string words(Return code) const {
    auto* const symbol = library_.find<const char*(Return)>("nvmlErrorString");
    const char* text = symbol != nullptr ? symbol(code) : nullptr;
    return text != nullptr ? text : fmt::format("error {}", code);
  }

 private:
  explicit Nvml(Library library) : library_(std::move(library)) {}

  Library library_;
  bool initialised_ = false;
};

/// Empty if the driver hides it.
std::string kernel_bdf(const nvml::PciInfo& info) {
  std::string text = kernel_bus_id(info.bus_id);
  return text.starts_with(kHidden) ? "" : text;
}

class Reader {
 public:
  explicit Reader(const Nvml& library) : library_(library) {}

  Result<NvmlReport> take() {
    report_.driver = text("nvmlSystemGetDriverVersion");
    unsigned count = 0;
    const Return code = library_.call("nvmlDeviceGetCount_v2", &count);
    if (code != nvml::kSuccess) {
      return Status(Cause::kUnsupported, "GPUs cannot be listed: " + library_.words(code));
    }
    for (unsigned i = 0; i < std::min(count, kMaxDevices); ++i) read_device(i);
    return std::move(report_);
  }

 private:
  /// The value that `function` writes; nothing, and a note unless it is not supported, if it fails.
  template <class Value, class... A>
  std::optional<Value> value(const char* function, A... arguments) {
    Value result{};
    const Return code = library_.call(function, arguments..., &result);
    if (code == nvml::kSuccess) return result;
    note(function, code);
    return std::nullopt;
  }

  template <class... A>
  std::string text(const char* function, A... arguments) {
    char result[nvml::kTextBytes] = {};
    const Return code = library_.call(function, arguments..., &result[0], nvml::kTextBytes);
    if (code != nvml::kSuccess) {
      note(function, code);
      return "";
    }
    return {result, std::find(result, std::end(result), '\0')};
  }

  template <class... A>
  std::optional<int> small(const char* function, A... arguments) {
    const auto found = value<unsigned>(function, arguments...);
    return found && *found <= 1'000'000 ? std::optional(static_cast<int>(*found)) : std::nullopt;
  }

  template <class... A>
  std::optional<std::uint64_t> count(const char* function, A... arguments) {
    const auto found = value<unsigned long long>(function, arguments...);
    return found ? std::optional<std::uint64_t>(*found) : std::nullopt;
  }

  void note(const char* function, Return code) {
    if (code == nvml::kNotSupported) return;
    const std::string words = fmt::format("{}: {}: {}", where_, function, library_.words(code));
    if (std::find(report_.notes.begin(), report_.notes.end(), words) == report_.notes.end()) {
      report_.notes.push_back(words);
    }
  }

  void read_device(unsigned index) {
    where_ = fmt::format("GPU {}", index);
    Device device = nullptr;
    const Return code = library_.call("nvmlDeviceGetHandleByIndex_v2", index, &device);
    if (code != nvml::kSuccess) return note("nvmlDeviceGetHandleByIndex_v2", code);
    NvmlDevice gpu;
    if (const auto pci = value<nvml::PciInfo>("nvmlDeviceGetPciInfo_v3", device)) {
      gpu.bdf = kernel_bdf(*pci);
      where_ = "GPU " + gpu.bdf;
    }
    gpu.uuid = text("nvmlDeviceGetUUID", device);
    gpu.name = text("nvmlDeviceGetName", device);
    read_links(device, gpu);
    gpu.pcie_generation = small("nvmlDeviceGetCurrPcieLinkGeneration", device);
    gpu.pcie_width = small("nvmlDeviceGetCurrPcieLinkWidth", device);
    gpu.max_pcie_generation = small("nvmlDeviceGetMaxPcieLinkGeneration", device);
    gpu.max_pcie_width = small("nvmlDeviceGetMaxPcieLinkWidth", device);
    if (const auto n = value<unsigned>("nvmlDeviceGetPcieReplayCounter", device))
      gpu.pcie_replays = *n;
    gpu.temperature_c = small("nvmlDeviceGetTemperature", device, nvml::kGpuTemperature);
    if (const auto used = value<nvml::Utilization>("nvmlDeviceGetUtilizationRates", device)) {
      if (used->gpu <= 100) gpu.utilization_percent = static_cast<int>(used->gpu);
    }
    read_throttling(device, gpu);
    gpu.ecc_corrected =
        count("nvmlDeviceGetTotalEccErrors", device, nvml::kCorrected, nvml::kVolatileCounter);
    gpu.ecc_uncorrected =
        count("nvmlDeviceGetTotalEccErrors", device, nvml::kUncorrected, nvml::kVolatileCounter);
    report_.devices.push_back(std::move(gpu));
  }

  void read_throttling(Device device, NvmlDevice& gpu) {
    const auto reasons =
        value<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", device).value_or(0);
    for (const auto& [bit, name] : kThrottleReasons) {
      if ((reasons & bit) != 0) gpu.throttled_by.emplace_back(name);
    }
  }

  void read_links(Device device, NvmlDevice& gpu) {
    for (unsigned number = 0; number < nvml::kMaxLinks; ++number) {
      unsigned active = 0;
      const Return code = library_.call("nvmlDeviceGetNvLinkState", device, number, &active);
      if (code == nvml::kInvalidArgument) break;  // there are no more
      if (code == nvml::kNotSupported) continue;
      if (code != nvml::kSuccess) {
        note("nvmlDeviceGetNvLinkState", code);
        break;
      }
      NvmlLink link;
      link.number = static_cast<int>(number);
      link.active = active != 0;
      if (link.active) read_link(device, number, link);
      gpu.links.push_back(std::move(link));
    }
    const auto up = std::find_if(gpu.links.begin(), gpu.links.end(),
                                 [](const NvmlLink& link) { return link.active; });
    if (up == gpu.links.end()) return;
    gpu.link_gbps = speed(device, nvml::kLinkSpeedField, static_cast<unsigned>(up->number));
    if (!gpu.link_gbps) gpu.link_gbps = speed(device, nvml::kCommonSpeedField, 0);
  }

  std::optional<double> speed(Device device, unsigned which, unsigned scope) {
    nvml::FieldValue field{};
    field.field = which;
    field.scope = scope;
    const Return code = library_.call("nvmlDeviceGetFieldValues", device, 1, &field);
    if (code != nvml::kSuccess || field.status != nvml::kSuccess) return std::nullopt;
    const double megabytes =
        field.type == 1 ? field.value.ui : static_cast<double>(field.value.ull);
    return megabytes > 0 ? std::optional(megabytes / 1000) : std::nullopt;
  }

  void read_link(Device device, unsigned number, NvmlLink& link) {
    link.version = small("nvmlDeviceGetNvLinkVersion", device, number);
    if (const auto pci =
            value<nvml::PciInfo>("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, number)) {
      link.remote_bdf = kernel_bdf(*pci);
    }
    const auto kind = value<int>("nvmlDeviceGetNvLinkRemoteDeviceType", device, number);
    if (kind == 0) link.remote_kind = "gpu";
    if (kind == 1) link.remote_kind = "npu";
    if (kind == 2) link.remote_kind = "switch";
    constexpr const char* kCounter = "nvmlDeviceGetNvLinkErrorCounter";
    link.replays = count(kCounter, device, number, nvml::kReplays);
    link.recoveries = count(kCounter, device, number, nvml::kRecoveries);
    link.crc_errors = count(kCounter, device, number, nvml::kCrcFlits);
  }

  const Nvml& library_;
  std::string where_ = "NVML";
  NvmlReport report_;
};

}  // namespace

Result<NvmlReport> read_nvml(const std::string& library) {
  const auto opened = Nvml::open(library);
  if (!opened.ok()) return opened.status();
  return Reader(**opened).take();
}

}  // namespace topocoll
