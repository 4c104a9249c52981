// A picture without a layout library: a node is a box around the boxes of what it contains, in
// rows; links that are no containment are curves between boxes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "topocoll/topology_formats.h"
#include "topology/formats/xml_text.h"
#include "topology/views/overlay.h"

namespace topocoll {
namespace {

constexpr double kLetter = 6.3;  ///< width of a character of the title
constexpr double kTitle = 16;    ///< height of a title
constexpr double kPad = 8;
constexpr double kHeading = 26;
constexpr double kMaxRow = 1400;  ///< boxes wrap beyond this width
constexpr int kMaxDepth = 40;
constexpr std::size_t kMaxTitle = 60;
constexpr std::size_t kMaxMatrix = 128;  ///< devices of a page's matrix

class Layout {
 public:
  Layout(const Topology& topology, const std::vector<Finding>& findings,
         const PictureOverlay& overlay)
      : picture_(topology, findings), overlay_(overlay, picture_), boxes_(topology.nodes.size()) {}

  std::string draw() {
    double width = 0;
    const double below_heading = kPad + (overlay_.on() ? kHeading : 0);
    double y = below_heading;
    std::vector<std::size_t> top;
    for (const std::size_t root : picture_.tree().roots()) {
      if (picture_.is_drawn(root)) top.push_back(root);
    }
    for (const std::size_t root : top) measure(root, 0);
    circle_ = overlay_.wants_circle(top);
    if (circle_) {
      overlay_.place_on_circle(top, boxes_, width, y);
    } else {
      place_rows(top, kPad, y, width);
    }
    std::string boxes;
    for (const std::size_t root : top) box(root, boxes, 0);
    double highest = below_heading;
    std::string lines = links(highest);
    if (overlay_.on()) lines += overlay_.arrows(boxes_, highest);
    // Long curves rise above the boxes: the canvas, and the heading with it, begins above them.
    const double begin = std::floor(highest - below_heading);
    // On a circle lines end at boxes; boxes in boxes would hide them.
    std::string body = circle_ ? lines + boxes : boxes + lines;
    if (overlay_.on()) body = overlay_.definitions() + body + heading_and_legend(begin, width, y);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 {3:.0f} {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<style>rect{{stroke:#888}}rect.bad{{stroke:#d00;stroke-width:2.5}}"
        "path{{fill:none;stroke-width:1.2;opacity:.55}}path:hover,path.bad{{stroke-width:3;opacity:"
        "1}}"
        "g:hover>rect{{stroke:#000}}</style>\n{2}</svg>\n",
        std::max(width + kPad, 40.0), y + kPad - begin, body, begin);
  }

 private:
  /// Beside the picture; `right` and `bottom` grow by it.
  std::string heading_and_legend(double top, double& right, double& bottom) const {
    double x = right + 2 * kPad;
    double y = kPad + 2 * kHeading;
    std::string text = fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.0f}\" font-size=\"14\" font-weight=\"bold\">{}</text>\n", kPad,
        top + kPad + kTitle, xml_escape(overlay_.what().title));
    text += overlay_.legend(x, y);
    right = std::max(x, kPad + 8 * static_cast<double>(overlay_.what().title.size()));
    bottom = std::max(bottom, y);
    return text;
  }

  std::string title(std::size_t i) const { return picture_.title(i).substr(0, kMaxTitle); }

  /// Sizes, from the inside outwards.
  void measure(std::size_t i, int depth) {
    const double least = kLetter * static_cast<double>(title(i).size()) + 2 * kPad;
    double inner = 0;
    double height = kTitle + kPad;
    if (depth < kMaxDepth) {
      const auto children = picture_.drawn_children(i);
      for (const std::size_t child : children) measure(child, depth + 1);
      double y = height;
      place_rows(children, kPad, y, inner);
      if (!children.empty()) height = y;
    }
    boxes_[i].width = std::max(least, inner + kPad);
    boxes_[i].height = height;
    boxes_[i].placed = true;
  }

  /// Puts measured boxes side by side from (x, y); y becomes the lower end, `right` the widest
  /// row's.
  void place_rows(const std::vector<std::size_t>& nodes, double x, double& y, double& right) {
    double at = x;
    double tallest = 0;
    for (const std::size_t i : nodes) {
      Box& b = boxes_[i];
      if (at > x && at + b.width > kMaxRow) {
        at = x;
        y += tallest + kPad;
        tallest = 0;
      }
      b.x = at;
      b.y = y;
      at += b.width + kPad;
      right = std::max(right, at - kPad);
      tallest = std::max(tallest, b.height);
    }
    if (!nodes.empty()) y += tallest + kPad;
  }

