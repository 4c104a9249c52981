// Arguments: coll_perf's command line as one plain value. Flags, defaults and meanings are
// nccl-tests'; those that only a GPU gives a meaning are checked and then have no effect, or are
// refused if they ask for what a CPU cannot do.
//
// Thread rule: a value. Failure rule: a Status whose text is one line for the user.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coll_perf/vocabulary.h"
#include "topocoll/communicator.h"
#include "topocoll/status.h"

namespace topocoll::perf {

struct Arguments {
  std::vector<Collective> tests;
  std::optional<int> ranks;  ///< ranks to start here; nothing: the environment says who we are
  bool bind = false;         ///< pin rank i to core i mod cores
  std::optional<CommitMode> commit;

  std::size_t min_bytes = std::size_t{32} << 20;
  std::size_t max_bytes = std::size_t{32} << 20;
  std::size_t step_bytes = std::size_t{1} << 20;
  int step_factor = 1;  ///< > 1: sizes grow by this factor instead of by step_bytes
  int iterations = 20;
  int warmup = 1;
  int aggregate = 1;  ///< operations per iteration, issued as one group
  int cycles = 1;     ///< 0: for ever
  int checks = 1;
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::vector<DataType> types = {DataType::kF32};
  bool every_pair = false;      ///< -o or -d "all": skip pairs that are not defined
  std::optional<int> root = 0;  ///< nothing: all roots, one after the other
  int threads = 1;
  int gpus = 1;
  int blocking = 0;
  int timeout_s = 0;
  bool cpu_time = false;
  bool timestamps = false;
  int average = 1;  ///< 0: rank 0, 1: mean, 2: min, 3: max over ranks
  int unalign = 0;  ///< elements by which buffers are moved off their alignment
  bool memory = false;
  bool per_iteration = false;
  int per_iteration_skip = 0;
  bool parallel_init = false;
  std::string json_file;

  std::vector<std::string> command_line;
};

/// A text to print for --help or --version.
struct Help {
  std::string text;
};

/// Reads the command line. Started under the name of one of nccl-tests' programs, that is the test;
/// otherwise the first word names it.
Result<std::variant<Arguments, Help>> parse_arguments(int argc, const char* const* argv);

/// The sizes of a sweep, ascending.
std::vector<std::size_t> sweep(const Arguments& arguments);

}  // namespace topocoll::perf
