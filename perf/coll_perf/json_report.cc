#include "coll_perf/json_report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "topocoll/version.h"

namespace topocoll::perf {
namespace {

using Json = nlohmann::ordered_json;

// nccl-tests writes truth values as strings, and its readers expect them.
std::string truth(bool value) { return value ? "true" : "false"; }

Json config(const Arguments& a, const std::vector<RankInfo>& ranks) {
  Json c = {{"nthreads", a.threads},
            {"ngpus", a.gpus},
            {"minimum_bytes", a.min_bytes},
            {"maximum_bytes", a.max_bytes}};
  if (a.step_factor > 1) {
    c["step_factor"] = a.step_factor;
  } else {
    c["step_bytes"] = a.step_bytes;
  }
  c["warmup_iters"] = a.warmup;
  c["iterations"] = a.iterations;
  c["aggregated_iterations"] = a.aggregate;
  c["validation"] = a.checks;
  c["graph"] = 0;
  c["blocking_collectives"] = truth(a.blocking != 0);
  c["per_iter_timing"] = truth(a.per_iteration);
  c["per_iter_skip"] = a.per_iteration_skip;
  c["parallel_init"] = truth(a.parallel_init);
  c["devices"] = Json::array();
  for (const RankInfo& r : ranks) {
    c["devices"].push_back({{"rank", r.rank},
                            {"group", 0},
                            {"pid", r.pid},
                            {"hostname", r.host},
                            {"device", r.cpu < 0 ? r.rank : r.cpu},
                            {"device_hex", r.cpu < 0 ? "cpu:any" : fmt::format("cpu:{}", r.cpu)},
                            {"device_info", r.cpu_model}});
  }
  return c;
}

Json cell(const Arguments& a, const Cell& c) {
  Json json = {
      {a.cpu_time ? "cpu_time" : "time", c.time_us}, {"alg_bw", c.algbw}, {"bus_bw", c.busbw}};
  json["nwrong"] = c.wrong ? Json(static_cast<double>(*c.wrong)) : Json(nullptr);
  return json;
}

Json iterations(const Arguments& a, const IterationStats& i) {
  return {{"skipped_iterations", a.per_iteration_skip},
          {"min_us", i.min_us},
          {"max_us", i.max_us},
          {"avg_us", i.mean_us},
          {"p50_us", i.p50_us},
          {"p95_us", i.p95_us},
          {"p99_us", i.p99_us},
          {"stdev_us", i.deviation_us},
          {"cv_pct", i.variation_percent()},
          {"times_us", i.times_us},
          {"per_process_max_times_us", i.per_rank_us}};
}

Json result(const Arguments& a, const Row& row) {
  Json r = {{"size", row.shape.row_bytes},
            {"count", row.shape.count},
            {"type", type_name(row.type)},
            {"redop", row.op ? op_name(*row.op) : "none"},
            {"root", fmt::format("{:>6}", row.root)},
            {"out_of_place", cell(a, row.out_of_place)}};
  if (row.out_of_place.iterations) {
    r["out_of_place_per_iter"] = iterations(a, *row.out_of_place.iterations);
  }
  r["in_place"] = row.in_place ? cell(a, *row.in_place) : Json(nullptr);
  if (row.in_place && row.in_place->iterations) {
    r["in_place_per_iter"] = iterations(a, *row.in_place->iterations);
  }
  r["actual_iterations"] = a.iterations;
  r["experiment_name"] = fmt::format("{}_perf", name(row.test));
  return r;
}

}  // namespace

std::string render_json(const Arguments& a, const std::vector<RankInfo>& ranks,
                        const std::vector<Row>& rows, const Summary& summary,
                        const std::vector<std::string>& errors, const std::string& start_time,
                        const std::string& end_time) {
  Json report = {{"version", 3}, {"start_time", start_time}, {"args", a.command_line}};
  report["env"] = Json::array();
  report["topocoll_version"] = version();
  report["config"] = config(a, ranks);
  report["results"] = Json::array();
  for (const Row& row : rows) report["results"].push_back(result(a, row));
  report["out_of_bounds"] = {{"count", summary.wrong}, {"okay", truth(summary.wrong == 0)}};
  report["average_bus_bandwidth"] = {
      {"bandwidth", summary.mean_busbw},
      {"okay", summary.required_busbw ? truth(summary.bandwidth_ok()) : "unchecked"}};
  report["errors"] = errors;
  report["end_time"] = end_time;
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

JsonReport::JsonReport(std::unique_ptr<std::FILE, Close> file, std::string path)
    : file_(std::move(file)), path_(std::move(path)), start_time_(time_stamp()) {}

JsonReport::~JsonReport() {
  if (file_ != nullptr) std::remove(path_.c_str());
}

Result<JsonReport> JsonReport::open(const std::string& path) {
  std::string candidate = path;
  for (int n = 1;; ++n) {
    std::unique_ptr<std::FILE, Close> file(std::fopen(candidate.c_str(), "wxe"));
    if (file != nullptr) return JsonReport(std::move(file), candidate);
    if (errno != EEXIST || n > 10000) {
      return Status(Cause::kSystem,
                    fmt::format("cannot create {}: {}", candidate, std::strerror(errno)));
    }
    candidate = fmt::format("{}.{}", path, n);
  }
}

Status JsonReport::finish(const Arguments& arguments, const std::vector<RankInfo>& ranks,
                          const std::vector<Row>& rows, const Summary& summary,
                          const std::vector<std::string>& errors) {
  const std::string text =
      render_json(arguments, ranks, rows, summary, errors, start_time_, time_stamp());
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!written || std::fflush(file_.get()) != 0) {
    return Status(Cause::kSystem, fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
  file_.reset();
  return {};
}

}  // namespace topocoll::perf
