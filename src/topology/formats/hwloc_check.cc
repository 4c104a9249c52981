#include "topology/formats/hwloc_check.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include "topology/hwloc_reader.h"
#include "topology/pci.h"

namespace topocoll {
namespace {

constexpr std::array<std::string_view, 12> kParts = {"Machine", "Package", "Die",      "Core",
                                                     "PU",      "L1Cache", "L2Cache",  "L3Cache",
                                                     "L4Cache", "L5Cache", "L1iCache", "Group"};
constexpr std::array<std::string_view, 2> kMoreCaches = {"L2iCache", "L3iCache"};
constexpr std::array<std::string_view, 2> kMemory = {"NUMANode", "MemCache"};
constexpr std::array<std::string_view, 3> kDevices = {"Bridge", "PCIDev", "OSDev"};
constexpr std::size_t kMaxSetBytes = 64 * 1024;
constexpr int kMaxCpus = 1 << 16;

template <class Names>
bool is_one_of(std::string_view type, const Names& names) {
  return std::find(names.begin(), names.end(), type) != names.end();
}

bool is_part(std::string_view type) {
  return is_one_of(type, kParts) || is_one_of(type, kMoreCaches);
}

class ObjectCheck {
 public:
  explicit ObjectCheck(XmlText& xml) : xml_(xml) {}

  void check() {
    const pugi::xml_node root = xml_.root();
    const pugi::xml_node machine = root.child("object");
    if (!machine) return xml_.fail(root, "no <object> below it");
    if (machine.next_sibling("object")) {
      return xml_.fail(machine.next_sibling("object"), "a second <object> at the top");
    }
    if (type_of(machine) != "Machine") {
      return xml_.fail(machine, "type", "the outermost object is a Machine");
    }
    check_object(machine, pugi::xml_node());
    if (xml_.ok() && !has_cpu_) xml_.fail(machine, "no PU below it");
    if (xml_.ok() && !has_memory_) xml_.fail(machine, "no NUMANode below it");
    for (const pugi::xml_node child : root.children()) {
      if (std::string_view(child.name()).starts_with("distances2")) check_distances(child);
    }
  }

 private:
  static std::string type_of(pugi::xml_node object) {
    return XmlText::text(object, "type").value_or("");
  }

  HwlocBitmap set_of(pugi::xml_node object, const char* name) {
    const std::string text = XmlText::text(object, name).value_or("");
    HwlocBitmap set = text.size() > kMaxSetBytes ? nullptr : parse_bitmap(text);
    if (!set || hwloc_bitmap_last(set.get()) >= kMaxCpus) {
      xml_.fail(object, name, "expected a set such as \"0x000000ff,0xffffffff\"");
      return nullptr;
    }
    return set;
  }

  void check_object(pugi::xml_node object, pugi::xml_node parent) {
    if (!xml_.ok()) return;
    const std::string type = type_of(object);
    const std::string above = type_of(parent);
    if (is_part(type) || is_one_of(type, kMemory)) {
      if (is_one_of(type, kMemory) ? !is_part(above) && above != "MemCache"
                                   : parent && !is_part(above)) {
        return xml_.fail(object, "type", fmt::format("a {} inside of a {}", type, above));
      }
      check_sets(object, parent);
      check_number(object, type);
    } else if (is_one_of(type, kDevices)) {
      check_device(object, type);
    } else if (type != "Misc") {
      return xml_.fail(object, "type", "is missing or not one of hwloc's");
    }
    if (type == "PU" && object.child("object").attribute("cpuset")) {
      return xml_.fail(object, "a PU has no parts");
    }
    check_children(object, type);
  }

  void check_children(pugi::xml_node object, const std::string& type) {
    const HwlocBitmap taken(hwloc_bitmap_alloc());
    for (const pugi::xml_node child : object.children("object")) {
      check_object(child, object);
      if (!xml_.ok() || !taken) return;
      if (!is_part(type) || !is_part(type_of(child))) continue;
      const HwlocBitmap own = set_of(child, "complete_cpuset");
      if (own == nullptr) return;
      if (hwloc_bitmap_intersects(own.get(), taken.get()) != 0) {
        return xml_.fail(child, "complete_cpuset", "overlaps the one before it");
      }
      hwloc_bitmap_or(taken.get(), taken.get(), own.get());
    }
  }

