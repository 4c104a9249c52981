// A PlanningReport as arrows over the picture of its machine.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "topocoll/planning.h"

namespace topocoll {
namespace {

/// More would hide each other.
constexpr std::size_t kMostLines = 8;
constexpr std::size_t kMostArrows = 64;

PictureLine drawn(const PlannedRing& ring, std::size_t number) {
  PictureLine line{fmt::format("ring {}: {:.4g} GB/s", number, ring.gbps), {}};
  for (std::size_t i = 0; i < ring.order.size(); ++i) {
    line.arrows.emplace_back(ring.order[i], ring.order[(i + 1) % ring.order.size()]);
  }
  return line;
}

/// From rank to rank: the switches between them are where they are.
PictureLine drawn(const PlannedTree& tree, const std::set<std::string>& ranks) {
  PictureLine line{fmt::format("tree {} {}: {:.4g} GB/s", tree.toward_root ? "into" : "from",
                               tree.root, tree.gbps),
                   {}};
  std::string start;
  for (const auto& [from, to] : tree.edges) {
    if (ranks.contains(from)) start = from;
    if (ranks.contains(to)) line.arrows.emplace_back(start, to);
  }
  return line;
}

}  // namespace

PictureOverlay picture_of(const PlanningReport& report) {
  PictureOverlay overlay;
  overlay.title = fmt::format("{} by {}: {:.4g} of {:.4g} GB/s", name(report.kind),
                              report.algorithm, report.plan_gbps, report.bound_gbps);
  std::vector<PictureLine> lines;
  for (const PlannedRing& ring : report.rings) lines.push_back(drawn(ring, lines.size() + 1));
  const std::set<std::string> ranks(report.ranks.begin(), report.ranks.end());
  std::vector<const PlannedTree*> trees;
  for (const PlannedTree& tree : report.trees) trees.push_back(&tree);
  std::stable_sort(trees.begin(), trees.end(),
                   [](const PlannedTree* a, const PlannedTree* b) { return a->gbps > b->gbps; });
  for (const PlannedTree* tree : trees) lines.push_back(drawn(*tree, ranks));
  const std::size_t all = lines.size();
  std::size_t arrows = 0;
  std::size_t shown = 0;
  while (shown < std::min(all, kMostLines) &&
         (shown == 0 || arrows + lines[shown].arrows.size() <= kMostArrows)) {
    arrows += lines[shown++].arrows.size();
  }
  lines.resize(shown);
  overlay.lines = std::move(lines);
  overlay.order = report.rings.empty() ? report.ranks : report.rings.front().order;
  overlay.marked.insert(report.cut.begin(), report.cut.end());
  if (!report.bottleneck.empty()) overlay.legend.push_back("bottleneck: " + report.bottleneck);
  overlay.legend.push_back(fmt::format("bound {} GB/s", report.bound));
  if (all > shown)
    overlay.legend.push_back(fmt::format("and {} more that are not drawn", all - shown));
  if (all == 0) overlay.legend.push_back("every rank sends to every other");
  return overlay;
}

}  // namespace topocoll
