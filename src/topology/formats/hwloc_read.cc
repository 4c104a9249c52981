// hwloc's XML, through hwloc's own importer. What hwloc 3 writes is first brought into the words of
// hwloc 2 where only that is at hand.
#include <fcntl.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <string>

#include "topology/formats/formats.h"
#include "topology/formats/hwloc_check.h"
#include "topology/formats/xml_text.h"
#include "topology/hwloc_reader.h"

namespace topocoll {
namespace {

constexpr rlim_t kMaxSeconds = 10;
constexpr std::array<std::string_view, 6> kHwloc2Children = {
    "object", "distances2", "distances2hetero", "support", "memattr", "cpukind"};

/// hwloc 3 has a set of bits where hwloc 2 has one type.
int os_device_type(long bits, std::string_view subtype) {
  constexpr long kBlock = 1, kMemory = 2, kGpu = 4, kCoprocessor = 8, kNetwork = 16, kRdma = 32;
  const bool computes = subtype == "CUDA" || subtype == "OpenCL" || subtype == "LevelZero";
  if ((bits & kRdma) != 0) return HWLOC_OBJ_OSDEV_OPENFABRICS;
  if ((bits & kNetwork) != 0) return HWLOC_OBJ_OSDEV_NETWORK;
  if ((bits & kCoprocessor) != 0 && (computes || (bits & kGpu) == 0)) return HWLOC_OBJ_OSDEV_COPROC;
  if ((bits & kGpu) != 0) return HWLOC_OBJ_OSDEV_GPU;
  if ((bits & (kBlock | kMemory)) != 0) return HWLOC_OBJ_OSDEV_BLOCK;
  return HWLOC_OBJ_OSDEV_DMA;
}

void translate_objects(XmlText& xml, pugi::xml_node object) {
  if (pugi::xml_attribute type = object.attribute("osdev_type")) {
    const long bits = xml.integer(object, "osdev_type", 0, 255).value_or(0);
    type.set_value(os_device_type(bits, object.attribute("subtype").value()));
  }
  for (const pugi::xml_node child : object.children("object")) translate_objects(xml, child);
}

/// From the words of hwloc 3 to those of hwloc 2.
void translate(XmlText& xml) {
  pugi::xml_node root = xml.root();
  root.attribute("version").set_value("2.0");
  pugi::xml_node machine = root.child("object");
  translate_objects(xml, machine);
  for (pugi::xml_node child = root.first_child(); child;) {
    const pugi::xml_node next = child.next_sibling();
    const std::string_view name = child.name();
    if (name == "info" && machine) machine.prepend_copy(child);
    if (std::find(kHwloc2Children.begin(), kHwloc2Children.end(), name) == kHwloc2Children.end()) {
      root.remove_child(child);
    }
    child = next;
  }
}

HwlocTopology loaded(const std::string& text) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  HwlocTopology hwloc(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  // The length includes the terminating null.
  if (hwloc_topology_set_xmlbuffer(raw, text.c_str(), static_cast<int>(text.size()) + 1) != 0 ||
      hwloc_topology_load(raw) != 0) {
    return nullptr;
  }
  return hwloc;
}

/// hwloc 2.9 takes sets and orders on trust and crashes on some that contradict each other, beyond
/// what check_hwloc_objects() looks at. So it reads every text in a process of its own first, which
/// may crash, and is ended if it does not come to an end.
bool survives_loading(const std::string& text) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const rlimit seconds{kMaxSeconds, kMaxSeconds};
    ::setrlimit(RLIMIT_CPU, &seconds);
    HwlocTopology hwloc = loaded(text);
    const bool read = hwloc != nullptr;
    if (read) (void)convert(hwloc.release(), nullptr);
    ::_exit(read ? 0 : 1);
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Result<Topology> load(const std::string& text, const std::string& file) {
  const HwlocTopology hwloc = survives_loading(text) ? loaded(text) : nullptr;
  if (hwloc == nullptr) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("{}: hwloc {} does not accept this topology; lstopo -i FILE with "
                              "HWLOC_XML_VERBOSE=1 says why",
                              file, HWLOC_API_VERSION >> 16));
  }
  return convert(hwloc.get(), nullptr);
}

}  // namespace

Result<Topology> read_hwloc_xml(std::string_view text, const std::string& file) {
  auto parsed = XmlText::parse(text, file);
  if (!parsed.ok()) return parsed.status();
  XmlText& xml = **parsed;
  const pugi::xml_node root = xml.root();
  check_hwloc_objects(xml);
  if (!XmlText::text(root, "version")) {
    xml.fail(root, "version", "is missing: lstopo of hwloc 2 converts what hwloc 1 has written");
  }
  const auto version = xml.number(root, "version", 2, 3.999);
  const bool newer = version && *version >= 3 && HWLOC_API_VERSION < 0x00030000;
  if (xml.ok() && newer) translate(xml);
  if (!xml.ok()) return xml.status();
  // hwloc's parser of its own, which is there when its libxml2 plugin is not, skips a declaration
  // by its line's end and wants the version alone in the first element.
  std::ostringstream out;
  out << "<?xml version=\"1.0\"?>\n";
  root.print(out, "", pugi::format_raw);
  auto topology = load(out.str(), file);
  if (!topology.ok()) return topology;
  // Names come from what hwloc made of the text, which may be odd in ways that it does not mind.
  if (const auto sound = topology_from_json(to_json(*topology)); !sound.ok()) {
    return sound.status().annotated(file);
  }
  if (newer) {
    topology->notes.push_back(
        "written by hwloc 3 and read in the terms of hwloc 2: memory tiers are left out");
  }
  return topology;
}

}  // namespace topocoll
