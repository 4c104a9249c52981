// Machines in other formats: in, out, and as pictures.
//
//   auto t = topocoll::import_topology(text, "topo.xml");  // the format is told from the text
//   if (t.ok()) std::puts(topocoll::to_nccl_xml(*t).value().c_str());
//
// Thread rule: free functions on values.
// Failure rule: an import that cannot be trusted is kInvalidArgument and its text names file, line
// and attribute; what is odd but harmless is read and said in `notes`. Texts are limited to 8 MiB
// (XML) and 32 MiB (JSON).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/findings.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

enum class TopologyFormat : std::uint8_t {
  kNative,     ///< topocoll's JSON
  kNcclXml,    ///< NCCL and RCCL: <system> of NCCL_TOPO_FILE and NCCL_TOPO_DUMP_FILE
  kNcclGraph,  ///< NCCL: <graphs> of NCCL_GRAPH_FILE; recognised and refused, it holds no machine
  kHwlocXml,   ///< hwloc 2 and 3: <topology>
  kGraphJson,  ///< a bare graph: {"unit", "nodes": [{"id", "kind"}], "edges": [[from, to, GB/s]]}
};
/// "native", "nccl", "nccl-graph", "hwloc", "graph".
TOPOCOLL_API std::string_view name(TopologyFormat format);
/// The format that `text` is in, by its first element or its members; absent if it is none.
TOPOCOLL_API std::optional<TopologyFormat> detect_topology_format(std::string_view text);

/// Reads any of them. `file` stands in front of errors.
TOPOCOLL_API Result<Topology> import_topology(std::string_view text, const std::string& file);

/// NCCL's topology XML, version 1 (with xGMI: RCCL's version 2). What it cannot say (caches, cores,
/// measured figures, groups) is left out.
TOPOCOLL_API Result<std::string> to_nccl_xml(const Topology& topology);
/// hwloc 2 XML; GPU links are the distances NVLinkBandwidth and XGMIBandwidth, what was measured is
/// the distances TopocollMeasuredBandwidth, all in MB/s. kUnsupported if the topology has no CPU.
TOPOCOLL_API Result<std::string> to_hwloc_xml(const Topology& topology);

/// GPUs and NICs against each other, in the manner of "nvidia-smi topo -m": NV4 (4 NVLinks), XGMI,
/// C2C, PIX (one PCIe switch), PXB (several bridges), PHB (one host bridge), NODE (one NUMA node),
/// SYS (between NUMA nodes), NET (between hosts), LNK (a link of unknown medium), - (nothing is
/// known). A legend says which device a column is, and what the words mean. kUnsupported if there
/// are more than kMaxMatrixEnds GPUs, NICs and measured memories and ports.
TOPOCOLL_API Result<std::string> render_matrix(const Topology& topology);
inline constexpr std::size_t kMaxMatrixEnds = 1024;
/// The same as JSON: {"devices": [...], "paths": [[...]]}.
TOPOCOLL_API Result<std::string> matrix_to_json(const Topology& topology);
/// Arrows of one colour over a picture, such as a ring of a plan.
struct PictureLine {
  std::string name;                                         ///< in the legend
  std::vector<std::pair<std::string, std::string>> arrows;  ///< ids of nodes; unknown ones are left out
};
/// What is drawn over a machine. Where it has no tree of boxes, its end points then stand on a circle and
/// its switches between those that they connect.
struct PictureOverlay {
  std::string title;
  std::vector<PictureLine> lines;
  std::vector<std::string> order;   ///< of the end points on the circle; others follow
  std::set<std::string> marked;     ///< nodes on one side of a cut, which is drawn
  std::vector<std::string> legend;  ///< further lines of it; the first one explains the cut
};

/// GraphViz. Caches, cores and CPUs are left out; what findings are about is red.
TOPOCOLL_API std::string render_dot(const Topology& topology, const std::vector<Finding>& findings,
                                    const PictureOverlay& overlay = {});
/// A picture with nested boxes, laid out here.
TOPOCOLL_API std::string render_svg(const Topology& topology, const std::vector<Finding>& findings,
                                    const PictureOverlay& overlay = {});
/// One page that needs nothing else: the findings, the picture with details on hovering, and the
/// matrix.
TOPOCOLL_API std::string render_html(const Topology& topology, const std::vector<Finding>& findings,
                                     const PictureOverlay& overlay = {});

/// Copies what discovery reads of this machine's /sys and /proc into the new directory `directory`,
/// for discover_topology_at(). Serial numbers, MAC and IP addresses, GUIDs and the host's name stay
/// here.
TOPOCOLL_API Status record_topology(const std::string& directory);

}  // namespace topocoll
