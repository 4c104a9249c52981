#include "doctor_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace topocoll::tools {
namespace {

/// Codes of findings that the process's environment causes, not the machine.
constexpr std::array<std::string_view, 4> kLimitCodes = {"shm-small", "memlock-low", "cpuset",
                                                         "gpus-hidden"};

/// An exchange of flags per rank and phase, with as much again for everything else, is a few; this
/// leaves room for a busy machine.
constexpr double kSlowFlags = 50;
constexpr double kSlowAnywayUs = 20;
/// Of what one CPU reads of memory, divided by the ranks: an all-reduce reads and writes several times.
constexpr double kLowShare = 0.2;

constexpr const char* kCpusAreTaken =
    "other processes use these CPUs (top), or a hypervisor takes them away (the st column of "
    "vmstat)";

using Sections = std::array<std::pair<const char*, const std::vector<Finding>*>, 4>;

Sections sections(const DoctorReport& report) {
  return {{{"environment", &report.environment},
           {"machine", &report.machine},
           {"correctness", &report.correctness},
           {"speed", &report.speed}}};
}

std::string size_words(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= std::size_t{1} << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

/// The largest, or the smallest, figure of a kind of edges; nothing if none was measured.
template <class Figure_of>
std::optional<double> extreme(const Topology& t, const char* kind, bool largest,
                              Figure_of figure_of) {
  std::optional<double> found;
  for (const TopologyEdge& edge : t.edges) {
    const std::optional<double> value = edge.kind == kind ? figure_of(edge) : std::nullopt;
    if (value && (!found || (largest ? *value > *found : *value < *found))) found = value;
  }
  return found;
}

std::string timing_lines(const RanksReport& ranks) {
  std::string text;
  for (const SizeTiming& t : ranks.timings) {
    text += fmt::format("   {:>8}  {:>10.2f} us  best {:>10.2f} us", size_words(t.bytes),
                        t.median_us, t.best_us);
    if (t.bytes >= 1024)
      text += fmt::format("  {:>7.2f} GB/s, busbw {:.2f}", t.algbw_gbps(), ranks.busbw_gbps(t));
    text += '\n';
  }
  return text;
}

}  // namespace

bool DoctorReport::healthy() const {
  const Sections all = sections(*this);
  return std::all_of(all.begin(), all.end(), [](const auto& section) {
    return std::all_of(section.second->begin(), section.second->end(),
                       [](const Finding& f) { return f.severity == Severity::kInfo; });
  });
}

void add_topology_findings(const Topology& topology, DoctorReport& report) {
  for (Finding& finding : check_topology(topology)) {
    const bool limit =
        std::find(kLimitCodes.begin(), kLimitCodes.end(), finding.code) != kLimitCodes.end();
    (limit ? report.environment : report.machine).push_back(std::move(finding));
  }
}

std::string why_speed_is_not_judged(const RanksReport& ranks, const Topology& probed) {
  const auto host = probed.of_kind(NodeKind::kHost);
  const std::size_t cpus = host.empty() ? 0 : host.front()->cpus.size();
  if (ranks.ranks < 2) return "one rank exchanges nothing";
  if (static_cast<std::size_t>(ranks.ranks) > cpus) {
    return fmt::format("{} ranks share {} CPU{}", ranks.ranks, cpus, cpus == 1 ? "" : "s");
  }
  return ranks.timings.empty() ? "nothing was timed" : "";
}

std::vector<Finding> judge_speed(const RanksReport& ranks, const Topology& probed) {
  std::vector<Finding> found;
  if (!why_speed_is_not_judged(ranks, probed).empty()) return found;
  const auto flag_ns =
      extreme(probed, "coherence", true, [](const auto& e) { return e.latency_ns.measured; });
  const SizeTiming& small = ranks.timings.front();
  if (flag_ns && small.median_us > kSlowAnywayUs && small.median_us * 1e3 > kSlowFlags * *flag_ns) {
    found.push_back(
        {"latency-high",
         Severity::kWarning,
         {"host"},
         fmt::format(
             "an all_reduce of {} takes {:.1f} us, {:.0f} exchanges of flags between these CPUs",
             size_words(small.bytes), small.median_us, small.median_us * 1e3 / *flag_ns),
         fmt::format("median of {} ranks; {:.0f} ns for a flag", ranks.ranks, *flag_ns),
         {},
         kCpusAreTaken});
  }
  const auto memory =
      extreme(probed, "memory", false, [](const auto& e) { return e.bandwidth_gbps.measured; });
  const SizeTiming& large = ranks.timings.back();
  const double least_gbps = kLowShare * memory.value_or(0) / ranks.ranks;
  if (large.bytes >= std::size_t{1} << 20 && large.algbw_gbps() < least_gbps) {
    // Memory that was fast enough once is not to blame for the other runs.
    const bool once_fast = large.best_gbps() >= least_gbps;
    found.push_back(
        {"bandwidth-low",
         Severity::kWarning,
         {"host"},
         fmt::format("an all_reduce of {} reaches {:.2f} GB/s where memory gives a CPU {:.1f} GB/s",
                     size_words(large.bytes), large.algbw_gbps(), *memory),
         fmt::format("median of {} ranks; the limit is {:.2f} GB/s, the best run had {:.2f} GB/s",
                     ranks.ranks, least_gbps, large.best_gbps()),
         {},
         once_fast ? kCpusAreTaken
                   : "see what else uses memory, and whether ranks run near their memory (numactl "
                     "--show)"});
  }
  return found;
}

std::string render_text(const DoctorReport& report) {
  const int ranks = report.ranks.ranks;
  const std::array<std::string, 4> titles = {
      "environment and limits", report.host.empty() ? "machine" : "machine " + report.host,
      ranks == 0 ? "all_reduce among rank processes"
                 : fmt::format("all_reduce among {} rank process{}", ranks, ranks == 1 ? "" : "es"),
      "latency and bandwidth"};
  const Sections all = sections(report);
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, findings] = all[i];
    std::string verdict = findings->empty() ? " nothing is wrong" : "";
    if (const auto skipped = report.not_looked_at.find(name);
        skipped != report.not_looked_at.end()) {
      const bool timed = findings == &report.speed && !report.ranks.failure && ranks > 0;
      verdict = (timed ? " not judged: " : " not looked at: ") + skipped->second;
    }
    text += fmt::format("{}. {}:{}\n", i + 1, titles[i], verdict);
    text += topocoll::render_text(*findings);
  }
  text += timing_lines(report.ranks);
  if (!report.ranks.tuning.empty()) text += "   " + report.ranks.tuning + "\n";
  return text + (report.healthy() ? "healthy\n"
                                  : "see the warnings and errors above, the first ones first\n");
}

std::string to_json(const DoctorReport& report) {
  nlohmann::ordered_json json = {{"topocoll_doctor", 1},
                                 {"healthy", report.healthy()},
                                 {"host", report.host},
                                 {"fingerprint", report.fingerprint},
                                 {"plan_fingerprint", report.plan_fingerprint},
                                 {"findings", nlohmann::ordered_json::object()},
                                 {"not_looked_at", report.not_looked_at}};
  for (const auto& [name, findings] : sections(report)) {
    json["findings"][name] = nlohmann::ordered_json::parse(topocoll::to_json(*findings));
  }
  auto timings = nlohmann::ordered_json::array();
  for (const SizeTiming& t : report.ranks.timings) {
    timings.push_back({{"bytes", t.bytes},
                       {"median_us", t.median_us},
                       {"best_us", t.best_us},
                       {"algbw_gbps", t.algbw_gbps()},
                       {"busbw_gbps", report.ranks.busbw_gbps(t)}});
  }
  json["all_reduce"] = {{"ranks", report.ranks.ranks},
                        {"verified", report.ranks.ranks > 0 && !report.ranks.failure.has_value()},
                        {"tuning", report.ranks.tuning},
                        {"timings", std::move(timings)}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace topocoll::tools