  /// Positions were relative to the parent; here they become absolute.
  void box(std::size_t i, std::string& text, int depth, double x = 0, double y = 0) {
    Box& b = boxes_[i];
    b.x += x;
    b.y += y;
    fmt::format_to(
        std::back_inserter(text),
        "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\" rx=\"3\" fill=\"{}\"{}/><text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>"
        "</g>\n",
        xml_escape(picture_.details(i)), b.x, b.y, b.width, b.height,
        fill_of(picture_.topology().nodes[i].kind),
        overlay_.is_marked(i) ? " class=\"cut\""
        : picture_.is_bad(i)  ? " class=\"bad\""
                              : "",
        b.x + kPad, b.y + kTitle - 2, xml_escape(title(i)));
    if (depth >= kMaxDepth) return;
    for (const std::size_t child : picture_.drawn_children(i))
      box(child, text, depth + 1, b.x, b.y);
  }

  [[nodiscard]] const char* class_of(const DrawnLink& link) const {
    if (overlay_.crosses_cut(link.from, link.to)) return " class=\"cut\"";
    if (link.bad) return " class=\"bad\"";
    return overlay_.on() ? " class=\"under\"" : "";
  }

  /// `top` becomes the least y of a line, if that is less.
  [[nodiscard]] std::string links(double& top) const {
    std::string text;
    for (const DrawnLink& link : picture_.links()) {
      const Box& a = boxes_[link.from];
      const Box& b = boxes_[link.to];
      if (!a.placed || !b.placed) continue;
      const double x1 = a.middle_x();
      const double y1 = a.middle_y();
      const double x2 = b.middle_x();
      const double y2 = b.middle_y();
      // Bent aside in proportion to its length, so that curves of a row do not lie on each other.
      const double bend = circle_ ? 0 : 0.18 * std::hypot(x2 - x1, y2 - y1) + 12;
      top = std::min(top, curve_top(y1, (y1 + y2) / 2 - bend, y2));
      fmt::format_to(std::back_inserter(text),
                     "<path d=\"M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}\" stroke=\"{}\"{}>"
                     "<title>{}</title></path>\n",
                     x1, y1, (x1 + x2) / 2, (y1 + y2) / 2 - bend, x2, y2,
                     link.bad ? "#d00" : colour_of(link.kind), class_of(link),
                     xml_escape(fmt::format("{} – {}\n{}", picture_.topology().nodes[link.from].id,
                                            picture_.topology().nodes[link.to].id, link.text)));
    }
    return text;
  }

  Picture picture_;
  Overlay overlay_;
  std::vector<Box> boxes_;
  bool circle_ = false;
};

std::string findings_table(const std::vector<Finding>& findings) {
  std::string rows;
  for (const Finding& f : findings) {
    const std::string loss = f.loss_percent ? fmt::format("{:.0f} %", *f.loss_percent) : "";
    rows += fmt::format(
        "<tr "
        "class=\"{}\"><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><code>{}</code>"
        "</td></tr>\n",
        name(f.severity), name(f.severity), xml_escape(f.code), xml_escape(f.text), loss,
        xml_escape(f.evidence), xml_escape(f.fix));
  }
  if (rows.empty()) return "<p>No findings.</p>\n";
  return "<table><tr><th>severity</th><th>code</th><th>finding</th><th>loss</th><th>seen</th>"
         "<th>fix</th></tr>\n" +
         rows + "</table>\n";
}

/// The matrix and what was measured, as text; nothing where there is no device, or too many to look
/// at.
std::string matrix_section(const Topology& topology) {
  const std::size_t devices =
      topology.of_kind(NodeKind::kGpu).size() + topology.of_kind(NodeKind::kNic).size();
  if (devices == 0 || devices > kMaxMatrix) return "";
  const auto matrix = render_matrix(topology);
  if (!matrix.ok()) return "";
  const std::string& text = *matrix;
  std::string lines;
  for (std::size_t start = 0; start < text.size();) {  // escaped, ends of lines would be numbers
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines += xml_escape(std::string_view(text).substr(start, end - start)) + "\n";
    start = end + 1;
  }
  return "<h2>Matrix</h2>\n<pre>" + lines + "</pre>\n";
}

}  // namespace

std::string render_svg(const Topology& topology, const std::vector<Finding>& findings,
                       const PictureOverlay& overlay) {
  return Layout(topology, findings, overlay).draw();
}

std::string render_html(const Topology& topology, const std::vector<Finding>& findings,
                        const PictureOverlay& overlay) {
  std::string notes;
  for (const std::string& note : topology.notes) notes += "<li>" + xml_escape(note) + "</li>\n";
  if (!notes.empty()) notes = "<h2>Notes</h2>\n<ul>\n" + notes + "</ul>\n";
  const std::string title = topology.host.empty() ? "topology" : topology.host;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:1.5em}}table{{border-collapse:collapse}}"
      "td,th{{border:1px solid #ccc;padding:3px 8px;text-align:left;vertical-align:top}}"
      "tr.error td:first-child,tr.warning td:first-child{{color:#d00;font-weight:bold}}"
      "</style></head><body>\n<h1>{0}</h1>\n<h2>Findings</h2>\n{1}{2}<h2>Topology</h2>\n{3}{4}"
      "</body></html>\n",
      xml_escape(title), findings_table(findings), notes, render_svg(topology, findings, overlay),
      matrix_section(topology));
}

}  // namespace topocoll
