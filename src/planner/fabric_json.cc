// Fabrics as JSON: how the nodes of a cluster hang together.
#include <fmt/format.h>

#include <string>

#include "planner/graph.h"
#include "topocoll/cluster.h"
#include "topology/checked_json.h"
#include "topology/file_kind.h"

namespace topocoll {
namespace {

constexpr JsonLimits kLimits{1U << 20, 100'000, 6};
constexpr std::size_t kMaxIdBytes = 256;
constexpr std::size_t kMaxPorts = 4096;
constexpr double kMaxLatencyNs = 1e9;
constexpr double kMaxOversubscription = 1e4;

/// A rate of a port in one direction: its own member, else the one for both.
double port_rate(const JsonView& port, std::string_view direction) {
  const std::string_view key = port.has(direction) ? direction : "gbps";
  return port.has(key) ? port[key].number(kMinGraphGbps, kMaxGraphGbps) : 0;
}

void read_ports(const JsonView& ports, Fabric& out, JsonErrors& errors) {
  const std::size_t count = ports.array(kMaxPorts);
  if (errors.ok() && count == 0) ports.fail("no port: leave it out, or name one at least");
  for (std::size_t i = 0; errors.ok() && i < count; ++i) {
    const JsonView port = ports.at(i);
    port.members({"at", "rail", "gbps", "out_gbps", "in_gbps"});
    FabricPort result;
    result.at = port["at"].text(kMaxIdBytes);
    result.rail = port.has("rail") ? static_cast<int>(port["rail"].integer(0, out.rails - 1)) : 0;
    result.out_gbps = port_rate(port, "out_gbps");
    result.in_gbps = port_rate(port, "in_gbps");
    if (errors.ok() && result.out_gbps == 0 && result.in_gbps == 0) {
      port.fail("give gbps, or out_gbps or in_gbps for one direction");
    }
    out.ports.push_back(std::move(result));
  }
}

void read_fabric(const JsonView& root, Fabric& out, JsonErrors& errors) {
  root.members({"topocoll_fabric", "name", "rails", "gbps_per_gpu", "ports", "nodes_per_leaf",
                "oversubscription", "spine_joins_rails", "latency_ns", "spine_latency_ns"});
  root["topocoll_fabric"].integer(1, 1);
  if (root.has("name")) out.name = root["name"].text(kMaxIdBytes);
  if (root.has("rails")) out.rails = static_cast<int>(root["rails"].integer(1, kMaxRails));
  if (errors.ok() && root.has("gbps_per_gpu") == root.has("ports")) {
    root.fail("give either gbps_per_gpu or ports");
  }
  if (!errors.ok()) return;
  if (root.has("gbps_per_gpu"))
    out.gbps_per_gpu = root["gbps_per_gpu"].number(kMinGraphGbps, kMaxGraphGbps);
  if (root.has("ports")) read_ports(root["ports"], out, errors);
  if (root.has("nodes_per_leaf")) {
    out.nodes_per_leaf = static_cast<int>(root["nodes_per_leaf"].integer(1, kMaxClusterRanks));
  }
  for (const char* key : {"oversubscription", "spine_joins_rails", "spine_latency_ns"}) {
    if (errors.ok() && root.has(key) && !out.nodes_per_leaf) {
      root[key].fail("there is no spine without nodes_per_leaf");
    }
  }
  if (root.has("oversubscription"))
    out.oversubscription = root["oversubscription"].number(1, kMaxOversubscription);
  if (root.has("spine_joins_rails")) out.spine_joins_rails = root["spine_joins_rails"].boolean();
  if (root.has("latency_ns")) out.latency_ns = root["latency_ns"].number(0, kMaxLatencyNs);
  if (root.has("spine_latency_ns"))
    out.spine_latency_ns = root["spine_latency_ns"].number(0, kMaxLatencyNs);
}

}  // namespace

Result<Fabric> fabric_from_json(std::string_view text, const std::string& file) {
  const Result<nlohmann::json> json = parse_json(text, file, kLimits);
  if (!json.ok()) return json.status();
  JsonErrors errors{file};
  Fabric fabric;
  const JsonView root(*json, errors);
  refuse_other_files(root, FileKind::kFabric);
  read_fabric(root, fabric, errors);
  if (!errors.ok()) return errors.status();
  return fabric;
}

}  // namespace topocoll
