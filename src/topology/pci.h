// What all readers of PCI facts share: addresses, classes and the words for a link's speed.
// Thread rule: free functions. Failure rule: what cannot be read is nullopt or empty.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "topocoll/topology.h"

namespace topocoll {

/// "4e:00.0", "0000:4E:00.0" or "fffffff:ff:ff.0" in the kernel's form, lower case with at least
/// four digits of domain; empty if `text` is no PCI address.
std::string canonical_bdf(std::string_view text);

/// The kernel's word for a link's speed ("16.0 GT/s PCIe") or NCCL's ("16 GT/s"): 10^9 transfers
/// per second. `known` is false for words that are no speed at all, such as "-3 GT/s"; an empty
/// text and the kernel's "Unknown" are known and absent.
std::optional<double> parse_pci_speed(std::string_view text, bool& known);

/// What a function of this class ("0x030200": class, subclass, interface), vendor and device is.
NodeKind pci_kind(std::string_view device_class, std::string_view vendor,
                  std::string_view device = {});

/// "gpu:0000:4e:00.0": the id of a node on PCI.
std::string pci_id(NodeKind kind, std::string_view bdf);

/// What takes an address' place in the id of an NVSwitch that the driver hides from a virtual
/// machine, and the address that NCCL writes for it.
inline constexpr std::string_view kHiddenSwitch = "hidden";
inline constexpr std::string_view kHiddenSwitchBdf = "fffffff:ff:ff.0";

/// A link as it is now: "16 GT/s x8", with ? for what is not known.
std::string link_words(const PciLink& link);

/// The figure that a link's state stands for under load: its width now at the best speed of this
/// end.
std::optional<double> declared_bandwidth(const PciLink& link);

}  // namespace topocoll
