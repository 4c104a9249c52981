#include "coll_perf/arguments.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <string>

#include "coll_perf/usage.h"
#include "topocoll/size.h"
#include "topocoll/version.h"

namespace topocoll::perf {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  coll_perf all_reduce -b 8 -e 256M -f 4 --ranks 2      sweep with two local ranks\n"
    "  coll_perf all -d all -o all -b 1k -e 1k --ranks 4     every collective, type and operation\n"
    "  torchrun --nproc-per-node 2 --no-python coll_perf all_gather -e 1G -f 2 -b 1M\n"
    "  all_reduce_perf -b 8 -e 128M -f 2 -g 8                as with nccl-tests: eight local "
    "ranks\n"
    "\n"
    "Without --ranks, the ranks of torchrun (RANK, WORLD_SIZE), Open MPI or SLURM take part. They "
    "meet\n"
    "at TOPOCOLL_STORE=host:port if set, else at MASTER_ADDR and a port that MASTER_PORT decides.\n"
    "Exit status: 0; 1 if a value was wrong, an operation failed or a rank died; 2 for a bad "
    "command line;\n128 + signal if one ended the launcher.";

/// What the flags bind to before it is checked.
struct Raw {
  std::string test;
  std::string min_bytes = "32M";
  std::string max_bytes = "32M";
  std::string step_bytes = "1M";
  std::string op = "sum";
  std::string type = "float";
  std::string root = "0";
  std::string commit;
  int ranks = 0;
  int stream_null = 0;
  int graph = 0;
  int local_register = 0;
  int cta_policy = 0;
  int device_implementation = 0;
  int device_ctas = 16;
  int cpu_time = 0;
  int timestamps = 0;
  int memory = 0;
  int per_iteration = 0;
  int parallel_init = 0;
};

Status bad(const std::string& text) { return Status(Cause::kInvalidArgument, text); }

void add_sweep_flags(CLI::App& app, Raw& raw, Arguments& a) {
  const CLI::Range positive(1, std::numeric_limits<int>::max());
  const CLI::Range count(0, std::numeric_limits<int>::max());
  app.add_option("-b,--minbytes", raw.min_bytes, "smallest size; k, M, G and T are binary (32M)");
  app.add_option("-e,--maxbytes", raw.max_bytes, "largest size (32M)");
  app.add_option("-i,--stepbytes", raw.step_bytes, "add this to get the next size (1M)");
  app.add_option("-f,--stepfactor", a.step_factor, "multiply by this to get the next size (off)")
      ->check(positive);
  app.add_option("-n,--iters", a.iterations, "timed iterations (20)")->check(positive);
  app.add_option("-w,--warmup_iters", a.warmup, "iterations before them (1)")->check(count);
  app.add_option("-m,--agg_iters", a.aggregate, "operations per iteration, as one group (1)")
      ->check(positive);
  app.add_option("-N,--run_cycles", a.cycles, "run it all so many times, 0: for ever (1)")
      ->check(count);
  app.add_option("-c,--check", a.checks, "iterations that check every element (1)")->check(count);
  app.add_option("-o,--op", raw.op, "sum, prod, min, max, avg, mulsum, band, bor, bxor, all (sum)");
  app.add_option(
      "-d,--datatype", raw.type,
      "int8 uint8 int16 uint16 int32 uint32 int64 uint64 half bfloat16 float double f8e4m3 "
      "f8e5m2 bool complex64 complex128, all (float)");
  app.add_option("-r,--root", raw.root, "root rank; all or -1: each in turn (0)");
}

void add_report_flags(CLI::App& app, Raw& raw, Arguments& a) {
  const CLI::Range flag(0, 1);
  const CLI::Range count(0, std::numeric_limits<int>::max());
  app.add_option("-T,--timeout", a.timeout_s, "seconds that an operation may take (off)")
      ->check(count);
  app.add_option("-C,--report_cputime", raw.cpu_time,
                 "report processor time instead of elapsed time (0)")
      ->check(flag);
  app.add_option("-S,--report_timestamps", raw.timestamps, "end each row with the time of day (0)")
      ->check(flag);
  app.add_option("-J,--output_file", a.json_file,
                 "write JSON too; an existing file is not overwritten");
  app.add_option("-a,--average", a.average,
                 "time of 0: rank 0, 1: mean, 2: min, 3: max of ranks (1)")
      ->check(CLI::Range(0, 3));
  app.add_option("-M,--memory", raw.memory, "report the shared memory in use (0)")->check(flag);
  app.add_option("-I,--per_iter_timing", raw.per_iteration, "time every iteration by itself (0)")
      ->check(flag);
  app.add_option("-K,--per_iter_skip", a.per_iteration_skip,
                 "leave out the first so many of them (0)")
      ->check(count);
}

void add_run_flags(CLI::App& app, Raw& raw, Arguments& a) {
  const CLI::Range flag(0, 1);
  const CLI::Range positive(1, 4096);
  const CLI::Range on_one_host(1, kMaxRanksPerHost);
  app.add_option("--ranks", raw.ranks, "start so many ranks on this machine")->check(on_one_host);
  app.add_flag("--bind", a.bind, "pin rank i to core i mod cores");
  app.add_option("--commit", raw.commit, "strict or chained (TOPOCOLL_COMMIT decides)")
      ->check(CLI::IsMember({"strict", "chained"}));
  app.add_option("-t,--nthreads", a.threads, "with -g: t x g local ranks if --ranks is absent (1)")
      ->check(on_one_host);
  app.add_option("-g,--ngpus", a.gpus, "see -t (1)")->check(on_one_host);
  app.add_option("-z,--blocking", a.blocking,
                 "1: barrier after each operation; calls block anyway (0)")
      ->check(CLI::Range(0, 3));
  app.add_option("-u,--unalign", a.unalign, "move buffers so many elements off their alignment (0)")
      ->check(CLI::Range(0, 4096));
  app.add_option("-p,--parallel_init", raw.parallel_init, "ranks always start in parallel (0)")
      ->check(flag);
  const std::string gpu_only = "has no effect on CPUs ";
  app.add_option("-y,--stream_null", raw.stream_null, gpu_only + "(0)")->check(flag);
  app.add_option("-R,--local_register", raw.local_register, gpu_only + "(0)")
      ->check(CLI::Range(0, 2));
  app.add_option("-x,--cta_policy", raw.cta_policy, gpu_only + "(0)")->check(CLI::Range(0, 2));
  app.add_option("-V,--device_cta_count", raw.device_ctas, gpu_only + "(16)")->check(positive);
  app.add_option("-G,--cudagraph", raw.graph, "graphs need a GPU: only 0 is possible (0)")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  app.add_option("-D,--device_implementation", raw.device_implementation,
                 "device kernels need a GPU: only 0 is possible (0)")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
}

Status read_sizes(const Raw& raw, Arguments& a) {
  const struct {
    const char* name;
    const std::string& text;
    std::size_t& bytes;
  } sizes[] = {{"minbytes", raw.min_bytes, a.min_bytes},
               {"maxbytes", raw.max_bytes, a.max_bytes},
               {"stepbytes", raw.step_bytes, a.step_bytes}};
  for (const auto& size : sizes) {
    const auto bytes = parse_size(size.text);
    if (!bytes) {
      return bad(std::string("invalid size specified for '") + size.name + "': " + size.text +
                 ": a number, with k, M, G or T for powers of 1024");
    }
    size.bytes = *bytes;
  }
  if (a.min_bytes > a.max_bytes) {
    return bad("invalid sizes: minbytes " + raw.min_bytes + " exceeds maxbytes " + raw.max_bytes);
  }
  if (a.step_bytes == 0) return bad("invalid size specified for 'stepbytes': it must not be 0");
  return {};
}

Status read_words(const Raw& raw, Arguments& a) {
  if (raw.op == "all") {
    a.ops = all_ops();
  } else if (const auto op = parse_op(raw.op)) {
    a.ops = {*op};
  } else {
    return bad("unknown reduction '" + raw.op +
               "': " + "sum, prod, min, max, avg, mulsum, band, bor, bxor or all");
  }
  if (raw.type == "all") {
    a.types = all_types();
  } else if (const auto type = parse_type(raw.type)) {
    a.types = {*type};
  } else {
    return bad("unknown type '" + raw.type + "'; --help lists them");
  }
  a.every_pair = raw.op == "all" || raw.type == "all";
  if (!a.every_pair && reduces(a.tests.front()) && !is_defined(a.ops[0], a.types[0])) {
    return bad(raw.op + " is not defined on " + raw.type);
  }
  if (raw.root == "all" || raw.root == "-1") {
    a.root.reset();
  } else if (!raw.root.empty() && raw.root.size() < 6 &&
             raw.root.find_first_not_of("0123456789") == std::string::npos) {
    a.root = std::stoi(raw.root);
  } else {
    return bad("invalid root '" + raw.root + "': a rank, or all");
  }
  if (!raw.commit.empty()) {
    a.commit = raw.commit == "strict" ? CommitMode::kStrict : CommitMode::kChained;
  }
  return {};
}

Status read_ranks(const Raw& raw, Arguments& a) {
  const int local = a.threads * a.gpus;
  if (raw.ranks > 0 && local > 1 && local != raw.ranks) {
    return bad("--ranks " + std::to_string(raw.ranks) + " contradicts -t and -g, which ask for " +
               std::to_string(local) + " ranks");
  }
  if (raw.ranks > 0) a.ranks = raw.ranks;
  if (raw.ranks == 0 && local > 1) a.ranks = local;
  if (a.ranks && *a.ranks > kMaxRanksPerHost) {
    return bad(std::to_string(*a.ranks) + " ranks on one host: 1 to " +
               std::to_string(kMaxRanksPerHost) + " are supported");
  }
  if (a.ranks && a.root && *a.root >= *a.ranks) {
    return bad("root " + std::to_string(*a.root) + " is not among " + std::to_string(*a.ranks) +
               " ranks");
  }
  return {};
}

Status refuse_impossible(const Raw& raw, const Arguments& a) {
  if (raw.graph > 0) return bad("-G asks for CUDA graphs: there are none on CPUs");
  if (raw.device_implementation > 0) {
    return bad("-D asks for a kernel that runs on a GPU: there are none on CPUs");
  }
  if (a.per_iteration && a.per_iteration_skip >= a.iterations) {
    return bad("-K leaves none of the " + std::to_string(a.iterations) + " iterations to report");
  }
  return {};
}

Status read_tests(const std::string& program, const Raw& raw, Arguments& a) {
  if (const auto test = parse_collective(program); test && program.ends_with("_perf")) {
    a.tests = {*test};
  } else if (raw.test == "all") {
    a.tests = all_collectives();
  } else if (const auto named = parse_collective(raw.test)) {
    a.tests = {*named};
  } else if (raw.test.empty()) {
    return bad("say which collective to time, or all; --help lists them");
  } else {
    return bad("unknown collective '" + raw.test + "'; --help lists them");
  }
  return {};
}

}  // namespace

