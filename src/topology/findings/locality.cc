// Where devices are, or are said to be.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "topology/findings/rules.h"
#include "topology/hwloc_reader.h"

namespace topocoll {
namespace {

bool matters(NodeKind kind) { return kind == NodeKind::kGpu || kind == NodeKind::kNic; }

constexpr std::size_t kMaxMaskBytes = 64 * 1024;
constexpr double kFarther = 1.05;  ///< of a latency: a NUMA hop is more, noise less
constexpr const char* kAssignNuma =
    "enable NUMA reporting (_PXM) in the BIOS, pin virtual devices to NUMA nodes in the "
    "hypervisor, or "
    "give a corrected topology file";

}  // namespace

void FindingRules::numa_nodes() {
  const auto all = topology_.of_kind(NodeKind::kNumaNode);
  std::set<long> known;
  for (const TopologyNode* numa : all) {
    if (numa->os_index) {
      known.insert(*numa->os_index);
      continue;
    }
    add({"numa-unknown",
         Severity::kWarning,
         {numa->id},
         "devices hang below a CPU of which the NUMA node is not known",
         "numaid -1 or missing",
         {},
         kAssignNuma});
  }
  std::map<std::string, int> conflicts;
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    if (!matters(node(i).kind)) continue;
    const auto said = number(node(i), "numa_node");
    if (!said) continue;
    const std::size_t numa = tree_.numa_of(i);
    if (*said < 0) {
      if (all.size() < 2) continue;  // with one node there is nothing to know
      add({"numa-unknown",
           Severity::kWarning,
           {node(i).id},
           fmt::format("the system does not say which NUMA node {} is near", node(i).id),
           fmt::format("numa_node -1 of {} NUMA nodes", all.size()),
           {},
           kAssignNuma});
    } else if (!known.contains(static_cast<long>(*said))) {
      add({"numa-conflict",
           Severity::kWarning,
           {node(i).id},
           fmt::format("{} is said to be near a NUMA node that does not exist", node(i).id),
           fmt::format("numa_node {:g}", *said),
           {},
           kAssignNuma});
    } else if (numa != TopologyTree::kNone && node(numa).os_index &&
               *node(numa).os_index != static_cast<int>(*said)) {
      add({"numa-conflict",
           Severity::kWarning,
           {node(i).id, node(numa).id},
           fmt::format("{} is near {} by its place and near numa:{:g} by numa_node", node(i).id,
                       node(numa).id, *said),
           fmt::format("numa_node {:g}, PCI locality {}", *said, node(numa).id),
           {},
           kAssignNuma});
    }
  }
}

/// A device that the system puts near some CPUs of a NUMA node and not near the others.
void FindingRules::local_cpus() {
  for (const TopologyNode& device : topology_.nodes) {
    const std::string text = device.attribute("local_cpus");
    if (text.empty() || text.size() > kMaxMaskBytes) continue;
    const HwlocBitmap near = parse_bitmap(text);
    if (!near) continue;
    for (const TopologyNode* numa : topology_.of_kind(NodeKind::kNumaNode)) {
      const auto inside = std::count_if(numa->cpus.begin(), numa->cpus.end(), [&](int cpu) {
        return hwloc_bitmap_isset(near.get(), static_cast<unsigned>(cpu)) != 0;
      });
      if (inside == 0 || inside == static_cast<std::ptrdiff_t>(numa->cpus.size())) continue;
      add({"numa-conflict",
           Severity::kWarning,
           {device.id, numa->id},
           fmt::format("{} is said to be near some CPUs of {} and not near the others", device.id,
                       numa->id),
           fmt::format("local_cpus {}, {} has {}", text, numa->id, cpu_ranges(numa->cpus)),
           {},
           kAssignNuma});
      break;
    }
  }
}

