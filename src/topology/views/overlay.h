// What is drawn over a picture: arrows, a cut, their legend; and the places of boxes where the
// machine has no tree that gives them. Thread rule: values and free functions. Failure rule: none;
// ids that are not drawn are left out.
#pragma once

#include <string>
#include <vector>

#include "topocoll/topology_formats.h"
#include "topology/views/picture.h"

namespace topocoll {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  bool placed = false;
  [[nodiscard]] double middle_x() const { return x + width / 2; }
  [[nodiscard]] double middle_y() const { return y + height / 2; }
};

/// The least y on a quadratic curve from y1 to y2 with the control point's y.
double curve_top(double y1, double control, double y2);

class Overlay {
 public:
  Overlay(const PictureOverlay& what, const Picture& picture) : what_(what), picture_(picture) {}

  /// Whether there is anything to draw.
  [[nodiscard]] bool on() const { return !what_.title.empty(); }
  /// Whether the nodes are better placed on a circle.
  [[nodiscard]] bool wants_circle(const std::vector<std::size_t>& roots) const;
  /// Places measured boxes below `y`; `right` and `y` become the ends of what they cover.
  void place_on_circle(const std::vector<std::size_t>& roots, std::vector<Box>& boxes,
                       double& right, double& y) const;

  [[nodiscard]] bool is_marked(std::size_t node) const;
  [[nodiscard]] bool crosses_cut(std::size_t a, std::size_t b) const {
    return is_marked(a) != is_marked(b);
  }
  /// `top` becomes the least y of an arrow, if that is less.
  [[nodiscard]] std::string arrows(const std::vector<Box>& boxes, double& top) const;
  /// From (x, y) downwards; both become its ends.
  [[nodiscard]] std::string legend(double& x, double& y) const;
  /// Styles and arrow heads.
  [[nodiscard]] std::string definitions() const;
  [[nodiscard]] const PictureOverlay& what() const { return what_; }

  static const char* colour(std::size_t line);

 private:
  void place_switches(const std::vector<std::size_t>& switches, std::vector<Box>& boxes) const;

  const PictureOverlay& what_;
  const Picture& picture_;
};

}  // namespace topocoll
