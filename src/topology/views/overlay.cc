#include "topology/views/overlay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numbers>
#include <utility>

#include "topology/formats/xml_text.h"

namespace topocoll {
namespace {

// Told apart by most people with colour blindness, too (after Wong, 2011), then darker ones.
constexpr std::array<const char*, 10> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                  "#56b4e9", "#8a6d00", "#5b3fa8", "#7a1f3d",
                                                  "#3d6b1f", "#444444"};
constexpr double kMinRadius = 170;
constexpr double kGap = 44;  ///< between boxes on the circle
constexpr double kLine = 16;
constexpr double kLetter = 6;
constexpr std::size_t kLegendLetters = 52;
constexpr int kRelaxations = 60;

/// Where the way from the middle of the box to (x, y) leaves it.
std::pair<double, double> leave(const Box& box, double x, double y) {
  const double dx = x - box.middle_x();
  const double dy = y - box.middle_y();
  const double across =
      std::max(std::abs(dx) / (box.width / 2 + 2), std::abs(dy) / (box.height / 2 + 2));
  if (across <= 1) return {x, y};
  return {box.middle_x() + dx / across, box.middle_y() + dy / across};
}

void centre(Box& box, double x, double y) {
  box.x = x - box.width / 2;
  box.y = y - box.height / 2;
}

std::vector<std::string> wrapped(const std::string& text) {
  std::vector<std::string> lines{""};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!lines.back().empty() && lines.back().size() + word.size() >= kLegendLetters)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    at = end + 1;
  }
  return lines;
}

}  // namespace

const char* Overlay::colour(std::size_t line) { return kColours[line % kColours.size()]; }

bool Overlay::wants_circle(const std::vector<std::size_t>& roots) const {
  return on() && roots.size() > 2 && std::all_of(roots.begin(), roots.end(), [&](std::size_t root) {
           return picture_.drawn_children(root).empty();
         });
}

bool Overlay::is_marked(std::size_t node) const {
  return what_.marked.contains(picture_.topology().nodes[node].id);
}

void Overlay::place_on_circle(const std::vector<std::size_t>& roots, std::vector<Box>& boxes,
                              double& right, double& y) const {
  std::map<std::string, std::size_t> turn;
  for (const std::string& id : what_.order) turn.try_emplace(id, turn.size());
  std::vector<std::size_t> ends;
  std::vector<std::size_t> switches;
  for (const std::size_t root : roots) {
    (is_switch(picture_.topology().nodes[root].kind) ? switches : ends).push_back(root);
  }
  const auto place_of = [&](std::size_t node) {
    const auto found = turn.find(picture_.topology().nodes[node].id);
    return found == turn.end() ? turn.size() : found->second;
  };
  std::stable_sort(ends.begin(), ends.end(),
                   [&](std::size_t a, std::size_t b) { return place_of(a) < place_of(b); });
  double around = 0;
  double widest = 0;
  for (const std::size_t i : ends) {
    around += boxes[i].width + kGap;
    widest = std::max(widest, boxes[i].width);
  }
  const double radius = std::max(kMinRadius, around / (2 * std::numbers::pi));
  const double middle_x = right + radius + widest / 2 + kLine;
  const double middle_y = y + radius + 2 * kLine;
  for (std::size_t k = 0; k < ends.size(); ++k) {
    const double angle =
        2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(ends.size());
    centre(boxes[ends[k]], middle_x + radius * std::sin(angle),
           middle_y - radius * std::cos(angle));
  }
  for (const std::size_t i : switches) centre(boxes[i], middle_x, middle_y);
  place_switches(switches, boxes);
  right = middle_x + radius + widest / 2 + kLine;
  y = middle_y + radius + 2 * kLine;
}

/// Each switch goes to the middle of its neighbours (Tutte, 1963); those that meet stand in a small
/// circle.
void Overlay::place_switches(const std::vector<std::size_t>& switches,
                             std::vector<Box>& boxes) const {
  std::map<std::size_t, std::vector<std::size_t>> neighbours;
  for (const std::size_t i : switches) neighbours[i];
  for (const DrawnLink& link : picture_.links()) {
    for (const auto& [a, b] : {std::pair(link.from, link.to), std::pair(link.to, link.from)}) {
      const auto found = neighbours.find(a);
      if (found != neighbours.end() && boxes[b].placed) found->second.push_back(b);
    }
  }
  for (int round = 0; round < kRelaxations; ++round) {
    for (const auto& [i, near] : neighbours) {
      if (near.empty()) continue;
      double x = 0;
      double y = 0;
      for (const std::size_t n : near) {
        x += boxes[n].middle_x();
        y += boxes[n].middle_y();
      }
      centre(boxes[i], x / static_cast<double>(near.size()), y / static_cast<double>(near.size()));
    }
  }
  std::map<std::pair<int, int>, std::vector<std::size_t>> meeting;
  for (const std::size_t i : switches) {
    meeting[{static_cast<int>(std::lround(boxes[i].middle_x() / kLine)),
             static_cast<int>(std::lround(boxes[i].middle_y() / kLine))}]
        .push_back(i);
  }
  for (const auto& [where, members] : meeting) {
    if (members.size() < 2) continue;
    const auto count = static_cast<double>(members.size());
    const double radius =
        std::max(kGap, count * (boxes[members[0]].width + kLine) / (2 * std::numbers::pi));
    for (std::size_t k = 0; k < members.size(); ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k) / count;
      Box& box = boxes[members[k]];
      centre(box, box.middle_x() + radius * std::sin(angle),
             box.middle_y() - radius * std::cos(angle));
    }
  }
}

