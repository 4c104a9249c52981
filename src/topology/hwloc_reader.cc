#include "topology/hwloc_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <optional>
#include <utility>

#include "topology/hwloc_io.h"

namespace topocoll {
namespace {

std::optional<NodeKind> kind_of(hwloc_obj_t object) {
  switch (object->type) {
    case HWLOC_OBJ_MACHINE:
      return NodeKind::kHost;
    case HWLOC_OBJ_PACKAGE:
      return NodeKind::kPackage;
    case HWLOC_OBJ_NUMANODE:
      return NodeKind::kNumaNode;
    case HWLOC_OBJ_CORE:
      return NodeKind::kCore;
    case HWLOC_OBJ_PU:
      return NodeKind::kCpu;
    default:
      break;
  }
  if (hwloc_obj_type_is_dcache(object->type)) return NodeKind::kCache;
  return std::nullopt;
}

std::optional<int> small_int(std::uint64_t value) {
  if (value > INT_MAX) return std::nullopt;
  return static_cast<int>(value);
}

/// Facts worth keeping; everything else that hwloc offers is about hwloc, or identifies the
/// machine's owner (serial numbers).
constexpr std::array kHostFacts = {"Architecture", "OSName", "OSRelease", "DMISysVendor",
                                   "DMIProductName"};
constexpr std::array kPackageFacts = {"CPUVendor", "CPUFamilyNumber", "CPUModelNumber",
                                      "CPUStepping"};
constexpr std::array kCoreFacts = {"CoreType", "FrequencyMaxMHz", "FrequencyBaseMHz"};

template <class Names>
void copy_facts(hwloc_obj_t object, const Names& names, TopologyNode& node) {
  for (const char* key : names) {
    const char* value = hwloc_obj_get_info_by_name(object, key);
    if (value != nullptr && *value != 0) node.attributes[key] = value;
  }
}

class Converter {
 public:
  Converter(hwloc_topology_t hwloc, hwloc_const_bitmap_t usable)
      : hwloc_(hwloc), usable_(usable), devices_(hwloc, result_) {}

  Topology take() {
    hwloc_obj_t root = hwloc_get_root_obj(hwloc_);
    const char* host = hwloc_obj_get_info_by_name(root, "HostName");
    result_.host = host != nullptr ? host : "";
    visit(root, "");
    add_distances();
    for (const auto& [object, parent] : io_) devices_.add(object, parent);
    devices_.add_links();
    add_notes(root);
    return std::move(result_);
  }

 private:
  // hwloc hangs memory beside what is local to it, at the highest object that has the same CPUs.
  void visit(hwloc_obj_t object, const std::string& parent) {
    const auto kind = kind_of(object);
    const bool above = kind && *kind >= NodeKind::kCache;  // memory belongs above caches and cores
    std::string inner = kind && !above ? add(object, parent) : parent;
    std::string local;  // the first NUMA node with CPUs takes what is local to it
    for (hwloc_obj_t m = object->memory_first_child; m != nullptr; m = m->next_sibling) {
      visit_memory(m, inner, local);
    }
    if (!local.empty()) inner = local;
    if (above) inner = add(object, inner);
    for (hwloc_obj_t c = object->first_child; c != nullptr; c = c->next_sibling) visit(c, inner);
    for (hwloc_obj_t d = object->io_first_child; d != nullptr; d = d->next_sibling) {
      io_.emplace_back(d, inner);
    }
  }

  void visit_memory(hwloc_obj_t object, const std::string& parent, std::string& local) {
    if (object->type == HWLOC_OBJ_NUMANODE) {
      const std::string id = add(object, parent);
      if (local.empty() && !hwloc_bitmap_iszero(object->cpuset)) local = id;
    }
    // A memory-side cache stands above its NUMA node.
    for (hwloc_obj_t m = object->memory_first_child; m != nullptr; m = m->next_sibling) {
      visit_memory(m, parent, local);
    }
  }

