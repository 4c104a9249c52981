// Table: coll_perf's text output, in the format of nccl-tests.
//
// Thread rule: pure functions. Failure rule: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coll_perf/arguments.h"
#include "coll_perf/shape.h"

namespace topocoll::perf {

/// Statistics of the iterations of one cell, each the maximum over ranks; microseconds.
struct IterationStats {
  std::vector<double> times_us;                  ///< in order
  std::vector<std::vector<double>> per_rank_us;  ///< [rank][iteration]
  double min_us = 0;
  double max_us = 0;
  double mean_us = 0;
  double p50_us = 0;
  double p95_us = 0;
  double p99_us = 0;
  double deviation_us = 0;
  [[nodiscard]] double variation_percent() const {
    return mean_us > 0 ? 100 * deviation_us / mean_us : 0;
  }
};
IterationStats iteration_stats(const std::vector<std::vector<double>>& per_rank_us);

/// One half of a row.
struct Cell {
  double time_us = 0;
  double algbw = 0;  ///< 10^9 bytes per second
  double busbw = 0;
  std::optional<std::uint64_t> wrong;  ///< nothing: not checked
  std::optional<IterationStats> iterations;
};

struct Row {
  Collective test = Collective::kAllReduce;
  Shape shape;
  DataType type = DataType::kF32;
  std::optional<ReduceOp> op;  ///< nothing where nothing is reduced
  int root = -1;               ///< -1 where there is none
  Cell out_of_place;
  std::optional<Cell> in_place;  ///< nothing: the test has no such form
};

/// One line of "# Using devices".
struct RankInfo {
  int rank = 0;
  int pid = 0;
  std::string host;
  int cpu = -1;  ///< -1: not pinned
  std::string cpu_model;
};

/// What is printed about a message's path.
struct AlgorithmBand {
  std::size_t min_bytes = 0;
  std::size_t max_bytes = 0;
  std::string algorithm;
  int channels = 1;
  std::string transport;
};

/// `value` in `width` columns: as many of 2, 1 and 0 decimals as fit, else an exponent.
std::string number(double value, int width);

std::string render_preamble(const Arguments& arguments, Collective test,
                            const std::vector<RankInfo>& ranks);
std::string render_bands(const std::vector<AlgorithmBand>& bands);
std::string render_header(const Arguments& arguments);
/// With a line break; `now` is the time stamp that -S appends.
std::string render_row(const Arguments& arguments, const Row& row, const std::string& now);

/// What the footer says about a table.
struct Summary {
  std::uint64_t wrong = 0;
  double mean_busbw = 0;
  std::optional<double> required_busbw;  ///< below 0.9 of it the run has failed
  [[nodiscard]] bool bandwidth_ok() const {
    return !required_busbw || mean_busbw >= 0.9 * *required_busbw;
  }
  [[nodiscard]] bool ok() const { return wrong == 0 && bandwidth_ok(); }
};
Summary summarize(const std::vector<Row>& rows, std::optional<double> required_busbw);
std::string render_footer(Collective test, const Summary& summary);

/// "2026-01-31 23:59:59", local time.
std::string time_stamp();

}  // namespace topocoll::perf
