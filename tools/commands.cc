#include "commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "topocoll/options.h"
#include "topocoll/plan.h"
#include "topocoll/topology.h"
#include "topocoll/types.h"
#include "topocoll/version.h"

namespace topocoll::tools {
namespace {

/// Larger files are neither a topology nor a plan.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

Status file_error(const std::string& path, int error) {
  return Status(Cause::kSystem, fmt::format("{}: {}", path, std::strerror(error)));
}

Result<std::string> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(path == "-" ? stdin
                                                               : std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return file_error(path, errno);
  std::string text;
  char chunk[64 * 1024];
  while (const std::size_t got = std::fread(chunk, 1, sizeof chunk, file.get())) {
    text.append(chunk, got);
    if (text.size() > kMaxFileBytes) {
      return Status(Cause::kResource, fmt::format("{}: larger than {} bytes", path, kMaxFileBytes));
    }
  }
  if (std::ferror(file.get()) != 0) return file_error(path, errno);
  return text;
}

Result<Plan> read_plan(const std::string& path) {
  auto text = read_file(path);
  if (!text.ok()) return text.status();
  auto plan = plan_from_json(*text);
  if (!plan.ok()) return plan.status().annotated(path);
  return plan;
}

Result<Plan> get_plan(const PlanRequest& request) {
  if (!request.file.empty()) return read_plan(request.file);
  const auto kind = parse_collective_kind(request.collective);
  if (!kind) {
    std::string known;
    for (int k = 0; k < kNumCollectiveKinds; ++k) {
      known += (k == 0 ? "" : ", ") + std::string(name(static_cast<CollectiveKind>(k)));
    }
    return Status(Cause::kInvalidArgument,
                  fmt::format("unknown collective '{}': {}", request.collective, known));
  }
  return make_direct_plan(*kind, request.algorithm, request.ranks, request.root);
}

/// "output chunk 0: ((0+1)+2)" for each chunk; ranks that agree share a line.
std::string evaluation_orders(const Plan& plan) {
  std::string text;
  if (!reduces(plan.kind)) return text;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    std::string mine;
    for (int chunk = 0; chunk < output_chunks(plan, rank); ++chunk) {
      const auto order = evaluation_order(plan, rank, chunk);
      mine += fmt::format("  output chunk {}: {}\n", chunk,
                          order.ok() ? *order : order.status().text());
    }
    if (mine.empty()) continue;
    text += fmt::format("evaluation order on rank {}\n{}", rank, mine);
    // verify() has shown that an all_reduce is the same everywhere.
    if (plan.kind == CollectiveKind::kAllReduce) break;
  }
  return text;
}

std::size_t count_steps(const Plan& plan) {
  std::size_t steps = 0;
  for (const auto& of_rank : plan.steps) steps += of_rank.size();
  return steps;
}

}  // namespace

Result<std::string> show_options(bool json) {
  auto options = list_options();
  if (!options.ok()) return options.status();
  if (json) {
    auto array = nlohmann::ordered_json::array();
    for (const OptionInfo& o : *options) {
      array.push_back({{"name", o.name},
                       {"type", o.type},
                       {"value", o.value},
                       {"default", o.fallback},
                       {"origin", o.origin},
                       {"help", o.help}});
    }
    return array.dump(2) + "\n";
  }
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const OptionInfo& o : *options) {
    name_width = std::max(name_width, o.name.size());
    value_width = std::max(value_width, o.value.size());
  }
  std::string text;
  for (const OptionInfo& o : *options) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n{:4}{}\n{:4}{}; default {}\n", o.name, name_width,
                        o.value, value_width, o.origin, "", o.help, "", o.type,
                        o.fallback.empty() ? "(none)" : o.fallback);
  }
  return text;
}

Result<std::string> show_topology(const TopoRequest& request) {
  if (!request.file.empty() && !request.synthetic.empty()) {
    return Status(Cause::kInvalidArgument, "give a file or --synthetic, not both");
  }
  Result<Topology> topology = Status(Cause::kInternal, "no topology");
  if (!request.synthetic.empty()) {
    topology = synthetic_topology(request.synthetic);
  } else if (!request.file.empty()) {
    auto text = read_file(request.file);
    if (!text.ok()) return text.status();
    topology = topology_from_json(*text);
    if (!topology.ok()) return topology.status().annotated(request.file);
  } else {
    topology = discover_topology();
  }
  if (!topology.ok()) return topology.status();
  return request.json ? to_json(*topology) : render_text(*topology);
}

Result<std::string> show_plan(const PlanRequest& request) {
  auto plan = get_plan(request);
  if (!plan.ok()) return plan.status();
  if (request.json) return to_json(*plan);
  const Status verdict = verify(*plan);
  if (!verdict.ok()) return render_text(*plan) + "not valid: " + verdict.text() + "\n";
  return render_text(*plan) + evaluation_orders(*plan) + "verified\n";
}

Result<std::string> check_plan(const std::string& file) {
  auto plan = read_plan(file);
  if (!plan.ok()) return plan.status();
  if (Status verdict = verify(*plan); !verdict.ok()) return verdict.annotated(file);
  return fmt::format("{}: OK, {} {} on {} rank{}, {} steps\n", file, name(plan->kind),
                     plan->algorithm, plan->ranks, plan->ranks == 1 ? "" : "s", count_steps(*plan));
}

std::string show_version() {
  return fmt::format("topocoll {}\nbuild {}\nwire protocol {}\n", version(), build_id(),
                     wire_version());
}

}  // namespace topocoll::tools
