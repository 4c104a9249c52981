// Arrows, cut and legend over the picture of a machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "topocoll/topology_formats.h"
#include "topology/formats/machines.h"
#include "topology/formats/xml_text.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// GPUs g0 to g<n-1> on two switches that are linked.
Topology flat(int gpus) {
  Topology t;
  const auto link = [&](const std::string& a, const std::string& b) {
    t.edges.push_back({a, b, "link", {25.0, {}}, {}});
    t.edges.push_back({b, a, "link", {25.0, {}}, {}});
  };
  t.nodes = {{"s0", NodeKind::kSwitch}, {"s1", NodeKind::kSwitch}};
  link("s0", "s1");
  for (int g = 0; g < gpus; ++g) {
    t.nodes.push_back({"g" + std::to_string(g), NodeKind::kGpu});
    link("g" + std::to_string(g), g < gpus / 2 ? "s0" : "s1");
  }
  return t;
}

PictureOverlay ring(int gpus) {
  PictureOverlay overlay;
  overlay.title = "all_gather by ring";
  overlay.lines.push_back({"ring 1: 25 GB/s", {}});
  for (int g = 0; g < gpus; ++g) {
    overlay.lines[0].arrows.emplace_back("g" + std::to_string(g),
                                         "g" + std::to_string((g + 1) % gpus));
  }
  overlay.marked = {"g0", "s0"};
  overlay.legend = {"bottleneck: what passes between {g0} and the rest", "bound 25 GB/s"};
  return overlay;
}

struct Rect {
  double x, y, width, height;
};

std::vector<Rect> boxes(const std::string& svg) {
  const auto parsed = XmlText::parse(svg, "svg");
  EXPECT_TRUE(parsed.ok()) << parsed.status().text();
  std::vector<Rect> result;
  if (!parsed.ok()) return result;
  for (const pugi::xml_node group : parsed.value()->root().children("g")) {
    const pugi::xml_node rect = group.child("rect");
    if (!rect) continue;
    result.push_back({rect.attribute("x").as_double(), rect.attribute("y").as_double(),
                      rect.attribute("width").as_double(), rect.attribute("height").as_double()});
    EXPECT_GE(result.back().x, 0);
    EXPECT_GE(result.back().y, 0);
    EXPECT_LE(result.back().x + result.back().width,
              parsed.value()->root().attribute("width").as_double());
    EXPECT_LE(result.back().y + result.back().height,
              parsed.value()->root().attribute("height").as_double());
  }
  return result;
}

TEST(PictureOverlay, AFlatMachineStandsOnACircleAndNothingOverlaps) {
  for (const int gpus : {4, 8, 16}) {
    const std::vector<Rect> placed = boxes(render_svg(flat(gpus), {}, ring(gpus)));
    ASSERT_EQ(placed.size(), static_cast<std::size_t>(gpus + 2));
    for (std::size_t a = 0; a < placed.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        const bool apart = placed[a].x + placed[a].width < placed[b].x ||
                           placed[b].x + placed[b].width < placed[a].x ||
                           placed[a].y + placed[a].height < placed[b].y ||
                           placed[b].y + placed[b].height < placed[a].y;
        EXPECT_TRUE(apart) << gpus << ": " << a << " and " << b;
      }
    }
  }
}

TEST(PictureOverlay, ArrowsCutAndLegendAreDrawn) {
  const std::string svg = render_svg(flat(8), {}, ring(8));
  EXPECT_EQ(occurrences(svg, "marker-end"), 8U);
  EXPECT_EQ(occurrences(svg, "<marker "), 1U);
  for (const char* text :
       {"all_gather by ring", "ring 1: 25 GB/s", "bottleneck: what passes", "bound 25 GB/s"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  // g0 and s0 and the sample in the legend; what links them to the rest: s0 to s1 and to g1, g2,
  // g3.
  EXPECT_EQ(occurrences(svg, "<rect class=\"cut\"") + occurrences(svg, "class=\"cut\"/><text"), 3U);
  EXPECT_EQ(occurrences(svg, "class=\"cut\"><title>"), 4U);
  EXPECT_THAT(render_html(flat(8), {}, ring(8)), HasSubstr("marker-end"));
}

TEST(PictureOverlay, WithoutOneThePictureIsAsItWas) {
  const std::string svg = render_svg(flat(8), {});
  for (const char* text : {"marker", "under", "cut"}) EXPECT_THAT(svg, Not(HasSubstr(text)));
}

TEST(PictureOverlay, BoxesInBoxesStayWhereTheyAre) {
  const Topology t = hand_written("synthetic_h100_rails.xml");
  PictureOverlay overlay;
  overlay.title = "plan";
  const auto gpus = t.of_kind(NodeKind::kGpu);
  overlay.lines.push_back({"ring", {{gpus[0]->id, gpus[1]->id}, {gpus[1]->id, gpus[0]->id}}});
  const std::string svg = render_svg(t, {}, overlay);
  EXPECT_EQ(boxes(svg).size(), t.nodes.size());
  EXPECT_EQ(occurrences(svg, "marker-end"), 2U);
}

TEST(PictureOverlay, UnknownNodesAreLeftOutAndNamesAreQuoted) {
  PictureOverlay overlay = ring(4);
  overlay.lines.push_back({"<tree> \"&\"", {{"g0", "nowhere"}, {"", "g1"}}});
  overlay.marked.insert("nobody");
  overlay.order = {"g3", "nobody", "g1"};
  const std::string svg = render_svg(flat(4), {}, overlay);
  EXPECT_EQ(boxes(svg).size(), 6u);
  EXPECT_EQ(occurrences(svg, "marker-end"), 4U);
  EXPECT_THAT(svg, HasSubstr("&lt;tree&gt;"));
  EXPECT_TRUE(XmlText::parse(render_svg(Topology(), {}, overlay), "svg").ok());
}

TEST(PictureOverlay, GraphVizGetsArrowsToo) {
  const std::string dot = render_dot(flat(8), {}, ring(8));
  EXPECT_EQ(occurrences(dot, "dir=forward"), 8U);
  EXPECT_EQ(occurrences(dot, "color=orange, penwidth=3"), 2U);
  EXPECT_EQ(occurrences(dot, "color=\"orange\""), 4U);
  EXPECT_THAT(dot, HasSubstr("all_gather by ring"));
  EXPECT_THAT(render_dot(flat(8), {}), Not(HasSubstr("labelloc")));
}

}  // namespace
}  // namespace topocoll
