#include "topology/pci.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace topocoll {
namespace {

constexpr double kMaxSpeedGts = 1024;

bool is_hex(std::string_view text, std::size_t least, std::size_t most) {
  return text.size() >= least && text.size() <= most &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

unsigned hex_value(std::string_view text) {
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

}  // namespace

// The device may exceed PCI's 31: "fffffff:ff:ff.0" is an NVSwitch that a virtual machine cannot
// see.
std::string canonical_bdf(std::string_view text) {
  if (text.size() > 32) return "";
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (std::count(lower.begin(), lower.end(), ':') == 1) lower = "0000:" + lower;
  const std::string_view view = lower;
  const std::size_t first = view.find(':');
  const std::size_t dot = view.rfind('.');
  if (first == view.npos || dot == view.npos || dot != first + 6) return "";
  const std::string_view domain = view.substr(0, first);
  const std::string_view bus = view.substr(first + 1, 2);
  const std::string_view device = view.substr(first + 4, 2);
  const std::string_view function = view.substr(dot + 1);
  if (!is_hex(domain, 1, 8) || !is_hex(bus, 2, 2) || view[first + 3] != ':' ||
      !is_hex(device, 2, 2) || !is_hex(function, 1, 1) || hex_value(function) > 7) {
    return "";
  }
  return fmt::format("{:04x}:{}:{}.{}", hex_value(domain), bus, device, function);
}

std::optional<double> parse_pci_speed(std::string_view text, bool& known) {
  known = true;
  if (text.empty() || text.substr(0, 7) == "Unknown") return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  unit = unit.substr(std::min(unit.find_first_not_of(' '), unit.size()));
  if (error != std::errc() || (unit != "GT/s" && unit != "GT/s PCIe") || !std::isfinite(value) ||
      value < 0.1 || value > kMaxSpeedGts) {
    known = false;
    return std::nullopt;
  }
  return value;
}

NodeKind pci_kind(std::string_view device_class, std::string_view vendor, std::string_view device) {
  if (device_class.substr(0, 2) == "0x") device_class.remove_prefix(2);
  const std::string_view base = device_class.substr(0, 2);
  const std::string_view sub = device_class.substr(0, 4);
  if (sub == "0604") return NodeKind::kPciBridge;
  if (base == "02") return NodeKind::kNic;
  const bool gpu_vendor = vendor == "0x10de" || vendor == "0x1002" || vendor == "0x8086";
  // Consoles of management controllers are VGA devices too; few have such a vendor (ES1000, Rage
  // XL).
  if (vendor == "0x1002" && (device == "0x515e" || device == "0x4752")) return NodeKind::kPciDevice;
  if (base == "03" && (gpu_vendor || vendor.empty())) return NodeKind::kGpu;
  if (base == "12" && gpu_vendor) return NodeKind::kGpu;
  if (sub == "0680" && vendor == "0x10de") return NodeKind::kNvSwitch;
  return NodeKind::kPciDevice;
}

std::string pci_id(NodeKind kind, std::string_view bdf) {
  switch (kind) {
    case NodeKind::kPciBridge:
      return fmt::format("bridge:{}", bdf);
    case NodeKind::kPciDevice:
      return fmt::format("pci:{}", bdf);
    default:
      return fmt::format("{}:{}", name(kind), bdf);
  }
}

std::string link_words(const PciLink& link) {
  const std::string speed = link.speed_gts ? fmt::format("{:g} GT/s", *link.speed_gts) : "? GT/s";
  return speed + (link.width ? fmt::format(" x{}", *link.width) : " x?");
}

// An idle link lowers its speed to save power and raises it under load, but keeps its width.
std::optional<double> declared_bandwidth(const PciLink& link) {
  const auto speed = link.max_speed_gts ? link.max_speed_gts : link.speed_gts;
  const auto width = link.width ? link.width : link.max_width;
  if (!speed || !width) return std::nullopt;
  return pci_bandwidth_gbps(*speed, *width);
}

}  // namespace topocoll
