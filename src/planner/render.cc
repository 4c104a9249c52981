#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <string>

#include "base/plain_text.h"
#include "planner/counted.h"
#include "planner/steps.h"
#include "topocoll/plan.h"

namespace topocoll {
namespace {

std::string sources(const Step& step, std::string_view separator) {
  std::string text;
  for (const ChunkRef& ref : step.source) {
    if (!text.empty()) text += separator;
    text += to_string(ref);
  }
  return text;
}

std::string message(std::string_view what, const Step& step, std::string_view arrow) {
  return fmt::format("{:<12} {} rank {}, channel {}", what, arrow, step.peer, step.channel);
}

std::string action(const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
      return message(sources(step, " "), step, "->");
    case StepKind::kRecv:
      return message(to_string(step.target), step, "<-");
    case StepKind::kSignal:
      return message("", step, "->");
    case StepKind::kWait:
      return message("", step, "<-");
    case StepKind::kReduce:
    case StepKind::kCopy:
      break;
  }
  return fmt::format("{:<12} = {}", to_string(step.target), sources(step, " + "));
}

}  // namespace

std::string render_text(const Plan& plan) {
  std::string text =
      fmt::format("{} {}: {}", name(plan.kind), plan.algorithm, counted(plan.ranks, "rank"));
  auto to = std::back_inserter(text);
  if (has_root(plan.kind)) fmt::format_to(to, ", root {}", plan.root);
  fmt::format_to(to, ", {}, {}, {}\n", counted(plan.chunks, "chunk"),
                 counted(plan.scratch_chunks, "scratch chunk"), counted(plan.channels, "channel"));
  if (plan.min_bytes > 0 || plan.max_bytes < std::numeric_limits<std::uint64_t>::max()) {
    fmt::format_to(to, "for messages of {} to {} bytes\n", plan.min_bytes, plan.max_bytes);
  }
  if (!plan.topology_fingerprint.empty()) {
    fmt::format_to(to, "for the topology {}\n", plan.topology_fingerprint);
  }
  for (const Route& route : plan.routes) {
    fmt::format_to(to, "route {} -> {}, channel {}: {}", route.from, route.to, route.channel,
                   fmt::join(route.path, " "));
    if (route.gbps > 0) fmt::format_to(to, ", {:.2f} GB/s", route.gbps);
    text += '\n';
  }
  for (std::size_t r = 0; r < plan.steps.size(); ++r) {
    fmt::format_to(to, "rank {}\n", r);
    for (std::size_t s = 0; s < plan.steps[r].size(); ++s) {
      const Step& step = plan.steps[r][s];
      fmt::format_to(to, "  {:>5}  {:<6}  {}\n", s, name(step.kind), action(step));
    }
  }
  return plain_text(std::move(text));
}

}  // namespace topocoll