  void check_sets(pugi::xml_node object, pugi::xml_node parent) {
    for (const char* name : {"cpuset", "complete_cpuset", "nodeset", "complete_nodeset"}) {
      const HwlocBitmap own = set_of(object, name);
      const HwlocBitmap around = parent ? set_of(parent, name) : nullptr;
      if (own == nullptr || !xml_.ok()) return;
      if (around != nullptr && hwloc_bitmap_isincluded(own.get(), around.get()) == 0) {
        return xml_.fail(object, name, "is not within that of the object around it");
      }
    }
    for (const auto& [part, whole] :
         {std::pair{"cpuset", "complete_cpuset"}, std::pair{"nodeset", "complete_nodeset"}}) {
      const HwlocBitmap own = set_of(object, part);
      const HwlocBitmap all = set_of(object, whole);
      if (own != nullptr && all != nullptr && hwloc_bitmap_isincluded(own.get(), all.get()) == 0) {
        xml_.fail(object, part, fmt::format("is not within its {}", whole));
      }
    }
  }

  void check_number(pugi::xml_node object, const std::string& type) {
    const auto number = xml_.integer(object, "os_index", 0, UINT32_MAX);
    for (const char* size : {"cache_size", "local_memory"}) {
      if (const auto text = XmlText::text(object, size); text && text->front() == '-') {
        return xml_.fail(object, size, fmt::format("expected a size, found \"{}\"", *text));
      }
    }
    if (type.find("Cache") != type.npos && type != "MemCache") {
      xml_.integer(object, "depth", 1, 5);
    }
    if (!xml_.ok() || (type != "PU" && type != "NUMANode")) return;
    (type == "PU" ? has_cpu_ : has_memory_) = true;
    const char* set = type == "PU" ? "complete_cpuset" : "complete_nodeset";
    const HwlocBitmap own = set_of(object, set);
    if (own == nullptr) return;
    if (!number || hwloc_bitmap_weight(own.get()) != 1 ||
        hwloc_bitmap_first(own.get()) != static_cast<int>(*number)) {
      return xml_.fail(object, set, "is not the object's os_index alone");
    }
    if (!seen_.insert(fmt::format("{} {}", type, *number)).second) {
      xml_.fail(object, "os_index", fmt::format("{} {} is listed twice", type, *number));
    }
  }

  void check_device(pugi::xml_node object, const std::string& type) {
    if (type == "OSDev") {
      xml_.integer(object, "osdev_type", 0, 255);
      return;
    }
    const auto address = XmlText::text(object, "pci_busid");
    if (type == "PCIDev" && !address) return xml_.fail(object, "pci_busid", "is missing");
    if (!address) return;
    if (canonical_bdf(*address).empty()) return xml_.fail(object, "pci_busid", "is no PCI address");
    if (!seen_.insert(canonical_bdf(*address)).second) {
      return xml_.fail(object, "pci_busid", *address + " is listed twice");
    }
    xml_.number(object, "pci_link_speed", 0, 1e6);
  }

  /// hwloc makes room for all values before it looks whether they are there.
  void check_distances(pugi::xml_node distances) {
    const auto objects = xml_.integer(distances, "nbobjs", 1, kMaxCpus);
    if (!objects) return;
    std::size_t bytes = 0;
    for (const pugi::xml_node values : distances.children("u64values")) {
      bytes += std::string_view(values.child_value()).size();
    }
    const auto count = static_cast<std::size_t>(*objects);
    if (2 * count * count <= bytes + 1) return;
    xml_.fail(distances, "nbobjs",
              fmt::format("{} objects have more values than are listed", count));
  }

  XmlText& xml_;
  std::set<std::string> seen_;
  bool has_cpu_ = false;
  bool has_memory_ = false;
};

}  // namespace

void check_hwloc_objects(XmlText& xml) { ObjectCheck(xml).check(); }

}  // namespace topocoll
