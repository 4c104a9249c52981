#include "planner/algbw_words.h"

#include <fmt/format.h>

namespace topocoll {
namespace {

std::string_view counted_bytes(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "the whole result (the blocks of all ranks)";
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return "one rank's whole input (a block for each rank)";
    case CollectiveKind::kAllReduce:
      return "one rank's buffer";
    default:
      return "the root's buffer";
  }
}

}  // namespace

std::string algbw_words(CollectiveKind kind) {
  return fmt::format("GB/s of {}: bytes of {} per second", name(kind), counted_bytes(kind));
}

std::string fraction_words(const std::string& bound) {
  const bool whole = bound.find('/') == std::string::npos;
  return whole ? "" : fmt::format("; ({}) is the bound as an exact fraction", bound);
}

}  // namespace topocoll
