#include "coll_perf/vocabulary.h"

#include <algorithm>
#include <array>
#include <utility>

namespace topocoll::perf {
namespace {

constexpr std::array<std::pair<Collective, std::string_view>, 11> kCollectives = {{
    {Collective::kAllReduce, "all_reduce"},
    {Collective::kAllGather, "all_gather"},
    {Collective::kReduceScatter, "reduce_scatter"},
    {Collective::kBroadcast, "broadcast"},
    {Collective::kReduce, "reduce"},
    {Collective::kAllToAll, "alltoall"},
    {Collective::kAllToAllV, "alltoallv"},
    {Collective::kGather, "gather"},
    {Collective::kScatter, "scatter"},
    {Collective::kSendRecv, "sendrecv"},
    {Collective::kHypercube, "hypercube"},
}};

constexpr std::array<std::pair<DataType, std::string_view>, kNumDataTypes> kTypes = {{
    {DataType::kI8, "int8"},
    {DataType::kU8, "uint8"},
    {DataType::kI32, "int32"},
    {DataType::kU32, "uint32"},
    {DataType::kI64, "int64"},
    {DataType::kU64, "uint64"},
    {DataType::kF16, "half"},
    {DataType::kF32, "float"},
    {DataType::kF64, "double"},
    {DataType::kBF16, "bfloat16"},
    {DataType::kF8E4M3, "f8e4m3"},
    {DataType::kF8E5M2, "f8e5m2"},
    {DataType::kBool, "bool"},
    {DataType::kI16, "int16"},
    {DataType::kU16, "uint16"},
    {DataType::kC64, "complex64"},
    {DataType::kC128, "complex128"},
}};

template <class Table, class Key>
std::string_view look_up(const Table& table, Key key) {
  for (const auto& [value, text] : table) {
    if (value == key) return text;
  }
  return "?";
}

template <class Key, class Table>
std::vector<Key> keys(const Table& table) {
  std::vector<Key> all;
  for (const auto& entry : table) all.push_back(entry.first);
  return all;
}

}  // namespace

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> all = keys<Collective>(kCollectives);
  return all;
}

std::string_view name(Collective test) { return look_up(kCollectives, test); }

std::optional<Collective> parse_collective(std::string_view text) {
  constexpr std::string_view kSuffix = "_perf";
  if (text.ends_with(kSuffix)) text.remove_suffix(kSuffix.size());
  if (text == "all_to_all") text = "alltoall";
  if (text == "all_to_all_v") text = "alltoallv";
  for (const auto& [test, word] : kCollectives) {
    if (word == text) return test;
  }
  return std::nullopt;
}

bool reduces(Collective test) {
  return test == Collective::kAllReduce || test == Collective::kReduce ||
         test == Collective::kReduceScatter;
}

bool has_root(Collective test) {
  return test == Collective::kBroadcast || test == Collective::kReduce ||
         test == Collective::kGather || test == Collective::kScatter;
}

std::string_view type_name(DataType type) { return look_up(kTypes, type); }

std::optional<DataType> parse_type(std::string_view text) {
  for (const auto& [type, word] : kTypes) {
    if (word == text) return type;
  }
  return parse_data_type(text);
}

const std::vector<DataType>& all_types() {
  static const std::vector<DataType> all = keys<DataType>(kTypes);
  return all;
}

std::string_view op_name(ReduceOp op) {
  return op == ReduceOp::kPremulSum ? "mulsum" : topocoll::name(op);
}

std::optional<ReduceOp> parse_op(std::string_view text) {
  return text == "mulsum" ? std::optional(ReduceOp::kPremulSum) : parse_reduce_op(text);
}

const std::vector<ReduceOp>& all_ops() {
  static const std::vector<ReduceOp> all = {ReduceOp::kSum,  ReduceOp::kProd, ReduceOp::kMin,
                                            ReduceOp::kMax,  ReduceOp::kAvg,  ReduceOp::kPremulSum,
                                            ReduceOp::kBand, ReduceOp::kBor,  ReduceOp::kBxor};
  return all;
}

}  // namespace topocoll::perf
