// Topology: what a machine is made of and what is connected to what.
//
//   auto t = topocoll::discover_topology();
//   if (t.ok()) std::fputs(topocoll::render_text(*t).c_str(), stdout);
//
// Every number says whether the system declared it or topocoll measured it; what is unknown is
// absent, never 0. Ids are strings that stay the same from run to run ("numa:0", "core:3", and for
// what sits on PCI its address: "gpu:0000:4e:00.0"); nothing is named after an ordinal that a
// driver hands out.
//
// Thread rule: a Topology is a value.
// Failure rule: discovery degrades and says so in `notes`.
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

enum class NodeKind : std::uint8_t {
  kHost,
  kPackage,
  kNumaNode,
  kCache,
  kCore,
  kCpu,
  kPciBridge,  ///< a root port, or a port of a PCIe switch: forwards, never an end point
  kPciDevice,  ///< any other function on PCI
  kGpu,        ///< one device of a GPU driver: a GPU, a GCD of a dual-die package
  kNvSwitch,
  kSwitch,   ///< of a network, or of a fabric of which no more is known
  kNic,      ///< the network adapter; its ports stand below it
  kNicPort,  ///< a port of an RDMA device, or a network interface
};
inline constexpr int kNumNodeKinds = 13;
TOPOCOLL_API std::string_view name(NodeKind kind);
/// Host, package, NUMA node, cache, core, CPU: what carries CPUs.
constexpr bool is_processor(NodeKind kind) { return kind <= NodeKind::kCpu; }
/// Forwards between links without being an end: bridges and switches.
constexpr bool is_switch(NodeKind kind) {
  return kind == NodeKind::kPciBridge || kind == NodeKind::kNvSwitch || kind == NodeKind::kSwitch;
}

/// How sure a measured figure is, which is the median of `samples` samples.
struct Spread {
  /// The median's confidence interval of 95 % by order statistics; with fewer than 6 samples the
  /// lowest and the highest of them.
  double low = 0;
  double high = 0;
  double best = 0;  ///< the lowest latency, the highest bandwidth
  int samples = 0;
  friend bool operator==(const Spread&, const Spread&) = default;
};

/// A figure as the system declares it and as topocoll measured it; either may be absent.
struct Figure {
  std::optional<double> declared;
  std::optional<double> measured;
  std::optional<Spread> spread{};  ///< of `measured`
  /// What to reckon with: measured, else declared.
  [[nodiscard]] std::optional<double> best() const { return measured ? measured : declared; }
  friend bool operator==(const Figure&, const Figure&) = default;
};

/// The PCIe link above a function: as trained now, and the most that this end can do. An idle link
/// may have trained down to save power.
struct PciLink {
  std::optional<double> speed_gts;  ///< 10^9 transfers per second and lane: 2.5, 5, 8, 16, 32, 64
  std::optional<int> width;         ///< lanes
  std::optional<double> max_speed_gts;
  std::optional<int> max_width;
  friend bool operator==(const PciLink&, const PciLink&) = default;
};
/// 10^9 bytes per second and direction after line coding (PCI Express Base Specification: 8b/10b up
/// to 5 GT/s, 128b/130b up to 32, FLITs of 242 in 256 bytes at 64), before packet headers.
TOPOCOLL_API double pci_bandwidth_gbps(double speed_gts, int width);

/// Attribute of a node that no system declares and a probe inferred, and what from: "contention".
inline constexpr const char* kInferredFrom = "inferred_from";

struct TopologyNode {
  std::string id;
  NodeKind kind = NodeKind::kHost;
  std::string label;                        ///< model name and the like; may be empty
  std::optional<int> os_index;              ///< the kernel's number, where there is one
  std::optional<std::uint64_t> size_bytes;  ///< caches and memory
  std::optional<int> level;                 ///< caches: 1, 2, 3
  std::vector<int> cpus;  ///< logical CPUs below this node that this process may use
  std::map<std::string, std::string>
      attributes;    ///< further facts, keyed by the system's own names
  std::string bdf;   ///< PCI address "0000:4e:00.0" (4 to 8 digits of domain) or empty
  std::string uuid;  ///< GPUs: the driver's "GPU-..." or empty
  PciLink pci_link;  ///< functions on PCI

  /// Of `attributes`; an empty text if it is not there.
  [[nodiscard]] const std::string& attribute(const std::string& key) const {
    static const std::string none;
    const auto found = attributes.find(key);
    return found == attributes.end() ? none : found->second;
  }
};