/// GPUs without a NIC at their NUMA node although there are NICs elsewhere.
void FindingRules::far_nics() {
  std::map<std::size_t, int> nics;
  int total = 0;
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    if (node(i).kind != NodeKind::kNic) continue;
    ++total;
    ++nics[tree_.numa_of(i)];
  }
  if (total == 0 || nics.contains(TopologyTree::kNone)) return;
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    if (node(i).kind != NodeKind::kGpu) continue;
    const std::size_t numa = tree_.numa_of(i);
    if (numa == TopologyTree::kNone || nics.contains(numa)) continue;
    add({"gpu-far-from-nic",
         Severity::kWarning,
         {node(i).id},
         fmt::format("{} reaches every NIC through another NUMA node", node(i).id),
         fmt::format("no NIC at {}, {} elsewhere", node(numa).id, total),
         {},
         "move a NIC to a slot of that NUMA node, or let GPUs near a NIC send for this one"});
  }
}

/// What a device needs to read memory: of the node that answers soonest, and of the device's own.
struct FindingRules::NearestMemory {
  std::size_t nearest = TopologyTree::kNone;
  const Figure* least = nullptr;
  const Figure* next = nullptr;  ///< the least of the others
  const Figure* own = nullptr;   ///< of the node that the device is said to be near
};

/// Who reads the memory of another NUMA node sooner than that of its own is said to be in the wrong
/// place.
void FindingRules::nearest_memories() {
  std::map<std::size_t, NearestMemory> devices;
  for (const NodeKind kind : {NodeKind::kGpu, NodeKind::kNicPort}) {
    for (const Transfer& way : transfers(NodeKind::kNumaNode, kind)) {
      const Figure& latency = way.edge->latency_ns;
      if (!latency.measured) continue;
      NearestMemory& known = devices[way.to];
      if (way.from == tree_.numa_of(way.to)) known.own = &latency;
      if (known.least == nullptr || *latency.measured < *known.least->measured) {
        known.next = std::exchange(known.least, &latency);
        known.nearest = way.from;
      } else if (known.next == nullptr || *latency.measured < *known.next->measured) {
        known.next = &latency;
      }
    }
  }
  for (const auto& [device, memory] : devices) {
    // A port that is a program is wherever it runs.
    if (node(device).attribute("software").empty()) nearest_memory(device, memory);
  }
}

void FindingRules::nearest_memory(std::size_t device, const NearestMemory& memory) {
  const bool placed = tree_.numa_of(device) != TopologyTree::kNone;
  const Figure* other = placed ? memory.own : memory.next;
  if (other == nullptr || other == memory.least) return;
  const double least = *memory.least->measured;
  const double high = memory.least->spread ? memory.least->spread->high : least;
  const double low = other->spread ? other->spread->low : *other->measured;
  if (low <= kFarther * high) return;
  const std::string& id = node(device).id;
  const std::string& nearest = node(memory.nearest).id;
  const std::string evidence = fmt::format(
      "reads of one word or byte take {:.0f} and {:.0f} ns, measured", least, *other->measured);
  if (!placed) {
    add({"numa-measured",
         Severity::kInfo,
         {id, nearest},
         fmt::format("{} is near {} by what its reads take: nothing else says so", id, nearest),
         evidence,
         {},
         kAssignNuma});
    return;
  }
  const std::string& own = node(tree_.numa_of(device)).id;
  add({"numa-wrong",
       Severity::kWarning,
       {id, nearest, own},
       fmt::format("{} reads memory of {} sooner than that of {}, which it is said to be near", id,
                   nearest, own),
       evidence,
       100.0 * (1 - least / *other->measured),
       std::string(kAssignNuma) + "; to confirm: topocoll topo probe --no-cache"});
}

void FindingRules::doubled_devices() {
  std::map<std::string, std::vector<std::string>> by_uuid;
  for (const TopologyNode& device : topology_.nodes) {
    if (!device.uuid.empty()) by_uuid[device.uuid].push_back(device.id);
  }
  for (const auto& [uuid, ids] : by_uuid) {
    if (ids.size() < 2) continue;
    add({"device-doubled",
         Severity::kError,
         ids,
         fmt::format("{} and {} are one GPU", ids[0], ids[1]),
         "UUID " + uuid,
         {},
         "merge the hosts or files that list it, or remove one"});
  }
  for (const TopologyNode& port : topology_.nodes) {
    const std::string members = port.attribute("bond_members");
    if (members.empty()) continue;
    add({"bond",
         Severity::kInfo,
         {port.id},
         fmt::format("{} bonds other interfaces: do not count it beside them", port.id),
         "members " + members,
         {},
         "use either the bond or its members"});
  }
}

}  // namespace topocoll
