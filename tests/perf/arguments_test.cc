#include "coll_perf/arguments.h"

#include <gtest/gtest.h>

#include <sstream>

namespace topocoll::perf {
namespace {

Result<std::variant<Arguments, Help>> parse(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_arguments(static_cast<int>(argv.size()), argv.data());
}

Arguments good(const std::string& line) {
  auto parsed = parse(line);
  EXPECT_TRUE(parsed.ok()) << line << ": " << parsed.status().to_string();
  return parsed.ok() ? std::get<Arguments>(*parsed) : Arguments();
}

std::string error(const std::string& line) {
  const auto parsed = parse(line);
  EXPECT_FALSE(parsed.ok()) << line;
  EXPECT_EQ(parsed.status().text().find('\n'), std::string::npos) << parsed.status().text();
  return parsed.status().text();
}

TEST(PerfArguments, DefaultsAreThoseOfNcclTests) {
  const Arguments a = good("all_reduce_perf");
  EXPECT_EQ(a.tests, std::vector<Collective>{Collective::kAllReduce});
  EXPECT_EQ(a.min_bytes, 32U << 20);
  EXPECT_EQ(a.max_bytes, 32U << 20);
  EXPECT_EQ(a.step_bytes, 1U << 20);
  EXPECT_EQ(a.iterations, 20);
  EXPECT_EQ(a.warmup, 1);
  EXPECT_EQ(a.aggregate, 1);
  EXPECT_EQ(a.cycles, 1);
  EXPECT_EQ(a.checks, 1);
  EXPECT_EQ(a.average, 1);
  EXPECT_EQ(a.ops, std::vector<ReduceOp>{ReduceOp::kSum});
  EXPECT_EQ(a.types, std::vector<DataType>{DataType::kF32});
  EXPECT_EQ(a.root, 0);
  EXPECT_FALSE(a.ranks.has_value());
}

TEST(PerfArguments, TheProgramsNameOrTheFirstWordIsTheTest) {
  EXPECT_EQ(good("/usr/bin/alltoallv_perf -b 8").tests,
            std::vector<Collective>{Collective::kAllToAllV});
  EXPECT_EQ(good("coll_perf reduce_scatter").tests,
            std::vector<Collective>{Collective::kReduceScatter});
  EXPECT_EQ(good("coll_perf all").tests, all_collectives());
  EXPECT_NE(error("coll_perf").find("which collective"), std::string::npos);
  EXPECT_NE(error("coll_perf all_redcue").find("all_redcue"), std::string::npos);
}

TEST(PerfArguments, EveryFlagOfNcclTestsIsAccepted) {
  const Arguments a = good(
      "all_reduce_perf -t 1 -g 1 -b 8 -e 128M -f 2 -n 5 -w 3 -m 2 -N 0 -p 1 -c 4 -o avg -d half -r "
      "3 "
      "-z 1 -y 1 -T 60 -G 0 -C 1 -S 1 -J out.json -a 3 -R 2 -x 1 -D 0 -V 8 -M 1 -u 3 -I 1 -K 2");
  EXPECT_EQ(a.step_factor, 2);
  EXPECT_EQ(a.warmup, 3);
  EXPECT_EQ(a.aggregate, 2);
  EXPECT_EQ(a.cycles, 0);
  EXPECT_EQ(a.checks, 4);
  EXPECT_EQ(a.root, 3);
  EXPECT_EQ(a.timeout_s, 60);
  EXPECT_TRUE(a.cpu_time && a.timestamps && a.memory && a.per_iteration && a.parallel_init);
  EXPECT_EQ(a.json_file, "out.json");
  EXPECT_EQ(a.average, 3);
  EXPECT_EQ(a.unalign, 3);
  EXPECT_EQ(a.per_iteration_skip, 2);
  good(
      "all_reduce_perf --nthreads 1 --ngpus 1 --minbytes 8 --maxbytes=1K --stepbytes 8 --iters 2 "
      "--warmup_iters 0 --agg_iters 1 --run_cycles 1 --parallel_init 0 --check 0 --op sum "
      "--datatype all "
      "--root all --blocking 0 --stream_null 0 --timeout 0 --cudagraph 0 --report_cputime 0 "
      "--report_timestamps 0 --output_file x.json --average 0 --local_register 0 --cta_policy 0 "
      "--device_implementation 0 --device_cta_count 16 --memory 0 --unalign 0 --per_iter_timing 0 "
      "--per_iter_skip 0");
}

TEST(PerfArguments, AllAndMinusOne) {
  EXPECT_FALSE(good("broadcast_perf -r -1").root.has_value());
  EXPECT_FALSE(good("broadcast_perf -r all").root.has_value());
  EXPECT_EQ(good("all_reduce_perf -d all").types, all_types());
  EXPECT_EQ(good("all_reduce_perf -o all -d int8").ops, all_ops());
}

TEST(PerfArguments, RanksComeFromRanksOrFromThreadsTimesGpus) {
  EXPECT_EQ(good("coll_perf all_reduce --ranks 3").ranks, 3);
  EXPECT_EQ(good("all_reduce_perf -t 2 -g 4").ranks, 8);
  EXPECT_EQ(good("all_reduce_perf -g 4 --ranks 4").ranks, 4);
  EXPECT_NE(error("all_reduce_perf -g 4 --ranks 2").find("contradicts"), std::string::npos);
  EXPECT_NE(error("all_reduce_perf --ranks 65").find("1 to 64"), std::string::npos);
  EXPECT_NE(error("all_reduce_perf -t 13 -g 5").find("65 ranks on one host"), std::string::npos);
  EXPECT_NE(error("coll_perf broadcast --ranks 2 -r 2").find("root 2"), std::string::npos);
  error("coll_perf broadcast --ranks 0");
}

TEST(PerfArguments, ErrorsAreThoseThatUsersOfNcclTestsKnow) {
  EXPECT_NE(error("all_reduce_perf -b 8x").find("invalid size specified for 'minbytes'"),
            std::string::npos);
  EXPECT_NE(error("all_reduce_perf -e -5").find("invalid size specified for 'maxbytes'"),
            std::string::npos);
  EXPECT_NE(error("all_reduce_perf -b 1P").find("with k, M, G or T"), std::string::npos);
  EXPECT_NE(error("all_reduce_perf p.json --nonsense q").find("not expected: p.json --nonsense q"),
            std::string::npos);
  EXPECT_NE(error("all_reduce_perf -b 2M -e 1M").find("exceeds maxbytes"), std::string::npos);
  error("all_reduce_perf -i 0");
  error("all_reduce_perf -n 0");
  error("all_reduce_perf -a 4");
  error("all_reduce_perf -c x");
  error("all_reduce_perf --no-such-flag");
  EXPECT_NE(error("all_reduce_perf -o plus").find("'plus'"), std::string::npos);
  EXPECT_NE(error("all_reduce_perf -d flaot").find("'flaot'"), std::string::npos);
  error("broadcast_perf -r x");
  EXPECT_NE(error("all_reduce_perf -o mulsum -d int32").find("not defined"), std::string::npos);
  good("all_gather_perf -o mulsum -d int32");  // nothing is reduced
  error("all_reduce_perf -I 1 -n 5 -K 5");
}

TEST(PerfArguments, WhatOnlyAGpuCanDoIsRefused) {
  EXPECT_NE(error("all_reduce_perf -G 1").find("-G"), std::string::npos);
  EXPECT_NE(error("all_reduce_perf -D 2").find("-D"), std::string::npos);
}

TEST(PerfArguments, SweepsByFactorOrStep) {
  EXPECT_EQ(sweep(good("all_reduce_perf -b 8 -e 100 -f 2")),
            (std::vector<std::size_t>{8, 16, 32, 64}));
  EXPECT_EQ(sweep(good("all_reduce_perf -b 8 -e 20 -i 6")), (std::vector<std::size_t>{8, 14, 20}));
  EXPECT_EQ(sweep(good("all_reduce_perf -b 0 -e 64 -f 2")), std::vector<std::size_t>{0});
  EXPECT_EQ(sweep(good("all_reduce_perf")), std::vector<std::size_t>{32U << 20});
}

TEST(PerfArguments, HelpShowsExamples) {
  auto parsed = parse("coll_perf --help");
  ASSERT_TRUE(parsed.ok());
  const std::string& help = std::get<Help>(*parsed).text;
  EXPECT_NE(help.find("Examples:"), std::string::npos);
  EXPECT_NE(help.find("--ranks INT:INT in [1 - 64]"), std::string::npos) << help;
}

}  // namespace
}  // namespace topocoll::perf
