// Plans as JSON: one step per line, so that two plans can be compared with diff.
#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "planner/steps.h"
#include "topocoll/plan.h"
#include "topology/checked_json.h"
#include "topology/file_kind.h"

namespace topocoll {
namespace {

constexpr int kVersion = 1;
// A step is about 60 bytes of text: room for half a million of them.
constexpr JsonLimits kLimits{32U << 20, 3'000'000, 8};
constexpr std::size_t kMaxPathNodes = 1 << 14;

template <class Enum>
std::optional<Enum> parse_name(std::string_view text, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

std::string quoted(ChunkRef ref) { return fmt::format("\"{}\"", to_string(ref)); }

void append_step(const Step& step, std::string& text) {
  auto to = std::back_inserter(text);
  fmt::format_to(to, "{{\"do\": \"{}\"", name(step.kind));
  if (step.kind == StepKind::kReduce) {
    text += ", \"source\": [";
    for (std::size_t i = 0; i < step.source.size(); ++i) {
      fmt::format_to(to, "{}{}", i == 0 ? "" : ", ", quoted(step.source[i]));
    }
    text += ']';
  } else if (!step.source.empty()) {
    fmt::format_to(to, ", \"source\": {}", quoted(step.source[0]));
  }
  if (has_target(step.kind)) fmt::format_to(to, ", \"target\": {}", quoted(step.target));
  if (has_peer(step.kind)) {
    fmt::format_to(to, ", \"peer\": {}, \"channel\": {}", step.peer, step.channel);
  }
  text += '}';
}

ChunkRef read_ref(const JsonView& view) {
  const std::string text = view.text(32);
  const std::size_t colon = text.find(':');
  const auto buffer = parse_name(text.substr(0, colon), BufferId::kScratch);
  int chunk = -1;
  if (buffer && colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, chunk);
    if (error != std::errc() || stop != end || chunk >= kMaxPlanChunks) chunk = -1;
  }
  if (chunk < 0) {
    view.fail(fmt::format("expected input:N, output:N or scratch:N, found {}", json_quote(text)));
    return {};
  }
  return {*buffer, chunk};
}

Step read_step(const JsonView& view, const Plan& plan) {
  Step step;
  const JsonView what = view["do"];
  view.members({"do", "source", "target", "peer", "channel"});
  const std::string text = what.text(kMaxNameBytes);
  const auto kind = parse_name(text, StepKind::kWait);
  if (!kind) {
    what.fail("expected send, recv, reduce, copy, signal or wait, found " + json_quote(text));
    return step;
  }
  step.kind = *kind;
  const auto forbid = [&](std::string_view key, bool allowed) {
    if (!allowed && view.has(key)) view[key].fail(fmt::format("a {} has none", text));
    return allowed;
  };
  if (forbid("source", min_sources(step.kind) > 0)) {
    const JsonView source = view["source"];
    if (step.kind != StepKind::kReduce) {
      step.source.push_back(read_ref(source));
    } else {
      const std::size_t count = source.array(max_sources(step.kind));
      for (std::size_t i = 0; i < count; ++i) step.source.push_back(read_ref(source.at(i)));
    }
  }
  if (forbid("target", has_target(step.kind))) step.target = read_ref(view["target"]);
  if (forbid("peer", has_peer(step.kind))) {
    step.peer = static_cast<int>(view["peer"].integer(0, plan.ranks - 1));
  }
  if (forbid("channel", has_peer(step.kind))) {
    step.channel = static_cast<int>(view["channel"].integer(0, plan.channels - 1));
  }
  return step;
}

void read_header(const JsonView& root, Plan& plan) {
  root.members({"topocoll_plan", "kind", "algorithm", "ranks", "root", "chunks", "scratch_chunks",
                "channels", "min_bytes", "max_bytes", "topology_fingerprint", "steps", "routes"});
  const auto integer = [&](std::string_view key, int low, int high) {
    return static_cast<int>(root[key].integer(low, high));
  };
  integer("topocoll_plan", kVersion, kVersion);
  const JsonView what = root["kind"];
  const std::string kind = what.text(kMaxNameBytes);
  if (const auto parsed = parse_collective_kind(kind)) {
    plan.kind = *parsed;
  } else {
    what.fail("expected a collective such as all_reduce, found " + json_quote(kind));
  }
  plan.algorithm = root["algorithm"].text(kMaxNameBytes);
  plan.ranks = integer("ranks", 1, kMaxPlanRanks);
  plan.root = integer("root", 0, plan.ranks - 1);
  plan.chunks = integer("chunks", 1, kMaxPlanChunks);
  plan.scratch_chunks = integer("scratch_chunks", 0, kMaxPlanChunks);
  plan.channels = integer("channels", 1, kMaxPlanChannels);
  plan.max_bytes = root["max_bytes"].natural(std::numeric_limits<std::uint64_t>::max());
  plan.min_bytes = root["min_bytes"].natural(plan.max_bytes);
  plan.topology_fingerprint = root["topology_fingerprint"].text(kMaxNameBytes);
}

void append_route(const Route& route, std::string& text) {
  fmt::format_to(std::back_inserter(text),
                 "{{\"from\": {}, \"to\": {}, \"channel\": {}, \"path\": [", route.from, route.to,
                 route.channel);
  for (std::size_t i = 0; i < route.path.size(); ++i) {
    if (i > 0) text += ", ";
    text += json_quote(route.path[i]);
  }
  fmt::format_to(std::back_inserter(text), "], \"gbps\": {}}}", route.gbps);
}

void read_routes(const JsonView& list, Plan& plan, const JsonErrors& errors) {
  constexpr double kMaxGbps = 1e9;
  const std::size_t count = list.array(kLimits.values);
  for (std::size_t i = 0; errors.ok() && i < count; ++i) {
    const JsonView view = list.at(i);
    view.members({"from", "to", "channel", "path", "gbps"});
    Route route;
    route.from = static_cast<int>(view["from"].integer(0, plan.ranks - 1));
    route.to = static_cast<int>(view["to"].integer(0, plan.ranks - 1));
    route.channel = static_cast<int>(view["channel"].integer(0, plan.channels - 1));
    const JsonView path = view["path"];
    const std::size_t nodes = path.array(kMaxPathNodes);
    for (std::size_t n = 0; errors.ok() && n < nodes; ++n) {
      route.path.push_back(path.at(n).text(kMaxNameBytes));
    }
    route.gbps = view["gbps"].number(0, kMaxGbps);
    plan.routes.push_back(std::move(route));
  }
}

}  // namespace

std::string to_json(const Plan& plan) {
  std::string text = fmt::format(
      "{{\n\"topocoll_plan\": {}, \"kind\": \"{}\", \"algorithm\": {},\n"
      "\"ranks\": {}, \"root\": {}, \"chunks\": {}, \"scratch_chunks\": {}, \"channels\": {},\n"
      "\"min_bytes\": {}, \"max_bytes\": {}, \"topology_fingerprint\": {},\n\"steps\": [",
      kVersion, name(plan.kind), json_quote(plan.algorithm), plan.ranks, plan.root, plan.chunks,
      plan.scratch_chunks, plan.channels, plan.min_bytes, plan.max_bytes,
      json_quote(plan.topology_fingerprint));
  for (std::size_t r = 0; r < plan.steps.size(); ++r) {
    text += r == 0 ? "\n[" : ",\n[";
    for (std::size_t s = 0; s < plan.steps[r].size(); ++s) {
      text += s == 0 ? "\n  " : ",\n  ";
      append_step(plan.steps[r][s], text);
    }
    text += ']';
  }
  text += "\n]";
  for (std::size_t i = 0; i < plan.routes.size(); ++i) {
    text += i == 0 ? ",\n\"routes\": [\n  " : ",\n  ";
    append_route(plan.routes[i], text);
  }
  return text + (plan.routes.empty() ? "\n}\n" : "]\n}\n");
}

Result<Plan> plan_from_json(std::string_view text) {
  const Result<nlohmann::json> json = parse_json(text, "plan", kLimits);
  if (!json.ok()) return json.status();
  JsonErrors errors("plan");
  const JsonView root(*json, errors);
  Plan plan;
  refuse_other_files(root, FileKind::kPlan);
  read_header(root, plan);
  const JsonView programs = root["steps"];
  const std::size_t ranks = programs.array(kMaxPlanRanks);
  if (errors.ok() && ranks != static_cast<std::size_t>(plan.ranks)) {
    programs.fail(fmt::format("{} programs for {} ranks", ranks, plan.ranks));
  }
  for (std::size_t r = 0; errors.ok() && r < ranks; ++r) {
    const JsonView program = programs.at(r);
    const std::size_t count = program.array(kLimits.values);
    auto& steps = plan.steps.emplace_back();
    steps.reserve(count);
    for (std::size_t s = 0; errors.ok() && s < count; ++s) {
      steps.push_back(read_step(program.at(s), plan));
    }
  }
  if (root.has("routes")) read_routes(root["routes"], plan, errors);
  if (!errors.ok()) return errors.status();
  return plan;
}

}  // namespace topocoll