  std::string add(hwloc_obj_t object, const std::string& parent) {
    TopologyNode node;
    node.kind = *kind_of(object);
    node.id = id_of(object, node.kind);
    if (node.kind != NodeKind::kHost && node.kind != NodeKind::kCache) {
      node.os_index = small_int(object->os_index);
    }
    node.cpus = cpus_of(object);
    describe(object, node);
    devices_.know(object, node.id);
    if (!parent.empty()) result_.edges.push_back(containment(object, node, parent));
    std::string id = node.id;
    result_.nodes.push_back(std::move(node));
    return id;
  }

  static std::string id_of(hwloc_obj_t object, NodeKind kind) {
    if (kind == NodeKind::kHost) return "host";
    const int lowest = hwloc_bitmap_first(object->complete_cpuset);
    if (kind == NodeKind::kCache) {
      return fmt::format("l{}:{}", object->attr->cache.depth, lowest);
    }
    const bool numbered = object->os_index != HWLOC_UNKNOWN_INDEX && kind != NodeKind::kCore;
    return numbered ? fmt::format("{}:{}", name(kind), object->os_index)
                    : fmt::format("{}:{}", name(kind), lowest);
  }

  void describe(hwloc_obj_t object, TopologyNode& node) {
    switch (node.kind) {
      case NodeKind::kHost:
        copy_facts(object, kHostFacts, node);
        break;
      case NodeKind::kPackage:
        copy_facts(object, kPackageFacts, node);
        if (const char* model = hwloc_obj_get_info_by_name(object, "CPUModel")) node.label = model;
        break;
      case NodeKind::kNumaNode:
        if (object->attr->numanode.local_memory > 0) {
          node.size_bytes = object->attr->numanode.local_memory;
        }
        if (object->subtype != nullptr) node.label = object->subtype;
        break;
      case NodeKind::kCache:
        if (object->attr->cache.size > 0) node.size_bytes = object->attr->cache.size;
        node.level = small_int(object->attr->cache.depth);
        break;
      case NodeKind::kCore:
        describe_core(object, node);
        break;
      default:
        break;
    }
  }

  /// Hybrid machines: which kind of core this is.
  void describe_core(hwloc_obj_t object, TopologyNode& node) {
    const int kind = hwloc_cpukinds_get_by_cpuset(hwloc_, object->cpuset, 0);
    if (kind < 0) return;
    unsigned count = 0;
    hwloc_info_s* infos = nullptr;
    if (hwloc_cpukinds_get_info(hwloc_, static_cast<unsigned>(kind), nullptr, nullptr, &count,
                                &infos, 0) != 0) {
      return;
    }
    for (unsigned i = 0; i < count; ++i) {
      const std::string_view key = infos[i].name;
      if (std::find(kCoreFacts.begin(), kCoreFacts.end(), key) != kCoreFacts.end()) {
        node.attributes[infos[i].name] = infos[i].value;
      }
    }
  }

  TopologyEdge containment(hwloc_obj_t object, const TopologyNode& node,
                           const std::string& parent) {
    TopologyEdge edge;
    edge.from = parent;
    edge.to = node.id;
    edge.kind = "contains";
    if (node.kind == NodeKind::kNumaNode) {  // firmware tables (HMAT), as seen by the local CPUs
      constexpr double kGbpsPerMibps = 1048576e-9;
      if (const auto v = memory_attribute(object, HWLOC_MEMATTR_ID_BANDWIDTH)) {
        edge.bandwidth_gbps.declared = *v * kGbpsPerMibps;
      }
      edge.latency_ns.declared = memory_attribute(object, HWLOC_MEMATTR_ID_LATENCY);
    }
    return edge;
  }

  std::optional<double> memory_attribute(hwloc_obj_t numa, hwloc_memattr_id_e which) {
    hwloc_location initiator{};
    initiator.type = HWLOC_LOCATION_TYPE_CPUSET;
    initiator.location.cpuset = numa->cpuset;
    hwloc_uint64_t value = 0;
    if (hwloc_bitmap_iszero(numa->cpuset) ||
        hwloc_memattr_get_value(hwloc_, which, numa, &initiator, 0, &value) != 0 || value == 0) {
      return std::nullopt;
    }
    return static_cast<double>(value);
  }

