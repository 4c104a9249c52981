// From an hwloc topology to ours. Apart from discovery so that machines which are not here can be
// read. Thread rule: free functions. Failure rule: what hwloc does not know is left out and noted.
#pragma once

#include <hwloc.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/topology.h"

namespace topocoll {

struct HwlocDelete {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, HwlocDelete>;
using HwlocBitmap = std::unique_ptr<hwloc_bitmap_s, HwlocDelete>;

/// Converts a loaded topology. `usable` are the CPUs that this process may run on; null: all of
/// them.
///
/// Containment is made one tree: what is local to a NUMA node stands below it, groups and dies are
/// left out. Packages, NUMA nodes and CPUs are named after the kernel's number, caches and cores
/// after the lowest CPU below them, which does not change when the process is confined to other
/// CPUs.
Topology convert(hwloc_topology_t hwloc, hwloc_const_bitmap_t usable);

/// A topology of the host and `cpus` alone, for when hwloc cannot read the machine.
Topology flat_topology(const std::string& host, const std::vector<int>& cpus,
                       const std::string& note);

/// hwloc's and the kernel's notation of a set, "0x000000ff,0xffffffff"; null for other texts, and
/// for those that hwloc ends the process on.
HwlocBitmap parse_bitmap(const std::string& text);

/// "0-3,8".
std::string cpu_ranges(const std::vector<int>& cpus);

}  // namespace topocoll
