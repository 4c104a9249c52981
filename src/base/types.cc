#include "topocoll/types.h"

#include <array>

namespace topocoll {
namespace {

enum class Family : std::uint8_t { kBool, kInteger, kFloat, kComplex };

struct TypeInfo {
  std::string_view name;
  std::size_t bytes;
  Family family;
};

// Indexed by the enumerators' values.
constexpr std::array<TypeInfo, kNumDataTypes> kTypes = {{
    {"bool", 1, Family::kBool},
    {"u8", 1, Family::kInteger},
    {"i8", 1, Family::kInteger},
    {"u16", 2, Family::kInteger},
    {"i16", 2, Family::kInteger},
    {"u32", 4, Family::kInteger},
    {"i32", 4, Family::kInteger},
    {"u64", 8, Family::kInteger},
    {"i64", 8, Family::kInteger},
    {"f16", 2, Family::kFloat},
    {"bf16", 2, Family::kFloat},
    {"f32", 4, Family::kFloat},
    {"f64", 8, Family::kFloat},
    {"c64", 8, Family::kComplex},
    {"c128", 16, Family::kComplex},
    {"f8e4m3", 1, Family::kFloat},
    {"f8e5m2", 1, Family::kFloat},
}};
static_assert(static_cast<int>(DataType::kF8E5M2) + 1 == kNumDataTypes);

constexpr std::array<std::string_view, kNumReduceOps> kOps = {
    "sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "premul_sum",
};
static_assert(static_cast<int>(ReduceOp::kPremulSum) + 1 == kNumReduceOps);

struct KindInfo {
  std::string_view name;
  bool reduces;
  bool has_root;
};

constexpr std::array<KindInfo, kNumCollectiveKinds> kKinds = {{
    {"all_reduce", true, false},
    {"broadcast", false, true},
    {"reduce", true, true},
    {"all_gather", false, false},
    {"reduce_scatter", true, false},
    {"all_to_all", false, false},
    {"gather", false, true},
    {"scatter", false, true},
    {"barrier", false, false},
    {"send", false, false},
    {"recv", false, false},
}};
static_assert(static_cast<int>(CollectiveKind::kRecv) + 1 == kNumCollectiveKinds);

// A value that came from another rank may lie outside its enumeration.
template <class Table, class Enum>
const typename Table::value_type* find(const Table& table, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < table.size() ? &table[index] : nullptr;
}

template <class Enum>
std::optional<Enum> parse(int count, std::string_view text) {
  for (int i = 0; i < count; ++i) {
    if (name(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::size_t size_of(DataType type) {
  const auto* info = find(kTypes, type);
  return info ? info->bytes : 0;
}

std::string_view name(DataType type) {
  const auto* info = find(kTypes, type);
  return info ? info->name : "unknown";
}

std::string_view name(ReduceOp op) {
  const auto* text = find(kOps, op);
  return text ? *text : "unknown";
}

std::string_view name(CollectiveKind kind) {
  const auto* info = find(kKinds, kind);
  return info ? info->name : "unknown";
}

std::optional<DataType> parse_data_type(std::string_view text) {
  return parse<DataType>(kNumDataTypes, text);
}

std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  return parse<ReduceOp>(kNumReduceOps, text);
}

std::optional<CollectiveKind> parse_collective_kind(std::string_view text) {
  return parse<CollectiveKind>(kNumCollectiveKinds, text);
}

bool is_defined(ReduceOp op, DataType type) {
  const auto* info = find(kTypes, type);
  if (!info) return false;
  const Family family = info->family;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
      return true;
    case ReduceOp::kAvg:
      return family != Family::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return family != Family::kComplex;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return family == Family::kBool || family == Family::kInteger;
    case ReduceOp::kPremulSum:
      return family == Family::kFloat || family == Family::kComplex;
  }
  return false;
}

bool reduces(CollectiveKind kind) {
  const auto* info = find(kKinds, kind);
  return info && info->reduces;
}

bool has_root(CollectiveKind kind) {
  const auto* info = find(kKinds, kind);
  return info && info->has_root;
}

}  // namespace topocoll
