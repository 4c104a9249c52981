#include "coll_perf/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coll_perf/json_report.h"
#include "topocoll/version.h"

namespace topocoll::perf {
namespace {

Row sample_row() {
  Row row;
  row.shape = shape_of(Collective::kAllReduce, 33554432, 4, 2);
  row.op = ReduceOp::kSum;
  row.out_of_place = {
      .time_us = 2754.04, .algbw = 12.1837, .busbw = 12.1837, .wrong = 0, .iterations = {}};
  row.in_place =
      Cell{.time_us = 2600, .algbw = 12.9055, .busbw = 12.9055, .wrong = 3, .iterations = {}};
  return row;
}

TEST(PerfTable, NumbersFillTheirColumns) {
  EXPECT_EQ(number(0, 7), "   0.00");
  EXPECT_EQ(number(0.11, 7), "   0.11");
  EXPECT_EQ(number(13.657, 7), "  13.66");
  EXPECT_EQ(number(2754.04, 7), "2754.04");
  EXPECT_EQ(number(10000, 7), "10000.0");
  EXPECT_EQ(number(123456.7, 7), " 123457");
  EXPECT_EQ(number(1234567.8, 7), "1234568");
  EXPECT_EQ(number(123456789.0, 7), "1.2e+08");
  EXPECT_EQ(number(319.55, 6), "319.55");
  EXPECT_EQ(number(4321.04, 6), "4321.0");
  EXPECT_EQ(number(123456, 6), "123456");
  EXPECT_EQ(number(1234567, 6), " 1e+06");
}

TEST(PerfTable, GoldenTable) {
  const Arguments a;
  const std::string expected =
      "#\n"
      "#                                                              out-of-place                 "
      "      "
      "in-place          \n"
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
      "time   "
      "algbw   busbw  #wrong\n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
      "(us)  "
      "(GB/s)  (GB/s)        \n"
      "    33554432       8388608     float     sum      -1  2754.04   12.18   12.18       0  "
      "2600.00   "
      "12.91   12.91       3\n"
      "# Out of bounds values : 3 FAILED\n"
      "# Avg bus bandwidth    : 12.5446 \n"
      "#\n"
      "# Collective test concluded: all_reduce_perf\n"
      "#\n";
  const Row row = sample_row();
  EXPECT_EQ(render_header(a) + render_row(a, row, "") +
                render_footer(Collective::kAllReduce, summarize({row}, std::nullopt)),
            expected);
}

TEST(PerfTable, PreambleNamesVersionParametersAndRanks) {
  Arguments a;
  a.step_factor = 2;
  const std::string text =
      render_preamble(a, Collective::kAllGather,
                      {{0, 1234, "node", -1, "Some CPU"}, {1, 1235, "node", 1, "Some CPU"}});
  EXPECT_EQ(text.find("# topocoll version " + std::string(version())), 0U);
  const std::string rest = text.substr(text.find('\n') + 1);
  EXPECT_EQ(
      rest,
      "# Collective test starting: all_gather_perf\n"
      "# nThread 1 nGpus 1 minBytes 33554432 maxBytes 33554432 step: 2(factor) warmup iters: 1 "
      "iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0\n"
      "#\n"
      "# Using devices\n"
      "#  Rank  0 Group  0 Pid   1234 on       node device  0 [cpu:any] Some CPU\n"
      "#  Rank  1 Group  0 Pid   1235 on       node device  1 [cpu:1] Some CPU\n");
}

TEST(PerfTable, UncheckedAndAbsentCells) {
  const Arguments a;
  Row row = sample_row();
  row.out_of_place.wrong.reset();
  row.in_place.reset();
  EXPECT_EQ(render_row(a, row, ""),
            "    33554432       8388608     float     sum      -1  2754.04   12.18   12.18     N/A "
            "     N/A"
            "     N/A     N/A     N/A\n");
  row.op.reset();
  row.root = 2;
  EXPECT_NE(render_row(a, row, "").find("float    none       2"), std::string::npos);
}

TEST(PerfTable, OptionalColumnsKeepHeaderAndRowsAligned) {
  Arguments a;
  a.per_iteration = true;
  a.timestamps = true;
  a.cpu_time = true;
  Row row = sample_row();
  row.out_of_place.iterations = iteration_stats({{1, 2, 3}, {2, 1, 4}});
  row.in_place->iterations = row.out_of_place.iterations;
  const std::string header = render_header(a);
  const std::string line = render_row(a, row, "2026-01-31 23:59:59");
  EXPECT_NE(header.find("cputime"), std::string::npos);
  EXPECT_NE(header.find("i_min    i_max    i_p99    i_cv%"), std::string::npos);
  const std::size_t words = header.find("#       size");
  EXPECT_EQ(header.find('\n', words) - words, line.size() - 1);
  EXPECT_NE(line.find("   2.00     4.00     4.00"), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with("  2026-01-31 23:59:59\n"));
}

TEST(PerfTable, IterationStatistics) {
  const IterationStats s = iteration_stats({{1, 5, 3, 3}, {2, 4, 1, 6}});
  EXPECT_EQ(s.times_us, (std::vector<double>{2, 5, 3, 6}));
  EXPECT_DOUBLE_EQ(s.min_us, 2);
  EXPECT_DOUBLE_EQ(s.max_us, 6);
  EXPECT_DOUBLE_EQ(s.mean_us, 4);
  EXPECT_DOUBLE_EQ(s.p50_us, 3);
  EXPECT_DOUBLE_EQ(s.p99_us, 6);
  EXPECT_NEAR(s.deviation_us, 1.5811, 1e-4);
  EXPECT_NEAR(s.variation_percent(), 39.528, 1e-3);
}

TEST(PerfTable, TheRequiredBandwidthDecidesWithTenPercentSlack) {
  const Row row = sample_row();
  EXPECT_FALSE(summarize({row}, 14.0).bandwidth_ok());
  EXPECT_TRUE(summarize({row}, 13.9).bandwidth_ok());
  EXPECT_NE(render_footer(Collective::kAllReduce, summarize({row}, 14.0)).find(": 12.5446 FAILED"),
            std::string::npos);
  EXPECT_FALSE(summarize({row}, std::nullopt).ok()) << "three values were wrong";
}

TEST(PerfTable, AlgorithmBands) {
  EXPECT_EQ(render_bands({{8, 4096, "one_shot", 1, "shm"}, {8192, 1 << 20, "two_shot", 2, "shm"}}),
            "# algorithm 8..4096 B: one_shot, 1 channel, shm\n"
            "# algorithm 8192..1048576 B: two_shot, 2 channels, shm\n");
}

TEST(PerfJson, HasTheKeysOfNcclTestsAndNoEnvironment) {
  ::setenv("PERF_TEST_PASSWORD", "hunter2", 1);
  Arguments a;
  a.command_line = {"all_reduce_perf", "-b", "8"};
  Row row = sample_row();
  row.out_of_place.iterations = iteration_stats({{1, 2}, {3, 4}});
  const std::string text = render_json(a, {{0, 1, "h", 0, "c"}}, {row},
                                       summarize({row}, std::nullopt), {"oops"}, "t0", "t1");
  EXPECT_EQ(text.find("hunter2"), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["args"][2], "8");
  EXPECT_TRUE(json["env"].empty());
  EXPECT_EQ(json["config"]["step_bytes"], 1 << 20);
  EXPECT_EQ(json["config"]["blocking_collectives"], "false");
  EXPECT_EQ(json["config"]["devices"][0]["hostname"], "h");
  const auto& result = json["results"][0];
  EXPECT_EQ(result["size"], 33554432);
  EXPECT_EQ(result["root"], "    -1");
  EXPECT_EQ(result["in_place"]["nwrong"], 3);
  EXPECT_EQ(result["out_of_place_per_iter"]["times_us"], (std::vector<double>{3, 4}));
  EXPECT_EQ(result["out_of_place_per_iter"]["per_process_max_times_us"][0][1], 2);
  EXPECT_EQ(result["experiment_name"], "all_reduce_perf");
  EXPECT_EQ(json["out_of_bounds"]["okay"], "false");
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "unchecked");
  EXPECT_EQ(json["errors"][0], "oops");
  EXPECT_EQ(json["end_time"], "t1");
}

TEST(PerfJson, NeverOverwritesAFile) {
  const std::string path =
      ::testing::TempDir() + "/coll_perf_" + std::to_string(::getpid()) + ".json";
  auto first = JsonReport::open(path);
  auto second = JsonReport::open(path);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->path(), path);
  EXPECT_EQ(second->path(), path + ".1");
  EXPECT_TRUE(first->finish({}, {}, {}, {}, {}).ok());
  EXPECT_EQ(::access(path.c_str(), R_OK), 0);
  ::unlink(path.c_str());
  ::unlink((path + ".1").c_str());
  EXPECT_FALSE(JsonReport::open("/no/such/folder/x.json").ok());
}

TEST(PerfJson, AReportThatWasNotWrittenLeavesNoFile) {
  const std::string path =
      ::testing::TempDir() + "/coll_perf_unfinished_" + std::to_string(::getpid()) + ".json";
  {
    auto report = JsonReport::open(path);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace topocoll::perf
