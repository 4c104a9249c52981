// Copies what discovery reads, and nothing that names the machine or its owner.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "base/cuda/nvml.h"
#include "topocoll/topology_formats.h"
#include "topology/gpu_record.h"
#include "topology/sysfs.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxFiles = 200'000;
constexpr std::size_t kExtendedConfig = 0x100;
constexpr unsigned kSerialNumberCapability = 0x0003;

/// Files of these names are copied wherever the trees below have them. What is not here stays:
/// among others address, serial, *_uuid, node_guid, gids, vpd.
const std::set<std::string_view>& file_names() {
  static const std::set<std::string_view> names = {
      // PCI functions
      "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "revision", "config",
      "local_cpus", "local_cpulist", "numa_node", "current_link_speed", "current_link_width",
      "max_link_speed", "max_link_width", "aer_dev_correctable", "aer_dev_nonfatal",
      "aer_dev_fatal", "enable",
      // network interfaces and RDMA devices
      "mtu", "speed", "operstate", "type", "dev_id", "dev_port", "slaves", "rate", "state",
      "phys_state", "link_layer", "0", "node_type", "hca_type",
      // CPUs, caches and memory
      "online", "possible", "present", "kernel_max", "size", "level", "coherency_line_size",
      "number_of_sets", "physical_line_partition", "ways_of_associativity", "shared_cpu_map",
      "shared_cpu_list", "core_id", "physical_package_id", "die_id", "cluster_id", "book_id",
      "drawer_id", "core_siblings", "core_cpus", "thread_siblings", "package_cpus", "die_cpus",
      "cluster_cpus", "cpu_capacity", "cpuinfo_max_freq", "base_frequency", "cpumap", "cpulist",
      "distance", "meminfo", "read_bandwidth", "write_bandwidth", "read_latency", "write_latency",
      "has_cpu", "has_memory", "has_normal_memory", "nr_hugepages", "access0", "indexing",
      // the product
      "sys_vendor", "product_name", "product_version", "product_family", "board_vendor",
      "board_name", "chassis_vendor", "chassis_type", "bios_vendor", "bios_version", "bios_date"};
  return names;
}

constexpr std::array kTrees = {
    "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/devices/virtual/dmi/id",
    "/sys/bus/pci/devices",    "/sys/class/net",           "/sys/class/infiniband",
    "/sys/class/dmi"};
/// Mounts and control groups name servers and containers, so the CPUs that this process may use are
/// kept as a fact of it instead.
constexpr std::array kFiles = {"/proc/cpuinfo", "/proc/meminfo", "/proc/self/limits"};
constexpr std::array kLinks = {"driver", "physfn", "device"};

/// Blanks the device's serial number in its configuration space.
void blank_serial(std::string& config) {
  std::size_t at = kExtendedConfig;
  for (int steps = 0; steps < 64 && at >= kExtendedConfig && at + 12 <= config.size(); ++steps) {
    const auto byte = [&](std::size_t i) {
      return static_cast<unsigned>(static_cast<unsigned char>(config[at + i]));
    };
    if ((byte(0) | byte(1) << 8) == kSerialNumberCapability) {
      std::fill_n(config.begin() + static_cast<std::ptrdiff_t>(at + 4), 8, '\0');
    }
    at = (byte(2) >> 4 | byte(3) << 4) & 0xffc;
  }
}

/// What hwloc asks the running kernel, in the words in which it reads that from a recording.
std::string describe_system() {
  utsname names{};
  if (::uname(&names) != 0) return "";
  return fmt::format("HostName: recorded\nOSName: {}\nOSRelease: {}\nArchitecture: {}\n", names.sysname, names.release,
                     names.machine);
}

class Recorder {
 public:
  Recorder(const SysfsRoot& root, std::string to) : root_(root), to_(std::move(to)) {}

  Status record() {
    std::error_code error;
    if (!fs::create_directory(to_, error)) {
      return Status(Cause::kSystem,
                    fmt::format("{}: {}", to_, error ? error.message() : "exists already"));
    }
    copy_all();
    // What is left of a recording would be taken for a smaller machine.
    if (!ok()) fs::remove_all(to_, error);
    return status_;
  }

