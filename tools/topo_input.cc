#include "topo_input.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>

#include "archive.h"
#include "files.h"
#include "topocoll/probe.h"
#include "topocoll/topology_formats.h"

namespace topocoll::tools {
namespace {

/// hwloc-gather-topology packs a directory, record packs the tree itself below one too.
Result<std::string> recorded_root(const std::string& directory) {
  std::error_code error;
  if (std::filesystem::is_directory(directory + "/sys", error)) return directory;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (std::filesystem::is_directory(entry.path() / "sys", error)) return entry.path().string();
  }
  return Status(Cause::kInvalidArgument,
                directory + ": no recorded machine, there is no sys in it");
}

Result<Topology> load_recorded(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
    const auto root = recorded_root(path);
    if (!root.ok()) return root.status();
    return discover_topology_at(*root);
  }
  if (S_ISREG(facts.st_mode) && !is_archive(path)) {
    const auto text = read_file(path);
    if (text.ok() && detect_topology_format(*text)) {
      return Status(Cause::kInvalidArgument, path + " is a saved topology: give it without --from");
    }
  }
  auto directory = TemporaryDirectory::create();
  if (!directory.ok()) return directory.status();
  if (Status s = unpack(path, directory->path()); !s.ok()) return s;
  const auto root = recorded_root(directory->path());
  if (!root.ok()) return Status(Cause::kInvalidArgument, path + ": no recorded machine in it");
  return discover_topology_at(*root);
}

}  // namespace

bool is_given(const TopoInput& input) {
  return !(input.file.empty() && input.from.empty() && input.synthetic.empty());
}

Status check_input(const TopoInput& input) {
  const int given = !input.file.empty() + !input.from.empty() + !input.synthetic.empty();
  if (given < 2) return {};
  return Status(Cause::kInvalidArgument, "give one of a file, --from and --synthetic");
}

Result<Topology> load_topology(const TopoInput& input) {
  if (!input.synthetic.empty()) return synthetic_topology(input.synthetic);
  if (!input.from.empty()) return load_recorded(input.from);
  if (input.file.empty()) return discover_topology();
  struct stat facts {};
  const bool directory =
      ::stat(input.file.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && input.file != "-";
  if (directory || is_archive(input.file)) return load_recorded(input.file);
  const auto text = read_file(input.file);
  if (!text.ok()) return text.status();
  return import_topology(*text, input.file == "-" ? "standard input" : input.file);
}

Result<Topology> load_known_topology(const TopoInput& input) {
  return is_given(input) ? load_topology(input) : known_topology();
}

Status leave_out(const std::vector<std::string>& ids, Topology& topology) {
  const std::set<std::string> gone(ids.begin(), ids.end());
  for (const std::string& id : gone) {
    if (topology.find(id) != nullptr) continue;
    return {Cause::kInvalidArgument,
            fmt::format("--without {}: the topology has no such node (topocoll topo show lists "
                        "them; ids are like gpu:0000:4e:00.0)",
                        id)};
  }
  const auto touches = [&](const auto& link) {
    return gone.contains(link.from) || gone.contains(link.to);
  };
  std::erase_if(topology.nodes, [&](const TopologyNode& node) { return gone.contains(node.id); });
  std::erase_if(topology.edges, touches);
  for (CapacityGroup& group : topology.groups) std::erase_if(group.members, touches);
  return {};
}

}  // namespace topocoll::tools
