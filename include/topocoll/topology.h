// Topology: what a machine is made of and what is connected to what.
//
//   auto t = topocoll::discover_topology();
//   if (t.ok()) std::fputs(topocoll::render_text(*t).c_str(), stdout);
//
// Every number says whether the system declared it or topocoll measured it; what is unknown is absent,
// never 0. Ids are strings that stay the same from run to run ("numa:0", "core:3").
// Thread rule: a Topology is a value. Failure rule: discovery degrades and says so in `notes`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/status.h"

namespace topocoll {

enum class NodeKind : std::uint8_t { kHost, kPackage, kNumaNode, kCache, kCore, kCpu };
TOPOCOLL_API std::string_view name(NodeKind kind);

/// A figure as the system declares it and as topocoll measured it; either may be absent.
struct Figure {
  std::optional<double> declared;
  std::optional<double> measured;
};

struct TopologyNode {
  std::string id;
  NodeKind kind = NodeKind::kHost;
  std::string label;                             ///< model name and the like; may be empty
  std::optional<int> os_index;                   ///< the kernel's number, where there is one
  std::optional<std::uint64_t> size_bytes;       ///< caches and memory
  std::optional<int> level;                      ///< caches: 1, 2, 3
  std::vector<int> cpus;                         ///< logical CPUs below this node that this process may use
  std::map<std::string, std::string> attributes; ///< further facts, keyed by the system's own names
};

/// An undirected containment edge (parent above child), or a directed link between equals.
struct TopologyEdge {
  std::string from;
  std::string to;
  std::string kind;  ///< "contains", "interconnect"
  Figure bandwidth_gbps;  ///< 10^9 bytes per second from `from` to `to`
  Figure latency_ns;      ///< one way
};

struct Topology {
  std::string host;
  std::vector<TopologyNode> nodes;
  std::vector<TopologyEdge> edges;
  std::vector<std::string> notes;  ///< what could not be read, and why

  [[nodiscard]] TOPOCOLL_API const TopologyNode* find(std::string_view id) const;
  [[nodiscard]] TOPOCOLL_API std::vector<const TopologyNode*> of_kind(NodeKind kind) const;
  /// Identifies the machine's make-up: the same hardware and cpuset give the same 16 hex digits.
  [[nodiscard]] TOPOCOLL_API std::string fingerprint() const;
};

/// Reads this machine through hwloc. Takes milliseconds; touches no device.
TOPOCOLL_API Result<Topology> discover_topology();

/// Builds the topology that a synthetic hwloc description names, e.g. "pack:2 numa:1 l3:1 core:4 pu:2".
TOPOCOLL_API Result<Topology> synthetic_topology(const std::string& description);

/// An indented tree for people.
TOPOCOLL_API std::string render_text(const Topology& topology);
/// The native JSON ("topocoll_topology": 1) and back.
TOPOCOLL_API std::string to_json(const Topology& topology);
TOPOCOLL_API Result<Topology> topology_from_json(std::string_view text);

}  // namespace topocoll
