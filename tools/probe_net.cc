#include "probe_net.h"

#include <fmt/format.h>

#include <cstdio>

#include "topo.h"
#include "topocoll/findings.h"

namespace topocoll::tools {
namespace {

using std::chrono::milliseconds;
using Text = Result<std::string>;

Text listen(const ProbeNetRequest& request) {
  auto listener = NetworkListener::start({request.on, static_cast<std::uint16_t>(request.port)});
  if (!listener.ok()) return listener.status();
  std::string text;
  for (const std::string& address : (*listener)->addresses()) {
    text += fmt::format("listening on {} for {} s\n", address, request.seconds);
  }
  // Said now, not at the end: whoever waits for it must be able to connect.
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (Status s = (*listener)->serve(std::chrono::seconds(request.seconds)); !s.ok()) return s;
  return std::string();
}

Text probe(const ProbeNetRequest& request, int& exit_status) {
  const auto report =
      probe_network({request.peers, request.interfaces, milliseconds(request.flow_ms),
                     milliseconds(request.connect_ms)});
  if (!report.ok()) return report.status();
  const auto findings = check_topology(report->topology);
  if (any_problem(findings)) exit_status = kFoundSomething;
  if (request.json) return to_json(report->topology);
  return render_text(*report) + (findings.empty() ? "no findings\n" : render_text(findings));
}

}  // namespace

void add_probe_net(CLI::App& topo, ProbeNetRequest& request, int& exit_status,
                   std::function<Result<std::string>()>& action) {
  CLI::App* command = topo.add_subcommand("probe-net",
                                          "measure the network between hosts, each interface with "
                                          "each; exit status 3 if a pair is slow "
                                          "or cut off");
  command->footer(
      "All hosts need the same TOPOCOLL_JOB_SECRET. Examples:\n"
      "  topocoll topo probe-net --listen               on node1 and node2\n"
      "  topocoll topo probe-net --peer node1 --peer node2\n"
      "  topocoll topo probe-net --listen eth1 --port 5000\n"
      "  topocoll topo probe-net --interface eth1 --peer [fd00::1]:5000 --json > net.json");
  CLI::Option* listen_on =
      command->add_option("--listen", request.on,
                          "answer probers, on these interfaces or addresses alone; without any, on "
                          "all but the loopback");
  listen_on->expected(0, -1);
  command->add_option("--port", request.port, "of the listener; 0: one that is free")
      ->check(CLI::Range(0, 65535));
  command->add_option("--for", request.seconds, "seconds that the listener lasts (600)")
      ->check(CLI::Range(1, 86400));
  CLI::Option* peer = command->add_option("--peer", request.peers, "HOST[:PORT] of a listener");
  command->add_option("--interface", request.interfaces,
                      "only these interfaces of this host; without any, all but the loopback");
  command->add_option("--stream-ms", request.flow_ms, "length of each stream (200)")
      ->check(CLI::Range(1, 10000));
  command->add_option("--connect-ms", request.connect_ms, "for each attempt to connect (1000)")
      ->check(CLI::Range(1, 10000));
  command->add_flag("--json", request.json, "print the measured topology as JSON");
  listen_on->excludes(peer);
  command->callback([&action, &request, &exit_status, listen_on, peer] {
    if (listen_on->count() == 0 && peer->count() == 0) {
      throw CLI::RequiredError("probe-net: --listen or --peer");
    }
    request.listen = listen_on->count() > 0;
    std::erase(request.on, "");  // which stands for an option without values
    action = [&request, &exit_status] {
      return request.listen ? listen(request) : probe(request, exit_status);
    };
  });
}

}  // namespace topocoll::tools
