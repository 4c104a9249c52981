#include <fmt/format.h>

#include <iterator>

#include "topocoll/topology_formats.h"
#include "topology/views/overlay.h"

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

/// The title and the legend, a line each.
std::string heading(const PictureOverlay& overlay) {
  std::string label = overlay.title;
  for (std::size_t k = 0; k < overlay.lines.size(); ++k) {
    label += fmt::format("\n{}: {}", Overlay::colour(k), overlay.lines[k].name);
  }
  for (const std::string& line : overlay.legend) label += "\n" + line;
  return fmt::format("  label={};\n  labelloc=t;\n", dot_quote(label));
}

}  // namespace

std::string render_dot(const Topology& topology, const std::vector<Finding>& findings,
                       const PictureOverlay& what) {
  const Picture picture(topology, findings);
  const Overlay overlay(what, picture);
  std::string text =
      "graph topology {\n"
      "  rankdir=TB;\n"
      "  node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n"
      "  edge [fontname=\"sans-serif\", fontsize=8];\n";
  auto to = std::back_inserter(text);
  if (overlay.on()) text += heading(what);
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    if (!picture.is_drawn(i)) continue;
    const TopologyNode& node = topology.nodes[i];
    const std::string label =
        node.label.empty() ? picture.title(i) : picture.title(i) + "\n" + node.label;
    fmt::format_to(to, "  n{} [label={}, fillcolor=\"{}\", tooltip={}{}];\n", i, dot_quote(label),
                   fill_of(node.kind), dot_quote(picture.details(i)),
                   overlay.is_marked(i) ? ", color=orange, penwidth=3"
                   : picture.is_bad(i)  ? ", color=red, penwidth=2"
                                        : "");
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
    const char* colour = overlay.crosses_cut(link.from, link.to) ? "orange"
                         : link.bad                              ? "red"
                                                                 : colour_of(link.kind);
    fmt::format_to(to, "  n{} -- n{} [color=\"{}\", constraint=false, tooltip={}];\n", link.from,
                   link.to, colour, dot_quote(link.text));
  }
  for (std::size_t k = 0; k < what.lines.size(); ++k) {
    for (const auto& [a, b] : what.lines[k].arrows) {
      const std::size_t from = picture.tree().index(a);
      const std::size_t into = picture.tree().index(b);
      if (from == TopologyTree::kNone || into == TopologyTree::kNone) continue;
      if (!picture.is_drawn(from) || !picture.is_drawn(into)) continue;
      fmt::format_to(
          to,
          "  n{} -- n{} [dir=forward, color=\"{}\", penwidth=2, constraint=false, tooltip={}];\n",
          from, into, Overlay::colour(k), dot_quote(what.lines[k].name));
    }
  }
  return text + "}\n";
}

}  // namespace topocoll