 private:
  void copy_all() {
    for (const char* file : kFiles) copy_file(file, file);
    for (const char* tree : kTrees) copy_tree(tree, 0);
    // Links of /sys/bus and /sys/class lead to here; only what they lead to is needed.
    while (!targets_.empty() && ok()) {
      const std::string next = *targets_.begin();
      targets_.erase(targets_.begin());
      if (done_.insert(next).second) copy_directory(next, 0);
    }
    write(kRecordedProcess, describe_process());
    write("/proc/hwloc-nofile-info", describe_system());
    if (const auto gpus = read_nvml(); gpus.ok()) {
      for (const NvmlDevice& gpu : gpus->devices) {
        const std::string text = gpu_to_json(gpu);
        // Of a GPU without an address nothing is kept: nobody could read it.
        if (!gpu_from_json(text, "").ok()) continue;
        write(fmt::format("{}/{}", kRecordedGpus, gpu.bdf), text);
      }
    }
  }

  [[nodiscard]] bool ok() const { return status_.ok(); }

  void fail(const std::string& path) {
    if (ok()) {
      status_ = Status(Cause::kSystem,
                       fmt::format("{}{}: {}", to_, path, std::generic_category().message(errno)));
    }
  }

  void write(const std::string& path, const std::string& text) {
    if (!ok()) return;
    if (++files_ > kMaxFiles) {
      status_ = Status(Cause::kResource, fmt::format("{}: more than {} files", to_, kMaxFiles));
      return;
    }
    std::error_code error;
    fs::create_directories(fs::path(to_ + path).parent_path(), error);
    const Fd fd(::open((to_ + path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    std::size_t written = 0;
    while (fd.valid() && written < text.size()) {
      const ssize_t n = ::write(fd.get(), text.data() + written, text.size() - written);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      written += static_cast<std::size_t>(n);
    }
    if (!fd.valid() || written < text.size()) fail(path);
  }

  void copy_file(const std::string& from, const std::string& to) {
    auto bytes = root_.bytes(from);
    if (!bytes) return;  // what cannot be read is absent in the copy too
    if (from.ends_with("/config")) blank_serial(*bytes);
    write(to, *bytes);
  }

  void copy_link(const std::string& path, const std::string& target) {
    std::error_code error;
    fs::create_directories(fs::path(to_ + path).parent_path(), error);
    if (::symlink(target.c_str(), (to_ + path).c_str()) != 0 && errno != EEXIST) fail(path);
  }

  /// A directory of links, or of files.
  void copy_tree(const std::string& path, int depth) {
    for (const std::string& name : root_.list(path)) {
      if (!ok() || depth > kMaxDepth) return;
      const std::string below = path + "/" + name;
      const auto target = root_.link(below);
      if (!target) {
        copy_entry(below, name, depth);
        continue;
      }
      if (target->find("/virtual/net/") != target->npos)
        continue;  // comes and goes with containers
      copy_link(below, *target);
      const std::string place = fs::path(path + "/" + *target).lexically_normal();
      if (place.rfind("/sys/devices/", 0) == 0) targets_.insert(place);
    }
  }

  void copy_entry(const std::string& below, const std::string& name, int depth) {
    if (file_names().contains(name) && root_.bytes(below)) return copy_file(below, below);
    copy_tree(below, depth + 1);
  }

  /// A device's directory: its facts, not its children, which have links of their own.
  void copy_directory(const std::string& path, int depth) {
    for (const std::string& name : root_.list(path)) {
      if (!ok() || depth > kMaxDepth) return;
      const std::string below = path + "/" + name;
      if (const auto target = root_.link(below)) {
        const bool wanted = std::find(kLinks.begin(), kLinks.end(), name) != kLinks.end();
        if (wanted) copy_link(below, *target);
        continue;
      }
      if (file_names().contains(name) && root_.bytes(below)) {
        copy_file(below, below);
      } else if (bdf_in_path(name).empty() && name != "gids") {  // those are addresses
        copy_directory(below, depth + 1);
      }
    }
  }

  const SysfsRoot& root_;
  std::string to_;
  Status status_;
  std::size_t files_ = 0;
  std::set<std::string> targets_;
  std::set<std::string> done_;
};

}  // namespace

Status record_topology(const std::string& directory) {
  const auto root = SysfsRoot::open("/");
  if (!root.ok()) return root.status();
  return Recorder(*root, directory).record();
}

}  // namespace topocoll
