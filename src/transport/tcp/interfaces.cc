#include "transport/tcp/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

namespace topocoll::tcp {
namespace {

/// What an address is good for, best first.
int preference(const Address& address) {
  return address.storage.ss_family == AF_INET ? 0 : address.is_link_local() ? 2 : 1;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return Status(Cause::kSystem, "listing network interfaces: " + error_text(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::map<std::string, Interface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    Address address;
    const int family = entry->ifa_addr->sa_family;
    if (family == AF_INET) {
      address.bytes = sizeof(sockaddr_in);
    } else if (family == AF_INET6) {
      address.bytes = sizeof(sockaddr_in6);
    } else {
      continue;
    }
    std::memcpy(&address.storage, entry->ifa_addr, address.bytes);
    Interface& interface = found[entry->ifa_name];
    interface.name = entry->ifa_name;
    interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    interface.addresses.push_back(address);
  }
  std::vector<Interface> result;
  for (auto& [name, interface] : found) {
    std::stable_sort(
        interface.addresses.begin(), interface.addresses.end(),
        [](const Address& a, const Address& b) { return preference(a) < preference(b); });
    result.push_back(std::move(interface));
  }
  return result;
}

}  // namespace topocoll::tcp
