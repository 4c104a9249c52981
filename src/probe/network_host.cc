#include "probe/network_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/options.h"
#include "probe/network_session.h"
#include "topology/sysfs.h"

namespace topocoll::network_probe {

Result<std::string> job_secret() {
  const auto options = Options::from_environment();
  if (!options.ok()) return options.status();
  if (options->job_secret.text.empty()) {
    return Status(Cause::kInvalidArgument,
                  "TOPOCOLL_JOB_SECRET is not set: choose a word and set it on every host, for "
                  "instance the output of: openssl rand -hex 16");
  }
  return options->job_secret.text;
}

Result<std::string> host_name() {
  const auto options = Options::from_environment();
  if (!options.ok()) return options.status();
  if (options->host_id) return *options->host_id;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') {
    return Status(Cause::kSystem, "this host has no name; TOPOCOLL_HOST_ID gives it one");
  }
  return std::string(name.data());
}

Result<std::vector<tcp::Interface>> chosen_interfaces(const std::vector<std::string>& names) {
  auto all = tcp::list_interfaces();
  if (!all.ok()) return all.status();
  if (names.empty()) {
    std::erase_if(*all, [](const tcp::Interface& i) { return i.loopback; });
    if (all->empty()) {
      return Status(Cause::kUnsupported, "no interface but the loopback is up and has an address");
    }
    if (all->size() > kMaxInterfaces) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("this machine has {} interfaces, {} can be probed: name those that "
                                "matter",
                                all->size(), kMaxInterfaces));
    }
    return all;
  }
  std::vector<tcp::Interface> chosen;
  for (const std::string& name : names) {
    bool found = false;
    for (const tcp::Interface& interface : *all) {
      tcp::Interface part = interface;
      if (interface.name != name) {
        std::erase_if(part.addresses, [&](const auto& a) { return numbers(a) != name; });
      }
      if (part.addresses.empty()) continue;
      found = true;
      chosen.push_back(std::move(part));
      break;
    }
    if (found) continue;
    std::string known;
    for (const tcp::Interface& i : *all) known += (known.empty() ? "" : ", ") + i.name;
    return Status(Cause::kInvalidArgument,
                  fmt::format("'{}' is no interface of this machine that is up, nor an address of "
                              "one; there are: {}",
                              name, known));
  }
  if (chosen.size() > kMaxInterfaces) {
    return Status(Cause::kInvalidArgument, fmt::format("{} interfaces are too many: {} at most",
                                                       chosen.size(), kMaxInterfaces));
  }
  return chosen;
}

std::uint32_t interface_mbit(const std::string& name) {
  const auto root = SysfsRoot::open("/");
  if (!root.ok()) return 0;
  const auto speed = root->number("/sys/class/net/" + name + "/speed");
  return speed && *speed > 0 && *speed < 100'000'000 ? static_cast<std::uint32_t>(*speed) : 0;
}

InterfaceFacts describe(const tcp::Interface& interface, std::uint16_t port) {
  InterfaceFacts facts;
  facts.name = to_text<16>(interface.name);
  const std::size_t count = std::min(interface.addresses.size(), kMaxAddresses);
  for (std::size_t i = 0; i < count; ++i) {
    facts.address[i] = to_text<48>(numbers(interface.addresses[i]));
  }
  facts.port = port;
  facts.mbit = interface_mbit(interface.name);
  return facts;
}

}  // namespace topocoll::network_probe
