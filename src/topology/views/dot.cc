#include <fmt/format.h>

#include <iterator>

#include "topocoll/topology_formats.h"
#include "topology/views/picture.h"

namespace topocoll {
namespace {

std::string dot_quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else {
      quoted += c >= 0 && c < ' ' ? ' ' : c;
    }
  }
  return quoted + "\"";
}

}  // namespace

std::string render_dot(const Topology& topology, const std::vector<Finding>& findings) {
  const Picture picture(topology, findings);
  std::string text =
      "graph topology {\n"
      "  rankdir=TB;\n"
      "  node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n"
      "  edge [fontname=\"sans-serif\", fontsize=8];\n";
  auto to = std::back_inserter(text);
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    if (!picture.is_drawn(i)) continue;
    const TopologyNode& node = topology.nodes[i];
    const std::string label =
        node.label.empty() ? picture.title(i) : picture.title(i) + "\n" + node.label;
    fmt::format_to(to, "  n{} [label={}, fillcolor=\"{}\", tooltip={}{}];\n", i, dot_quote(label),
                   fill_of(node.kind), dot_quote(picture.details(i)),
                   picture.is_bad(i) ? ", color=red, penwidth=2" : "");
  }
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    if (!picture.is_drawn(i)) continue;
    for (const std::size_t child : picture.drawn_children(i)) {
      const std::string words = figure_words(*picture.tree().edge_above(child));
      fmt::format_to(to, "  n{} -- n{}{};\n", i, child,
                     words.empty() ? "" : fmt::format(" [tooltip={}]", dot_quote(words)));
    }
  }
  for (const DrawnLink& link : picture.links()) {
    fmt::format_to(to, "  n{} -- n{} [color=\"{}\", constraint=false, tooltip={}];\n", link.from,
                   link.to, link.bad ? "red" : colour_of(link.kind), dot_quote(link.text));
  }
  return text + "}\n";
}

}  // namespace topocoll