Result<std::variant<Arguments, Help>> parse_arguments(int argc, const char* const* argv) {
  Arguments a;
  Raw raw;
  a.command_line.assign(argv, argv + argc);
  const std::string path = argc > 0 ? argv[0] : "coll_perf";
  const std::string program = path.substr(path.rfind('/') + 1);
  const bool named = program.ends_with("_perf") && parse_collective(program).has_value();
  CLI::App app("Times topocoll's collectives as nccl-tests does, and checks their results.",
               program);
  app.footer(kExamples);
  app.set_version_flag("--version", std::string(version()));
  if (!named) {
    app.add_option(
        "collective", raw.test,
        "all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv gather "
        "scatter sendrecv hypercube, all");
  }
  add_sweep_flags(app, raw, a);
  add_report_flags(app, raw, a);
  add_run_flags(app, raw, a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return std::variant<Arguments, Help>(Help{app.help()});
  } catch (const CLI::CallForVersion& v) {
    return std::variant<Arguments, Help>(Help{std::string(v.what()) + "\n"});
  } catch (const CLI::ParseError& e) {
    return bad(usage_error(app, e));
  }
  a.cpu_time = raw.cpu_time != 0;
  a.timestamps = raw.timestamps != 0;
  a.memory = raw.memory != 0;
  a.per_iteration = raw.per_iteration != 0;
  a.parallel_init = raw.parallel_init != 0;
  Status s = read_tests(program, raw, a);
  if (s.ok()) s = read_sizes(raw, a);
  if (s.ok()) s = read_words(raw, a);
  if (s.ok()) s = read_ranks(raw, a);
  if (s.ok()) s = refuse_impossible(raw, a);
  if (!s.ok()) return s;
  return std::variant<Arguments, Help>(std::move(a));
}

std::vector<std::size_t> sweep(const Arguments& a) {
  std::vector<std::size_t> sizes;
  std::size_t bytes = a.min_bytes;
  while (bytes <= a.max_bytes) {
    sizes.push_back(bytes);
    const std::size_t next =
        a.step_factor > 1 ? bytes * static_cast<std::size_t>(a.step_factor) : bytes + a.step_bytes;
    // 0 times a factor stays 0: take one step of the other kind, or stop.
    if (next == bytes) break;
    bytes = next;
  }
  return sizes;
}

}  // namespace topocoll::perf
