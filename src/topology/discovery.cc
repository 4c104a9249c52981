#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "topocoll/topology.h"
#include "topology/hwloc_reader.h"
#include "topology/gpu_facts.h"
#include "topology/gpu_record.h"
#include "topology/recorded_tree.h"
#include "topology/sysfs.h"

namespace topocoll {
namespace {

constexpr std::size_t kMaxDescriptionBytes = 1024;
constexpr std::size_t kMaxCpuListBytes = 64 * 1024;
constexpr std::uint64_t kMaxSyntheticObjects = 1U << 16;

std::string error_text(int error) { return std::generic_category().message(error); }

HwlocTopology new_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  return HwlocTopology(raw);
}

/// What asks drivers would wake devices; names from libpciaccess would differ from a recording's.
void configure(hwloc_topology_t hwloc, bool live) {
  // Reading caches by CPUID would move this thread from CPU to CPU, behind the caller's back.
  if (live) hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
  hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  for (const char* component : {"cuda", "nvml", "rsmi", "levelzero", "opencl", "gl", "pci"}) {
    hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  if (!live) hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
}

void add_kernel_facts(const SysfsRoot& root, Topology& topology) {
  add_pci_facts(root, topology);
  add_network_facts(root, topology);
  add_limits(root, topology);
}

/// Sets a variable of the environment while it lives. hwloc knows no other way to be shown a
/// recorded /sys, and it looks while it loads only.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string host_name() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "";
}

/// The CPUs of this thread according to the kernel, without hwloc.
std::vector<int> affinity() {
  std::vector<int> cpus;
  // The kernel refuses sets that are shorter than its own, whose length it does not tell.
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(size));
    if (set == nullptr) return cpus;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    const bool read = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; read && cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (read || errno != EINVAL) break;
  }
  return cpus;
}

/// Memory that was plugged in later may be missing from the nodes' own figures.
void note_missing_memory(Topology& topology) {
  std::uint64_t of_nodes = 0;
  for (const TopologyNode* numa : topology.of_kind(NodeKind::kNumaNode)) {
    if (!numa->size_bytes) return;  // noted already
    of_nodes += *numa->size_bytes;
  }
  const auto all =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  constexpr double kGiB = 1U << 30;
  if (static_cast<double>(of_nodes) < 0.9 * all) {
    topology.notes.push_back(
        fmt::format("the NUMA nodes report {:.1f} GiB of memory, the system as a whole {:.1f} GiB",
                    static_cast<double>(of_nodes) / kGiB, all / kGiB));
  }
}

Topology without_hwloc(const std::string& why) {
  return flat_topology(host_name(), affinity(), "hwloc cannot read this machine: " + why);
}

/// How many objects of its lowest level a synthetic description asks for; stops growing when too
/// many.
std::uint64_t synthetic_objects(const std::string& description) {
  std::uint64_t product = 1;
  int nested = 0;
  std::size_t i = 0;
  while (i < description.size()) {
    const char c = description[i];
    if (c == '(' || c == '[') ++nested;
    if (c == ')' || c == ']') --nested;
    const bool starts_number = std::isdigit(static_cast<unsigned char>(c)) != 0 &&
                               (i == 0 || description[i - 1] == ' ' || description[i - 1] == ':');
    if (nested > 0 || !starts_number) {
      ++i;
      continue;
    }
    std::uint64_t number = 0;
    for (; i < description.size() && std::isdigit(static_cast<unsigned char>(description[i])) != 0;
         ++i) {
      number = std::min(number * 10 + static_cast<std::uint64_t>(description[i] - '0'),
                        kMaxSyntheticObjects + 1);
    }
    product = std::min(product * number, kMaxSyntheticObjects + 1);
  }
  return product;
}

/// One at a time: libudev, through which hwloc names PCI devices, has state of its own without a
/// lock, and the environment that hwloc reads belongs to the process.
std::mutex& one_discovery() {
  static std::mutex mutex;
  // fork() waits for a discovery of another thread: the child would have the lock and not the
  // thread.
  [[maybe_unused]] static const int registered =
      ::pthread_atfork([] { one_discovery().lock(); }, [] { one_discovery().unlock(); },
                       [] { one_discovery().unlock(); });
  return mutex;
}

}  // namespace