double curve_top(double y1, double control, double y2) {
  const double turn = y1 - 2 * control + y2;
  const double t = turn == 0 ? 0 : (y1 - control) / turn;  // where the curve is level
  const double ends = std::min(y1, y2);
  return t > 0 && t < 1 ? std::min(ends, y1 - t * (y1 - control)) : ends;
}

std::string Overlay::arrows(const std::vector<Box>& boxes, double& top) const {
  std::string text;
  auto to = std::back_inserter(text);
  for (std::size_t k = 0; k < what_.lines.size(); ++k) {
    const PictureLine& line = what_.lines[k];
    fmt::format_to(to, "<g class=\"line\" stroke=\"{}\"><title>{}</title>\n", colour(k),
                   xml_escape(line.name));
    for (const auto& [from, into] : line.arrows) {
      const std::size_t f = picture_.tree().index(from);
      const std::size_t t = picture_.tree().index(into);
      if (f == TopologyTree::kNone || t == TopologyTree::kNone || !boxes[f].placed ||
          !boxes[t].placed)
        continue;
      const Box& a = boxes[f];
      const Box& b = boxes[t];
      const double dx = b.middle_x() - a.middle_x();
      const double dy = b.middle_y() - a.middle_y();
      const double length = std::max(1.0, std::hypot(dx, dy));
      // To the left of its direction, so that arrows there and back, and those of other lines, lie
      // apart.
      const double bend = 10 + 9 * static_cast<double>(k % 8);
      const double x = a.middle_x() + dx / 2 + dy / length * bend;
      const double y = a.middle_y() + dy / 2 - dx / length * bend;
      const auto [x1, y1] = leave(a, x, y);
      const auto [x2, y2] = leave(b, x, y);
      top = std::min(top, curve_top(y1, y, y2));
      fmt::format_to(
          to,
          "<path d=\"M{:.0f} {:.0f}Q{:.0f} {:.0f} {:.0f} {:.0f}\" marker-end=\"url(#arrow{})\"/>\n",
          x1, y1, x, y, x2, y2, k % kColours.size());
    }
    text += "</g>\n";
  }
  return text;
}

std::string Overlay::legend(double& x, double& y) const {
  std::string text;
  auto to = std::back_inserter(text);
  double right = x;
  const auto words = [&](const std::string& line, double indent) {
    for (const std::string& part : wrapped(line)) {
      fmt::format_to(to, "<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", x + indent, y + 4,
                     xml_escape(part));
      right = std::max(right, x + indent + kLetter * static_cast<double>(part.size()));
      y += kLine;
    }
  };
  for (std::size_t k = 0; k < what_.lines.size(); ++k) {
    fmt::format_to(
        to, "<path d=\"M{:.0f} {:.0f}h26\" stroke=\"{}\" style=\"stroke-width:3;opacity:1\"/>", x,
        y, colour(k));
    words(what_.lines[k].name, 34);
  }
  for (std::size_t i = 0; i < what_.legend.size(); ++i) {
    if (i == 0 && !what_.marked.empty()) {
      fmt::format_to(to,
                     "<rect class=\"cut\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"26\" height=\"10\" "
                     "rx=\"3\" fill=\"#fff\"/>",
                     x, y - 5);
    }
    words(what_.legend[i], 34);
  }
  x = right;
  return text;
}

std::string Overlay::definitions() const {
  std::string text =
      "<style>path.under{opacity:.35;stroke-width:1}rect.cut,path.cut{stroke:#e8a000;stroke-width:"
      "3;"
      "stroke-dasharray:7 3;opacity:1}g.line path{stroke-width:1.7;opacity:.9}g.line:hover "
      "path{stroke-width:4}"
      "</style>\n<defs>";
  for (std::size_t k = 0; k < std::min(kColours.size(), what_.lines.size()); ++k) {
    fmt::format_to(std::back_inserter(text),
                   "<marker id=\"arrow{}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                   "markerWidth=\"8\" markerHeight=\"8\" "
                   "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" "
                   "style=\"fill:{};opacity:1;"
                   "stroke:none\"/></marker>",
                   k, colour(k));
  }
  return text + "</defs>\n";
}

}  // namespace topocoll
