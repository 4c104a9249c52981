#include "topology/figure_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

namespace topocoll {
namespace {

struct Unit {
  const char* name;
  double size;
};
/// The first unit of a row is the figure's own.
constexpr std::array<Unit, 1> kBandwidth = {{{"GB/s", 1}}};
constexpr std::array<Unit, 4> kLatency = {{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};

/// Four digits, and never an exponent.
std::string digits(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

/// In the largest unit of which there is one at least.
Unit unit_of(double value, std::span<const Unit> units) {
  const auto larger = std::find_if(units.begin() + 1, units.end(),
                                   [value](const Unit& u) { return value < u.size; });
  return *std::prev(larger);
}

std::string value_text(double value, std::span<const Unit> units) {
  const Unit unit = unit_of(value, units);
  return fmt::format("{} {}", digits(value / unit.size), unit.name);
}

/// " (170 to 172)", in the unit of the measured value.
std::string interval_text(const Figure& figure, std::span<const Unit> units) {
  if (!figure.measured || !figure.spread) return "";
  const Unit unit = unit_of(*figure.measured, units);
  return fmt::format(" ({} to {})", digits(figure.spread->low / unit.size),
                     digits(figure.spread->high / unit.size));
}

std::string figure_text(const Figure& figure, std::span<const Unit> units) {
  std::string text;
  if (figure.declared) text = value_text(*figure.declared, units) + " declared";
  if (!figure.measured) return text;
  return text + (text.empty() ? "" : ", ") + value_text(*figure.measured, units) + " measured" +
         interval_text(figure, units);
}

}  // namespace

std::string figure_word(std::string_view name) {
  if (name == "bandwidth_gbps") return "stores";
  if (name == kDuplexGbps) return "both ways at once";
  if (name == kClassGbps) return "all at once";
  std::string words(name.substr(0, name.rfind('_')));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string bandwidth_text(const Figure& figure) { return figure_text(figure, kBandwidth); }
std::string latency_text(const Figure& figure) { return figure_text(figure, kLatency); }

std::vector<std::string> transfer_texts(const TopologyEdge& edge, bool from_memory) {
  std::vector<std::string> texts;
  const auto add = [&](const std::string& words, const Figure& figure, bool time) {
    const std::span<const Unit> units = time ? std::span<const Unit>(kLatency) : kBandwidth;
    if (!figure.measured) return;
    texts.push_back(words + " " + value_text(*figure.measured, units) +
                    interval_text(figure, units));
  };
  if (!edge.fault.empty()) texts.push_back("WRONG DATA: " + edge.fault);
  add(from_memory ? "loads" : figure_word("bandwidth_gbps"), edge.bandwidth_gbps, false);
  add(figure_word("latency_ns"), edge.latency_ns, true);
  for (const auto& [name, figure] : edge.figures)
    add(figure_word(name), figure, name.ends_with("_ns"));
  return texts;
}

std::string transfer_brief(const TopologyEdge& edge, bool from_memory) {
  TopologyEdge brief = edge;
  brief.figures.clear();
  brief.bandwidth_gbps.spread.reset();
  brief.latency_ns.spread.reset();
  return fmt::format("{}", fmt::join(transfer_texts(brief, from_memory), ", "));
}

}  // namespace topocoll