Result<Topology> discover_topology() {
  const std::lock_guard<std::mutex> lock(one_discovery());
  const HwlocTopology hwloc = new_topology();
  if (!hwloc) return without_hwloc(error_text(errno));
  configure(hwloc.get(), true);
  if (hwloc_topology_load(hwloc.get()) != 0) return without_hwloc(error_text(errno));
  if (hwloc_topology_is_thissystem(hwloc.get()) == 0) {
    Topology result = convert(hwloc.get(), nullptr);
    result.notes.emplace_back("an HWLOC_* variable in the environment replaces the real machine");
    return result;
  }
  const HwlocBitmap usable(hwloc_bitmap_alloc());
  if (!usable) return Status(Cause::kResource, "no memory for a set of CPUs");
  const bool bound = hwloc_get_cpubind(hwloc.get(), usable.get(), HWLOC_CPUBIND_PROCESS) == 0;
  const int error = errno;
  Topology result = convert(hwloc.get(), bound ? usable.get() : nullptr);
  if (!bound) {
    result.notes.push_back("the CPUs that this process may use are unknown: " + error_text(error));
  }
  note_missing_memory(result);
  const auto root = SysfsRoot::open("/");
  if (root.ok()) add_kernel_facts(*root, result);
  return result;
}

Result<Topology> discover_topology_at(const std::string& root) {
  const auto sysfs = SysfsRoot::open(root);
  if (!sysfs.ok()) return sysfs.status();
  if (sysfs->list("/sys").empty()) {
    return Status(Cause::kInvalidArgument,
                  root + ": no recorded machine, there is no sys below it");
  }
  if (!sysfs->is_live()) {
    if (Status s = check_recorded_tree(root); !s.ok()) return s;
  }
  const std::lock_guard<std::mutex> lock(one_discovery());
  const HwlocTopology hwloc = new_topology();
  if (!hwloc) return Status(Cause::kResource, "hwloc: " + error_text(errno));
  configure(hwloc.get(), false);
  {
    const ScopedVariable variable("HWLOC_FSROOT", root);
    const ScopedVariable quiet("HWLOC_HIDE_ERRORS", "2");  // contradictions are findings here
    if (hwloc_topology_load(hwloc.get()) != 0) {
      return Status(Cause::kInvalidArgument,
                    fmt::format("{}: hwloc cannot read the machine recorded there: {}", root,
                                error_text(errno)));
    }
  }
  const std::string cpus = recorded_cpus(*sysfs);
  const HwlocBitmap usable(hwloc_bitmap_alloc());
  const bool known = usable && !cpus.empty() && cpus.size() < kMaxCpuListBytes &&
                     hwloc_bitmap_list_sscanf(usable.get(), cpus.c_str()) == 0;
  Topology result = convert(hwloc.get(), known ? usable.get() : nullptr);
  if (!sysfs->text("/proc/hwloc-nofile-info")) {
    // hwloc asks the running kernel then, which is not the recorded one.
    result.host.clear();
    if (!result.nodes.empty()) {
      for (const char* key : {"OSName", "OSRelease"}) result.nodes.front().attributes.erase(key);
    }
  }
  add_kernel_facts(*sysfs, result);
  const auto gpus = recorded_gpus(*sysfs);
  if (!gpus.ok()) return gpus.status().annotated(root);
  add_gpu_facts(*gpus, result);
  // Whoever wrote the files may have put one CPU into two packages and the like.
  if (const auto sound = topology_from_json(to_json(result)); !sound.ok()) {
    return sound.status().annotated(root + ": the recorded machine contradicts itself");
  }
  return result;
}

Result<Topology> synthetic_topology(const std::string& description) {
  const auto refuse = [&](const std::string& why) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("synthetic topology \"{}\": {}", description.substr(0, 80), why));
  };
  if (description.size() > kMaxDescriptionBytes) {
    return refuse(
        fmt::format("{} bytes, {} are allowed", description.size(), kMaxDescriptionBytes));
  }
  if (synthetic_objects(description) > kMaxSyntheticObjects) {
    return refuse(fmt::format("more than {} CPUs", kMaxSyntheticObjects));
  }
  const HwlocTopology hwloc = new_topology();
  if (!hwloc) return Status(Cause::kResource, "hwloc: " + error_text(errno));
  if (hwloc_topology_set_synthetic(hwloc.get(), description.c_str()) != 0 ||
      hwloc_topology_load(hwloc.get()) != 0) {
    return refuse("hwloc expects a description such as \"pack:2 numa:1 l3:1 core:4 pu:2\"");
  }
  Topology result = convert(hwloc.get(), nullptr);
  result.host = "synthetic";
  return result;
}

}  // namespace topocoll