  std::vector<int> cpus_of(hwloc_obj_t object) const {
    std::vector<int> result;
    if (object->cpuset == nullptr) return result;
    for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(object->cpuset, cpu)) {
      if (usable_ == nullptr || hwloc_bitmap_isset(usable_, static_cast<unsigned>(cpu)) != 0) {
        result.push_back(cpu);
      }
    }
    return result;
  }

  /// The firmware's relative distances (SLIT: 10 is local); not in nanoseconds, so an attribute.
  void add_distances() {
    hwloc_distances_s* distances = nullptr;
    unsigned count = 1;
    if (hwloc_distances_get_by_name(hwloc_, "NUMALatency", &count, &distances, 0) != 0 ||
        count == 0) {
      return;
    }
    for (unsigned i = 0; i < distances->nbobjs; ++i) {
      for (unsigned j = 0; j < distances->nbobjs; ++j) {
        if (distances->objs[i] == nullptr || distances->objs[j] == nullptr) continue;
        const std::string from = id_of(distances->objs[i], NodeKind::kNumaNode);
        for (TopologyNode& node : result_.nodes) {
          if (node.id != from) continue;
          node.attributes["distance to " + id_of(distances->objs[j], NodeKind::kNumaNode)] =
              std::to_string(distances->values[i * distances->nbobjs + j]);
        }
      }
    }
    hwloc_distances_release(hwloc_, distances);
  }

  void add_notes(hwloc_obj_t root) {
    const auto of_kind_missing = [&](NodeKind kind) { return result_.of_kind(kind).empty(); };
    if (of_kind_missing(NodeKind::kCache)) {
      result_.notes.emplace_back("caches: the system reports none");
    }
    if (of_kind_missing(NodeKind::kPackage)) {
      result_.notes.emplace_back("packages: the system reports none");
    }
    for (const TopologyNode* numa : result_.of_kind(NodeKind::kNumaNode)) {
      if (!numa->size_bytes) result_.notes.push_back(numa->id + ": size of its memory unknown");
    }
    const int all = hwloc_bitmap_weight(root->complete_cpuset);
    const int mine = static_cast<int>(result_.nodes.front().cpus.size());
    if (mine < all) {
      result_.notes.push_back(fmt::format(
          "this process may use {} of {} CPUs ({}): cpuset or affinity exclude the others", mine,
          all, cpu_ranges(result_.nodes.front().cpus)));
    }
  }

  hwloc_topology_t hwloc_;
  hwloc_const_bitmap_t usable_;
  Topology result_;
  HwlocDevices devices_;
  std::vector<std::pair<hwloc_obj_t, std::string>> io_;  ///< devices and the node above them
};

}  // namespace

Topology convert(hwloc_topology_t hwloc, hwloc_const_bitmap_t usable) {
  return Converter(hwloc, usable).take();
}

Topology flat_topology(const std::string& host, const std::vector<int>& cpus,
                       const std::string& note) {
  Topology result;
  result.host = host;
  result.notes.push_back(note);
  TopologyNode root;
  root.id = "host";
  root.cpus = cpus;
  result.nodes.push_back(root);
  for (int cpu : cpus) {
    TopologyNode node;
    node.id = fmt::format("cpu:{}", cpu);
    node.kind = NodeKind::kCpu;
    node.os_index = cpu;
    node.cpus = {cpu};
    result.nodes.push_back(node);
    result.edges.push_back({"host", node.id, "contains", {}, {}});
  }
  return result;
}

HwlocBitmap parse_bitmap(const std::string& text) {
  const bool plain = text.find_first_not_of("0123456789abcdefABCDEFx,") == text.npos;
  // hwloc 2 counts groups from the second byte on, and asserts that there are as many.
  if (text.empty() || text.front() == ',' || !plain) return nullptr;
  HwlocBitmap set(hwloc_bitmap_alloc());
  if (!set || hwloc_bitmap_sscanf(set.get(), text.c_str()) != 0) return nullptr;
  return set;
}

}  // namespace topocoll
