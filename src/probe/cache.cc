#include "probe/cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "base/hash.h"
#include "base/private_file.h"
#include "probe/gpu_links.h"
#include "topology/inferred.h"

namespace topocoll {
namespace {

/// Changes with the meaning of the figures: a file of another version is not used.
constexpr int kVersion = 3;
constexpr std::size_t kMaxBytes = std::size_t{32} << 20;

std::string file_name(const Topology& machine) {
  return fmt::format("probe-{}.json", machine.fingerprint());
}

std::string first_line(const Topology& machine, std::string_view json, std::size_t missing) {
  return fmt::format("topocoll-probe {} {} {} {}\n", kVersion, machine.fingerprint(),
                     hash_text(fmt::format("{} {}", missing, json)), missing);
}

/// The number at a first line's end; whether the line is right is for first_line() to say.
std::size_t missing_of(std::string_view line) {
  std::size_t missing = 0;
  const std::size_t start = line.rfind(' ') + 1;  // 0 if there is no space
  std::from_chars(line.data() + start, line.data() + line.size(), missing);
  return missing;
}

}  // namespace

Result<std::string> cache_directory(const std::optional<std::string>& option) {
  if (!option) return user_cache_directory();
  if (option->front() != '/') {
    return Status(Cause::kInvalidArgument,
                  fmt::format("TOPOCOLL_CACHE_DIR={}: an absolute path is needed", *option));
  }
  return *option;
}

std::string cache_path(const std::string& directory, const Topology& machine) {
  return directory + "/" + file_name(machine);
}

Result<std::optional<Kept>> load_kept(const std::string& directory, const Topology& machine) {
  const std::string path = cache_path(directory, machine);
  if (::access(path.c_str(), F_OK) != 0) return std::optional<Kept>();
  auto text = read_private_file(path, kMaxBytes);
  if (!text.ok()) return text.status();
  const std::size_t line = std::min(text->find('\n'), text->size() - 1) + 1;
  const std::string_view json = std::string_view(*text).substr(line);
  const std::size_t missing = missing_of(std::string_view(*text).substr(0, line));
  if (text->substr(0, line) != first_line(machine, json, missing)) {
    return Status(Cause::kInvalidArgument, path + ": damaged, or of another version or machine");
  }
  auto kept = topology_from_json(json);
  if (!kept.ok()) return kept.status().annotated(path);
  return std::optional(Kept{std::move(*kept), missing});
}

Status keep(const std::string& directory, const Topology& measured, std::size_t missing) {
  const std::string json = to_json(measured);
  return write_private_file(directory, file_name(measured),
                            first_line(measured, json, missing) + json);
}

namespace {

using EdgeKey = std::tuple<std::string_view, std::string_view, std::string_view>;

EdgeKey key(const TopologyEdge& edge) { return {edge.from, edge.to, edge.kind}; }

void take(const Figure& source, Figure& target) {
  if (!source.measured) return;
  target.measured = source.measured;
  target.spread = source.spread;
}

/// What GPUs' links are while they are busy.
void copy_link_states(const Topology& from, Topology& to) {
  for (TopologyNode& node : to.nodes) {
    const TopologyNode* known = from.find(node.id);
    if (node.kind != NodeKind::kGpu || known == nullptr) continue;
    if (!known->attributes.contains("link_state")) continue;
    node.pci_link = known->pci_link;
    for (const char* name : {"link_state", "idle_link"}) {
      const auto found = known->attributes.find(name);
      if (found != known->attributes.end()) node.attributes[name] = found->second;
    }
  }
}

}  // namespace

void copy_measurements(const Topology& from, Topology& to) {
  remove_inferred(to);
  for (const TopologyNode& node : from.nodes) {
    if (is_inferred(node)) to.nodes.push_back(node);
  }
  copy_link_states(from, to);
  std::map<EdgeKey, const TopologyEdge*> known;
  for (const TopologyEdge& edge : from.edges) known[key(edge)] = &edge;
  for (TopologyEdge& edge : to.edges) {
    const auto found = known.find(key(edge));
    if (found == known.end()) continue;
    const TopologyEdge& source = *found->second;
    take(source.bandwidth_gbps, edge.bandwidth_gbps);
    take(source.latency_ns, edge.latency_ns);
    take(source.upward_gbps, edge.upward_gbps);
    for (const auto& [name, figure] : source.figures) take(figure, edge.figures[name]);
    if (!source.fault.empty()) edge.fault = source.fault;
    known.erase(found);
  }
  const InferredLinks inferred(from);
  for (const TopologyEdge& edge : from.edges) {
    // All others are the make-up's.
    if (!is_measurement(edge) && !inferred.contain(edge)) continue;
    const bool there = to.find(edge.from) != nullptr && to.find(edge.to) != nullptr;
    if (known.contains(key(edge)) && there) to.edges.push_back(edge);
  }
  for (const CapacityGroup& group : from.groups) {
    if (is_measured_group(group)) to.groups.push_back(group);
  }
}

}  // namespace topocoll
