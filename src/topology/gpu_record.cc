#include "topology/gpu_record.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>

#include "topology/checked_json.h"
#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr JsonLimits kLimits{64U << 10, 4096, 4};
constexpr std::size_t kMaxTextBytes = 256;
constexpr std::size_t kMaxLinks = 64;
constexpr std::size_t kMaxReasons = 32;
constexpr std::size_t kMaxGpus = 1024;
constexpr int kMaxNumber = 1'000'000;
constexpr double kMaxGbps = 1e6;

/// The fields that are numbers, with their names in a file.
template <class Gpu, class Visit>
void each_number(Gpu& gpu, Visit visit) {
  visit("pcie_generation", gpu.pcie_generation);
  visit("pcie_width", gpu.pcie_width);
  visit("max_pcie_generation", gpu.max_pcie_generation);
  visit("max_pcie_width", gpu.max_pcie_width);
  visit("pcie_replays", gpu.pcie_replays);
  visit("temperature_c", gpu.temperature_c);
  visit("utilization_percent", gpu.utilization_percent);
  visit("ecc_corrected", gpu.ecc_corrected);
  visit("ecc_uncorrected", gpu.ecc_uncorrected);
}

template <class Link, class Visit>
void each_counter(Link& link, Visit visit) {
  visit("replays", link.replays);
  visit("recoveries", link.recoveries);
  visit("crc_errors", link.crc_errors);
}

template <class T>
void append(std::string_view key, const std::optional<T>& value, std::string& text) {
  if (value) fmt::format_to(std::back_inserter(text), ", \"{}\": {}", key, *value);
}

void append(std::string_view key, const std::string& value, std::string& text) {
  if (!value.empty()) {
    fmt::format_to(std::back_inserter(text), ", \"{}\": {}", key, json_quote(value));
  }
}

void read(const JsonView& view, std::string_view key, std::optional<int>& value) {
  if (view.has(key)) value = static_cast<int>(view[key].integer(0, kMaxNumber));
}

void read(const JsonView& view, std::string_view key, std::optional<std::uint64_t>& value) {
  if (view.has(key)) value = view[key].natural(UINT64_MAX);
}

void read(const JsonView& view, std::string_view key, std::string& value) {
  if (view.has(key)) value = view[key].text(kMaxTextBytes);
}

void check_bdf(const JsonView& view, const std::string& bdf) {
  if (canonical_bdf(bdf) != bdf || bdf.empty()) {
    view.fail("expected a PCI address such as \"0000:4e:00.0\", found " + json_quote(bdf));
  }
}

NvmlLink read_link(const JsonView& view) {
  view.members({"number", "active", "version", "remote_bdf", "remote_kind", "replays", "recoveries",
                "crc_errors"});
  NvmlLink link;
  link.number = static_cast<int>(view["number"].integer(0, kMaxNumber));
  link.active = view["active"].boolean();
  read(view, "version", link.version);
  read(view, "remote_bdf", link.remote_bdf);
  if (!link.remote_bdf.empty()) check_bdf(view["remote_bdf"], link.remote_bdf);
  read(view, "remote_kind", link.remote_kind);
  each_counter(link, [&](std::string_view key, auto& value) { read(view, key, value); });
  return link;
}

}  // namespace

std::string gpu_to_json(const NvmlDevice& gpu) {
  std::string text = fmt::format("{{\"bdf\": {}", json_quote(gpu.bdf));
  append("name", gpu.name, text);
  append("link_gbps", gpu.link_gbps, text);
  each_number(gpu, [&](std::string_view key, const auto& value) { append(key, value, text); });
  std::string reasons;
  for (const std::string& reason : gpu.throttled_by) {
    reasons += (reasons.empty() ? "" : ", ") + json_quote(reason);
  }
  text += ", \"throttled_by\": [" + reasons + "]";
  std::string links;
  for (const NvmlLink& link : gpu.links) {
    links += fmt::format("{}\n {{\"number\": {}, \"active\": {}", links.empty() ? "" : ",",
                         link.number, link.active);
    append("version", link.version, links);
    append("remote_bdf", link.remote_bdf, links);
    append("remote_kind", link.remote_kind, links);
    each_counter(link, [&](std::string_view key, const auto& value) { append(key, value, links); });
    links += '}';
  }
  return text + ",\n\"links\": [" + links + "]}\n";
}

Result<NvmlDevice> gpu_from_json(std::string_view text, std::string_view what) {
  const auto json = parse_json(text, what, kLimits);
  if (!json.ok()) return json.status();
  JsonErrors errors{std::string(what)};
  const JsonView view(*json, errors);
  view.members({"bdf", "name", "link_gbps", "pcie_generation", "pcie_width", "max_pcie_generation",
                "max_pcie_width", "pcie_replays", "temperature_c", "utilization_percent",
                "ecc_corrected", "ecc_uncorrected", "throttled_by", "links"});
  NvmlDevice gpu;
  gpu.bdf = view["bdf"].text(kMaxTextBytes);
  check_bdf(view["bdf"], gpu.bdf);
  read(view, "name", gpu.name);
  if (view.has("link_gbps")) gpu.link_gbps = view["link_gbps"].number(0, kMaxGbps);
  each_number(gpu, [&](std::string_view key, auto& value) { read(view, key, value); });
  const JsonView reasons = view["throttled_by"];
  for (std::size_t i = 0, n = reasons.array(kMaxReasons); errors.ok() && i < n; ++i) {
    gpu.throttled_by.push_back(reasons.at(i).text(kMaxTextBytes));
  }
  const JsonView links = view["links"];
  for (std::size_t i = 0, n = links.array(kMaxLinks); errors.ok() && i < n; ++i) {
    gpu.links.push_back(read_link(links.at(i)));
  }
  if (!errors.ok()) return errors.status();
  return gpu;
}

Result<NvmlReport> recorded_gpus(const SysfsRoot& root) {
  NvmlReport report;
  const auto names = root.list(kRecordedGpus);
  if (names.size() > kMaxGpus) {
    return Status(Cause::kInvalidArgument, fmt::format("{}: {} GPUs, {} are allowed", kRecordedGpus,
                                                       names.size(), kMaxGpus));
  }
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", kRecordedGpus, name);
    const auto text = root.bytes(path);
    if (!text) return Status(Cause::kInvalidArgument, path + ": cannot be read");
    auto gpu = gpu_from_json(*text, path);
    if (!gpu.ok()) return gpu.status();
    // So that no GPU is described twice.
    if (gpu->bdf != name) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("{}: describes the GPU {}, and has another name", path, gpu->bdf));
    }
    report.devices.push_back(std::move(*gpu));
  }
  return report;
}

}  // namespace topocoll
