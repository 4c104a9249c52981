#include "topocoll/operation.h"

#include <fmt/format.h>

#include <iterator>
#include <numeric>

namespace topocoll {

namespace {

std::size_t own_count(const Operation& op) {
  if (op.kind != CollectiveKind::kAllToAll || op.in_blocks.empty()) return op.count;
  return std::accumulate(op.in_blocks.begin(), op.in_blocks.end(), std::size_t(0),
                         [](std::size_t sum, const ConstBlock& to) { return sum + to.count; });
}

}  // namespace

std::string Operation::to_string() const {
  std::string text(name(kind));
  if (kind == CollectiveKind::kBarrier) return text + "()";
  if (!in_blocks.empty() || !out_blocks.empty()) text += "_v";
  auto at = std::back_inserter(text);
  fmt::format_to(at, "({} x {}", name(type), own_count(*this));
  if (reduces(kind)) {
    fmt::format_to(at, ", {}", name(reduction.op));
    if (reduction.op == ReduceOp::kPremulSum) fmt::format_to(at, " {}", reduction.factor);
  }
  if (has_root(kind)) fmt::format_to(at, ", root {}", root);
  if (kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv) {
    text += peer == kAnySource ? ", any rank" : fmt::format(", rank {}", peer);
    text += tag == kAnyTag ? ", any tag" : fmt::format(", tag {}", tag);
  }
  return text + ")";
}

}  // namespace topocoll
