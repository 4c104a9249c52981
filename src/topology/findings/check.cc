#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <tuple>

#include "base/plain_text.h"
#include "topology/checked_json.h"
#include "topology/findings/rules.h"

namespace topocoll {
namespace {

constexpr std::array<std::string_view, 3> kSeverities = {"info", "warning", "error"};

double percent(const FindingEffect& e) { return 100 * (e.gbps / e.mended_gbps - 1); }

std::string effects_json(const std::vector<FindingEffect>& effects) {
  std::string text;
  for (const FindingEffect& e : effects) {
    text += fmt::format(
        "{}{{\"collective\": \"{}\", \"gbps\": {:.4f}, \"mended_gbps\": {:.4f}, \"percent\": "
        "{:.1f}}}",
        text.empty() ? "" : ", ", e.collective, e.gbps, e.mended_gbps, percent(e));
  }
  return "\"effects\": [" + text + "], ";
}

}  // namespace

std::string_view name(Severity severity) {
  const auto index = static_cast<std::size_t>(severity);
  return index < kSeverities.size() ? kSeverities[index] : "?";
}

std::optional<double> FindingRules::number(const TopologyNode& node, const char* key) {
  const std::string& text = node.attribute(key);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

bool FindingRules::has_rdma() const {
  return std::any_of(topology_.nodes.begin(), topology_.nodes.end(),
                     [](const TopologyNode& n) { return n.attributes.contains("rdma"); });
}

std::vector<Finding> FindingRules::take() {
  pcie_links();
  slow_bridges();
  slow_measurements();
  switch_links();
  error_counters();
  access_control();
  ports();
  slow_network_pairs();
  unreached_hosts();
  numa_nodes();
  local_cpus();
  far_nics();
  nearest_memories();
  doubled_devices();
  gpu_memory();
  gpu_throttling();
  gpu_links();
  wrong_data();
  slow_gpu_pairs();
  slow_gpu_memory();
  wrong_tree();
  flat_tree();
  detours();
  slow_cpu_pairs();
  slow_memory();
  shared_memory();
  locked_memory();
  cpus();
  hidden_gpus();
  std::sort(findings_.begin(), findings_.end(), [](const Finding& a, const Finding& b) {
    return std::tie(b.severity, a.code, a.nodes, a.text) <
           std::tie(a.severity, b.code, b.nodes, b.text);
  });
  return std::move(findings_);
}

std::vector<Finding> check_topology(const Topology& topology) {
  return FindingRules(topology).take();
}

std::string render_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings) {
    auto to = std::back_inserter(text);
    fmt::format_to(to, "{} {}: {}", name(f.severity), f.code, f.text);
    if (f.loss_percent) fmt::format_to(to, " (loses {:.0f} %)", *f.loss_percent);
    text += '\n';
    if (!f.evidence.empty()) fmt::format_to(to, "  seen: {}\n", f.evidence);
    for (const FindingEffect& e : f.effects) {
      fmt::format_to(to, "  cost: {} {:.3g} instead of {:.3g} GB/s ({:+.1f} %)\n", e.collective,
                     e.gbps, e.mended_gbps, percent(e));
    }
    if (!f.fix.empty()) fmt::format_to(to, "  fix:  {}\n", f.fix);
  }
  return plain_text(std::move(text));
}

std::string to_json(const std::vector<Finding>& findings) {
  std::string text = "[";
  const char* separator = "\n  ";
  for (const Finding& f : findings) {
    std::string nodes;
    for (const std::string& id : f.nodes) nodes += (nodes.empty() ? "" : ", ") + json_quote(id);
    fmt::format_to(std::back_inserter(text),
                   "{}{{\"code\": {}, \"severity\": \"{}\", \"nodes\": [{}], \"text\": {}, "
                   "\"evidence\": {}, ",
                   separator, json_quote(f.code), name(f.severity), nodes, json_quote(f.text),
                   json_quote(f.evidence));
    if (f.loss_percent) {
      fmt::format_to(std::back_inserter(text), "\"loss_percent\": {:.1f}, ", *f.loss_percent);
    }
    if (!f.effects.empty()) text += effects_json(f.effects);
    text += "\"fix\": " + json_quote(f.fix) + "}";
    separator = ",\n  ";
  }
  return text + "]\n";
}

}  // namespace topocoll
