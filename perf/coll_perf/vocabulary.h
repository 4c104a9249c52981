// The words of coll_perf: collectives, element types, reductions and sizes as its users write them.
// They are those of nccl-tests, plus topocoll's own.
//
// Thread rule: pure functions. Failure rule: what is not such a word is "nothing".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/types.h"

namespace topocoll::perf {

/// What coll_perf can time; each has a program of its own in nccl-tests.
enum class Collective {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kAllToAllV,
  kGather,
  kScatter,
  kSendRecv,
  kHypercube,
};

/// All of them, in the order in which "all" runs them.
const std::vector<Collective>& all_collectives();
/// "all_reduce", "alltoall", "sendrecv": the program's name without "_perf".
std::string_view name(Collective test);
/// Takes name(), the program's name, and topocoll's spelling ("all_to_all").
std::optional<Collective> parse_collective(std::string_view text);

bool reduces(Collective test);
bool has_root(Collective test);

/// nccl-tests' names where they have one ("float", "int8"), topocoll's otherwise ("bool",
/// "complex64").
std::string_view type_name(DataType type);
std::optional<DataType> parse_type(std::string_view text);
/// In the order in which "all" runs them.
const std::vector<DataType>& all_types();

/// "sum", "prod", ..., "mulsum" for premul_sum.
std::string_view op_name(ReduceOp op);
std::optional<ReduceOp> parse_op(std::string_view text);
const std::vector<ReduceOp>& all_ops();

}  // namespace topocoll::perf