/// A link. "contains" and "pci" are the tree: parent above child, at most one of the two kinds per
/// child; their figures hold for either direction, unless `upward_gbps` says otherwise. All other
/// kinds are directed and come in pairs where the medium is duplex:
///   "nvlink", "xgmi"   between GPUs, or GPU and NVSwitch, or GPU and NUMA node
///   "c2c"              between a GPU and the CPU on its module
///   "interconnect"     between NUMA nodes
///   "network"          between NIC ports and switches of the network
///   "link"             of a medium that is not known
/// Three kinds are no links but what a probe measured, see probe.h:
///   "coherence"        from CPU to CPU: cache lines that one has written and the other reads
///   "memory"           from a NUMA node: to a CPU what it alone reads of the node's memory, to
///                      another NUMA node what all CPUs there read together, and to the node above
///                      it in the tree what all CPUs near the memory read together
///   "transfer"         between GPUs, and between a GPU and a NUMA node's memory: what stores of
///                      the sending GPU (from memory: loads of the receiving one) carry while
///                      nothing else moves. Its latency between GPUs is one way of an exchange of
///                      flags, between memory and a GPU the GPU's read of one word. From a NUMA
///                      node to an RDMA port, which has no bandwidth, the port's read of one byte
struct TopologyEdge {
  std::string from;
  std::string to;
  std::string kind;
  Figure bandwidth_gbps;  ///< 10^9 bytes per second from `from` to `to`
  Figure latency_ns;      ///< one way; of a read from memory, there and back
  Figure upward_gbps{};   ///< tree edges: from child to parent where that differs
  std::optional<int>
      count{};  ///< physical links that this one stands for; the figures are their sum
  /// Further figures of a "transfer", by their names below; GB/s are 10^9 bytes per second.
  std::map<std::string, Figure> figures{};
  /// "transfer": what was wrong with data that went this way. Empty: nothing is known against it.
  std::string fault{};
};
/// Names of TopologyEdge::figures.
inline constexpr const char* kLoadsGbps = "loads_gbps";  ///< pulled by the receiving GPU's loads
inline constexpr const char* kCopyEngineGbps = "copy_engine_gbps";
inline constexpr const char* kDuplexGbps = "duplex_gbps";  ///< stores, while the other way is busy
inline constexpr const char* kClassGbps =
    "class_gbps";  ///< stores, while every GPU sends to one and receives from one of its like
inline constexpr const char* kLoadedLatencyNs =
    "loaded_latency_ns";  ///< as latency_ns, while the same way carries stores
/// "contains" or "pci".
TOPOCOLL_API bool is_tree_edge(const TopologyEdge& edge);
/// "coherence", "memory" or "transfer": there because it was measured, and no part of the machine's
/// make-up.
TOPOCOLL_API bool is_measurement(const TopologyEdge& edge);
/// Has kInferredFrom: the node and its edges are there because of measurements, and no part of the
/// machine's make-up either.
TOPOCOLL_API bool is_inferred(const TopologyNode& node);
/// The names of all kinds of edges, "contains" first.
TOPOCOLL_API const std::vector<std::string_view>& edge_kinds();

/// One direction of an edge; of a tree edge, {child, parent} is its way up.
struct EdgeDirection {
  std::string from;
  std::string to;
  std::string kind;
  friend bool operator==(const EdgeDirection&, const EdgeDirection&) = default;
};

/// Directions that share one capacity: together they carry no more than `bandwidth_gbps`, whatever
/// each could carry alone (a root port that is not duplex, a switch whose uplink is
/// oversubscribed).
struct CapacityGroup {
  std::string id;
  Figure bandwidth_gbps;  ///< 10^9 bytes per second, the sum over members
  std::vector<EdgeDirection> members;
};

struct Topology {
  std::string host;
  std::vector<TopologyNode> nodes;
  std::vector<TopologyEdge> edges;
  std::vector<std::string> notes;  ///< what could not be read, and why
  std::vector<CapacityGroup> groups{};

  [[nodiscard]] TOPOCOLL_API const TopologyNode* find(std::string_view id) const;
  [[nodiscard]] TOPOCOLL_API std::vector<const TopologyNode*> of_kind(NodeKind kind) const;
  /// The node above in the tree, or null.
  [[nodiscard]] TOPOCOLL_API const TopologyNode* parent(std::string_view id) const;
  /// Identifies the machine's make-up: the same hardware and cpuset give the same 16 hex digits.
  [[nodiscard]] TOPOCOLL_API std::string fingerprint() const;
};

/// Reads this machine through hwloc and sysfs. Takes milliseconds; wakes no device.
TOPOCOLL_API Result<Topology> discover_topology();

/// The same for a machine whose /sys and /proc were recorded below the directory `root`, by
/// record_topology() or hwloc-gather-topology. Sets HWLOC_FSROOT for the while: no other thread may
/// change the environment.
TOPOCOLL_API Result<Topology> discover_topology_at(const std::string& root);

/// Builds the topology that a synthetic hwloc description names, e.g. "pack:2 numa:1 l3:1 core:4
/// pu:2".
TOPOCOLL_API Result<Topology> synthetic_topology(const std::string& description);

/// An indented tree for people.
TOPOCOLL_API std::string render_text(const Topology& topology);
/// The native JSON ("topocoll_topology": 1) and back; docs/topology.schema.json is its schema.
TOPOCOLL_API std::string to_json(const Topology& topology);
TOPOCOLL_API Result<Topology> topology_from_json(std::string_view text);

}  // namespace topocoll
