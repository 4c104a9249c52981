// PCI addresses as drivers of GPUs write them: with capitals, and up to eight digits of domain.
//
// Thread rule: a free function. Failure rule: none.
#pragma once

#include <algorithm>
#include <cctype>
#include <span>
#include <string>

namespace topocoll {

/// "00000000:4E:00.0", up to its terminator, as the kernel writes it: "0000:4e:00.0", the domain
/// with four digits or as many as it takes.
inline std::string kernel_bus_id(std::span<const char> bus_id) {
  std::string text(bus_id.begin(), std::find(bus_id.begin(), bus_id.end(), '\0'));
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  while (text.find(':') > 4 && text.starts_with('0')) text.erase(0, 1);
  return text;
}

}  // namespace topocoll
