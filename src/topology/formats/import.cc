// Which format a text is in, and the way to its reader.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "topocoll/topology_formats.h"
#include "topology/formats/formats.h"

namespace topocoll {
namespace {

constexpr std::array<std::string_view, 5> kFormatNames = {"native", "nccl", "nccl-graph", "hwloc",
                                                          "graph"};
constexpr std::string_view kBlank = " \t\r\n";

std::string_view without_blanks(std::string_view text) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return text;
}

/// The name of the first element, past declarations, comments and a document type.
std::string_view first_element(std::string_view text) {
  for (;;) {
    text = without_blanks(text);
    if (text.empty() || text[0] != '<') return {};
    std::string_view end = ">";
    if (text.substr(0, 4) == "<!--") {
      end = "-->";
    } else if (text.substr(0, 2) != "<!" && text.substr(0, 2) != "<?") {
      text.remove_prefix(1);
      return text.substr(0, text.find_first_of(" \t\r\n/>"));
    }
    std::size_t at = text.find(end);
    // Declarations of a document type's own stand in brackets and have ends of their own.
    if (const std::size_t bracket = text.find('['); end == ">" && bracket < at) {
      at = text.find("]>", bracket);
      end = "]>";
    }
    if (at == text.npos) return {};
    text.remove_prefix(at + end.size());
  }
}

}  // namespace

std::string_view name(TopologyFormat format) {
  const auto index = static_cast<std::size_t>(format);
  return index < kFormatNames.size() ? kFormatNames[index] : "?";
}

std::optional<TopologyFormat> detect_topology_format(std::string_view text) {
  text = without_blanks(text);
  if (text.empty()) return std::nullopt;
  if (text[0] == '{') {
    const bool native = text.find("\"topocoll_topology\"") != text.npos;
    return native ? TopologyFormat::kNative : TopologyFormat::kGraphJson;
  }
  const std::string_view element = first_element(text);
  if (element == "system") return TopologyFormat::kNcclXml;
  if (element == "graphs") return TopologyFormat::kNcclGraph;
  if (element == "topology" || element == "root") return TopologyFormat::kHwlocXml;
  return std::nullopt;
}

Result<Topology> import_topology(std::string_view text, const std::string& file) {
  const auto format = detect_topology_format(text);
  if (!format) {
    return Status(
        Cause::kInvalidArgument,
        fmt::format("{}: neither topocoll's JSON nor a graph in JSON, NCCL's <system> nor "
                    "hwloc's <topology>",
                    file));
  }
  switch (*format) {
    case TopologyFormat::kNative: {
      auto topology = topology_from_json(text);
      if (!topology.ok()) return topology.status().annotated(file);
      return topology;
    }
    case TopologyFormat::kNcclXml:
      return read_nccl_xml(text, file);
    case TopologyFormat::kNcclGraph:
      return Status(Cause::kUnsupported,
                    fmt::format("{}: an NCCL graph file holds the orders of rings and trees and no "
                                "machine; give the topology file (NCCL_TOPO_DUMP_FILE writes it)",
                                file));
    case TopologyFormat::kHwlocXml:
      return read_hwloc_xml(text, file);
    case TopologyFormat::kGraphJson:
      return read_graph_json(text, file);
  }
  return Status(Cause::kInternal, "an unknown format");
}

}  // namespace topocoll
