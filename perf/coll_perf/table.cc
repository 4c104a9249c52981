#include "coll_perf/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "topocoll/version.h"

namespace topocoll::perf {
namespace {

/// The nearest-rank percentile of ascending values.
double percentile(const std::vector<double>& sorted, double percent) {
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

std::string column_words(const Arguments& a, bool units) {
  const std::string_view time = units ? "(us)" : (a.cpu_time ? "cputime" : "time");
  std::string text = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, units ? "(GB/s)" : "algbw",
                                 units ? "(GB/s)" : "busbw", units ? "" : "#wrong");
  if (a.per_iteration) {
    text += units ? fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", "(us)", "(us)", "(us)", "(%)")
                  : fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", "i_min", "i_max", "i_p99", "i_cv%");
  }
  return text;
}

std::string header_line(std::string_view size, std::string_view count, std::string_view type,
                        std::string_view op, std::string_view root) {
  return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
}

std::string render_cell(const Arguments& a, const Cell& cell) {
  std::string text = fmt::format("  {}  {}  {}", number(cell.time_us, 7), number(cell.algbw, 6),
                                 number(cell.busbw, 6));
  // %g keeps a huge count within its column.
  text += cell.wrong ? fmt::format("  {:>6g}", static_cast<double>(*cell.wrong))
                     : fmt::format("  {:>6}", "N/A");
  if (a.per_iteration && cell.iterations) {
    const IterationStats& i = *cell.iterations;
    text += fmt::format("  {}  {}  {}  {}", number(i.min_us, 7), number(i.max_us, 7),
                        number(i.p99_us, 7), number(i.variation_percent(), 7));
  }
  return text;
}

std::string render_absent_cell(const Arguments& a) {
  std::string text = fmt::format("  {0:>7}  {0:>6}  {0:>6}  {0:>6}", "N/A");
  if (a.per_iteration) text += fmt::format("  {0:>7}  {0:>7}  {0:>7}  {0:>7}", "N/A");
  return text;
}

}  // namespace

IterationStats iteration_stats(const std::vector<std::vector<double>>& per_rank_us) {
  IterationStats stats;
  stats.per_rank_us = per_rank_us;
  stats.times_us = per_rank_us.front();
  for (const auto& times : per_rank_us) {
    for (std::size_t i = 0; i < times.size(); ++i) {
      stats.times_us[i] = std::max(stats.times_us[i], times[i]);
    }
  }
  std::vector<double> sorted = stats.times_us;
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(sorted.size());
  stats.min_us = sorted.front();
  stats.max_us = sorted.back();
  for (const double t : sorted) stats.mean_us += t / count;
  for (const double t : sorted) {
    stats.deviation_us += (t - stats.mean_us) * (t - stats.mean_us) / count;
  }
  stats.deviation_us = std::sqrt(stats.deviation_us);
  stats.p50_us = percentile(sorted, 50);
  stats.p95_us = percentile(sorted, 95);
  stats.p99_us = percentile(sorted, 99);
  return stats;
}

std::string number(double value, int width) {
  // By whole digits: as a column fills up, the decimals go first.
  int digits = 0;
  for (double power = 1; value >= power && digits < 400; power *= 10) ++digits;
  if (digits < width - 2) return fmt::format("{:{}.2f}", value, width);
  if (digits < width - 1) return fmt::format("{:{}.1f}", value, width);
  if (digits <= width) return fmt::format("{:{}.0f}", value, width);
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string render_preamble(const Arguments& a, Collective test,
                            const std::vector<RankInfo>& ranks) {
  std::string text = fmt::format("# topocoll version {} build {}\n", version(), build_id());
  text += fmt::format("# Collective test starting: {}_perf\n", name(test));
  const bool factor = a.step_factor > 1;
  text += fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
      "iters: "
      "{} validation: {} graph: 0 unalign: {}\n",
      a.threads, a.gpus, a.min_bytes, a.max_bytes,
      factor ? static_cast<std::size_t>(a.step_factor) : a.step_bytes, factor ? "factor" : "bytes",
      a.warmup, a.iterations, a.aggregate, a.checks, a.unalign);
  if (a.blocking == 1) text += "# Blocking Enabled: a barrier after each operation\n";
  if (a.per_iteration) text += "# Per-Iteration Report: i_* is of the maximum over ranks\n";
  text += "#\n# Using devices\n";
  for (const RankInfo& r : ranks) {
    const std::string cpu = r.cpu < 0 ? "cpu:any" : fmt::format("cpu:{}", r.cpu);
    text += fmt::format("#  Rank {:>2} Group  0 Pid {:>6} on {:>10} device {:>2} [{}] {}\n", r.rank,
                        r.pid, r.host, r.cpu < 0 ? r.rank : r.cpu, cpu, r.cpu_model);
  }
  return text;
}

std::string render_bands(const std::vector<AlgorithmBand>& bands) {
  std::string text;
  for (const AlgorithmBand& b : bands) {
    text += fmt::format("# algorithm {}..{} B: {}, {} channel{}, {}\n", b.min_bytes, b.max_bytes,
                        b.algorithm, b.channels, b.channels == 1 ? "" : "s", b.transport);
  }
  return text;
}

std::string render_header(const Arguments& a) {
  std::string text = "#\n" + header_line("", "", "", "", "");
  if (a.per_iteration) {
    text += fmt::format("{:14}{:64}{:6}{}\n", "", "out-of-place (+ per-iteration)", "",
                        "in-place (+ per-iteration)");
  } else {
    text += fmt::format("{:11}{:12}{:23}{:8}{:10}\n", "", "out-of-place", "", "in-place", "");
  }
  const std::string stamp = a.timestamps ? fmt::format("  {:>19}", "timestamp") : "";
  const std::string stamp_form = a.timestamps ? fmt::format("  {:>19}", "Y-m-d H:M:S") : "";
  text += header_line("size", "count", "type", "redop", "root") + column_words(a, false) +
          column_words(a, false) + stamp + "\n";
  text += header_line("(B)", "(elements)", "", "", "") + column_words(a, true) +
          column_words(a, true) + stamp_form + "\n";
  return text;
}

std::string render_row(const Arguments& a, const Row& row, const std::string& now) {
  std::string text =
      fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.shape.row_bytes, row.shape.count,
                  type_name(row.type), row.op ? op_name(*row.op) : "none", row.root);
  text += render_cell(a, row.out_of_place);
  text += row.in_place ? render_cell(a, *row.in_place) : render_absent_cell(a);
  if (a.timestamps) text += fmt::format("  {:>19}", now);
  return text + "\n";
}

Summary summarize(const std::vector<Row>& rows, std::optional<double> required_busbw) {
  Summary summary;
  summary.required_busbw = required_busbw;
  double total = 0;
  double cells = 0;
  const auto add = [&](const Cell& cell) {
    total += cell.busbw;
    ++cells;
    summary.wrong += cell.wrong.value_or(0);
  };
  for (const Row& row : rows) {
    add(row.out_of_place);
    if (row.in_place) add(*row.in_place);
  }
  if (cells > 0) summary.mean_busbw = total / cells;
  return summary;
}

std::string render_footer(Collective test, const Summary& summary) {
  const std::string_view verdict =
      !summary.required_busbw ? "" : (summary.bandwidth_ok() ? "OK" : "FAILED");
  return fmt::format(
      "# {:<20} : {} {}\n# {:<20} : {:g} {}\n#\n# Collective test concluded: {}_perf\n#\n",
      "Out of bounds values", summary.wrong, summary.wrong == 0 ? "OK" : "FAILED",
      "Avg bus bandwidth", summary.mean_busbw, verdict, name(test));
}

std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

}  // namespace topocoll::perf
