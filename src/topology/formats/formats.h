// The readers behind import_topology(), one per format.
// Thread rule: free functions. Failure rule: as in topocoll/topology_formats.h.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "topocoll/topology.h"

namespace topocoll {

/// The largest device numbers, ranks and ports in NCCL's XML.
inline constexpr int kMaxNcclNumber = 1 << 24;
inline constexpr int kMaxNcclPort = 1 << 16;
inline constexpr int kMaxNcclCpus = 1 << 16;
inline constexpr int kMaxNcclNuma = 1 << 20;
/// The longest attributes there, and of these the ones that become part of an id.
inline constexpr std::size_t kMaxNcclTextBytes = 256;
inline constexpr std::size_t kMaxNcclNameBytes = 96;
/// The largest rates there, of ports in 10^6 bits and of C2C links in 10^6 bytes per second, and
/// the longest latency of a port.
inline constexpr double kMaxNcclRate = 1e8;
inline constexpr double kMaxNcclMicroseconds = 1e6;
/// Physical links that one edge stands for at most.
inline constexpr int kMaxLinks = 1 << 16;

Result<Topology> read_nccl_xml(std::string_view text, const std::string& file);
Result<Topology> read_hwloc_xml(std::string_view text, const std::string& file);
Result<Topology> read_graph_json(std::string_view text, const std::string& file);

/// The nominal bandwidth of one NVLink or xGMI link in 10^9 bytes per second and direction, by the
/// GPU's "sm" (compute capability) or "gcn" attribute (AMD's processor name); absent if unknown.
std::optional<double> nominal_link_gbps(std::string_view kind, const TopologyNode& gpu);

}  // namespace topocoll
