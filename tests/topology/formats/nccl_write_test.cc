// What NCCL itself makes of its XML as topocoll writes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/measured_gpus.h"
#include "topology/formats/machines.h"
#include "topology/formats/xml_text.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kMaxElements = 256;
constexpr std::size_t kMaxChildren = 128;
constexpr std::size_t kMaxValue = 253;

/// What NCCL's reader and its maker of graphs need of an element; returns the first thing that they
/// would refuse, or "".
std::string refused(pugi::xml_node element, std::size_t& elements) {
  const std::string name = element.name();
  const auto lacks = [&](std::initializer_list<const char*> keys) -> std::string {
    for (const char* key : keys) {
      if (!element.attribute(key)) return name + " lacks " + key;
    }
    return "";
  };
  if (++elements > kMaxElements) return "too many elements";
  std::string wrong;
  if (name == "system" && std::string(element.attribute("version").value()) != "1") {
    wrong = "version";
  }
  if (name == "cpu") wrong = lacks({"numaid", "arch", "vendor", "familyid", "modelid"});
  if (name == "pci") wrong = lacks({"busid", "class", "link_speed", "link_width"});
  if (name == "nvlink") wrong = lacks({"target", "count", "tclass"});
  if (name == "net") wrong = lacks({"name"});
  std::size_t children = 0;
  for (const pugi::xml_attribute attribute : element.attributes()) {
    if (std::string_view(attribute.value()).size() > kMaxValue) wrong = name + " has a long value";
  }
  for (const pugi::xml_node child : element.children()) {
    if (++children > kMaxChildren) wrong = name + " has too many children";
    if (wrong.empty()) wrong = refused(child, elements);
  }
  return wrong;
}

std::string refused(const std::string& text) {
  const auto xml = XmlText::parse(text, "nccl");
  if (!xml.ok()) return xml.status().text();
  std::size_t elements = 0;
  return refused((*xml)->root(), elements);
}

TopologyNode function(const std::string& id, NodeKind kind, const PciLink& link) {
  TopologyNode node;
  node.id = id;
  node.kind = kind;
  node.bdf = id.substr(id.find(':') + 1);
  node.pci_link = link;
  return node;
}

/// A root port, a switch's upstream port, and below it two ports with a GPU and a NIC; beside them
/// a disk controller. The GPU idles.
Topology as_the_kernel_lists_it() {
  Topology t = synthetic_topology("pack:1 numa:1 core:2 pu:1").value();
  const auto node = [&](const std::string& id) -> TopologyNode& {
    return *std::find_if(t.nodes.begin(), t.nodes.end(), [&](const auto& n) { return n.id == id; });
  };
  node("host").attributes["Architecture"] = "aarch64";
  node("package:0").attributes = {
      {"CPUVendor", "V"}, {"CPUFamilyNumber", "6"}, {"CPUModelNumber", "143"}};
  const auto add = [&](const std::string& parent, const TopologyNode& device) {
    t.nodes.push_back(device);
    t.edges.push_back({parent, device.id, "pci", {}, {}});
  };
  const PciLink gen5{32, 16, 32, 16};
  add("numa:0", function("bridge:0000:00:01.0", NodeKind::kPciBridge, {16, 16, 16, 16}));
  add("bridge:0000:00:01.0", function("bridge:0000:01:00.0", NodeKind::kPciBridge, gen5));
  add("bridge:0000:01:00.0", function("bridge:0000:02:00.0", NodeKind::kPciBridge, gen5));
  add("bridge:0000:01:00.0", function("bridge:0000:02:01.0", NodeKind::kPciBridge, gen5));
  add("bridge:0000:02:00.0", function("gpu:0000:03:00.0", NodeKind::kGpu, {2.5, 8, 64, 16}));
  add("bridge:0000:02:01.0", function("nic:0000:04:00.0", NodeKind::kNic, {}));
  t.nodes.push_back({"port:eth0", NodeKind::kNicPort, "eth0"});
  t.edges.push_back({"nic:0000:04:00.0", "port:eth0", "contains", {}, {}});
  for (int i = 0; i < 300; ++i) {
    add("numa:0",
        function("pci:0000:80:" + std::to_string(10 + i) + ".0", NodeKind::kPciDevice, {}));
  }
  return t;
}

TEST(NcclExport, ASwitchIsItsUpstreamPortAndOtherDevicesAreLeftOut) {
  const std::string text = *to_nccl_xml(as_the_kernel_lists_it());
  EXPECT_EQ(refused(text), "");
  EXPECT_EQ(text,
            R"(<system version="1">
  <cpu numaid="0" affinity="00000003" arch="arm64" vendor="V" familyid="6" modelid="143">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:03:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="8"/>
      <pci busid="0000:04:00.0" class="0x020000" link_speed="" link_width="0">
        <nic>
          <net name="eth0"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
)");
}

TEST(NcclExport, AGpuUnderLoadHasTheSpeedItHas) {
  Topology t = as_the_kernel_lists_it();
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kGpu) node.attributes["link_state"] = "under load";
  }
  EXPECT_THAT(*to_nccl_xml(t), HasSubstr("link_speed=\"2.5 GT/s PCIe\" link_width=\"8\""));
}

TEST(NcclExport, ASwitchThatTheDriverHidesIsNamedAsNcclNamesIt) {
  Topology t = testing::measured_gpus();
  testing::add_nvlinks(t, 380);
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kPackage) {
      node.attributes = {{"CPUVendor", "V"}, {"CPUFamilyNumber", "6"}, {"CPUModelNumber", "1"}};
    }
    if (node.kind == NodeKind::kHost) node.attributes["Architecture"] = "x86_64";
    if (node.kind == NodeKind::kGpu) node.attributes["cuda_sm"] = "90";
    if (node.kind == NodeKind::kGpu) node.attributes["cuda_ordinal"] = "3";
  }
  const std::string text = *to_nccl_xml(t);
  EXPECT_EQ(refused(text), "");
  EXPECT_EQ(occurrences(text, R"(<gpu sm="90">)"), 8U) << text;
  EXPECT_EQ(occurrences(text, R"(<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>)"),
            8U);
  EXPECT_THAT(text, Not(HasSubstr("transfer")));
  const Topology back = imported(text);
  EXPECT_EQ(count_edges(back, "nvlink"), 16U);
  EXPECT_DOUBLE_EQ(
      *edge_between(back, testing::gpu_id(0), "nvswitch:hidden")->bandwidth_gbps.declared, 450);
}

TEST(NcclExport, DevicesOfNoKnownMemoryStandBelowACpuThatNcclTakes) {
  Topology t = as_the_kernel_lists_it();
  for (TopologyEdge& edge : t.edges) {
    if (edge.to == "bridge:0000:00:01.0") edge.from = "host";
  }
  t.nodes.push_back({"numa:1", NodeKind::kNumaNode});
  t.edges.push_back({"host", "numa:1", "contains", {}, {}});
  const std::string text = *to_nccl_xml(t);
  EXPECT_EQ(refused(text), "");
  EXPECT_THAT(text, HasSubstr("<cpu numaid=\"-1\" arch=\"arm64\" vendor=\"V\""));
}

TEST(NcclExport, AnAddressThatTwoNodesHaveIsListedOnce) {
  Topology t = as_the_kernel_lists_it();
  TopologyNode twin = *t.find("gpu:0000:03:00.0");
  twin.id = "a GPU of no host";
  t.nodes.push_back(twin);
  EXPECT_EQ(refused(*to_nccl_xml(t)), "");
}

TEST(NcclExport, FiguresThatItsReaderRefusesAreLeftOut) {
  Topology t = as_the_kernel_lists_it();
  for (TopologyEdge& edge : t.edges) {
    if (edge.to == "port:eth0")
      edge.bandwidth_gbps.declared = 1e14, edge.latency_ns.declared = 1e14;
  }
  t.edges.push_back({"gpu:0000:03:00.0", "numa:0", "c2c", {1e14, {}}, {}});
  t.nodes.push_back({"numa:again", NodeKind::kNumaNode, "", 0});
  t.nodes.push_back({"numa:far", NodeKind::kNumaNode, "", INT32_MAX});
  t.nodes.push_back({"gpu:nowhere", NodeKind::kGpu});
  t.nodes.push_back(function("again:0000:03:00.0", NodeKind::kGpu, {}));
  for (const char* node : {"numa:again", "numa:far", "gpu:nowhere", "again:0000:03:00.0"}) {
    t.edges.push_back({"host", node, "contains", {}, {}});
  }
  const std::string text = *to_nccl_xml(t);
  const Topology back = imported(text);
  EXPECT_EQ(back.of_kind(NodeKind::kNumaNode).size(), 3u);
  EXPECT_EQ(back.of_kind(NodeKind::kGpu).size(), 1u)
      << "one has no address, and one that of another";
  EXPECT_THAT(text, HasSubstr("<net name=\"eth0\"/>"));
}

TEST(NcclExport, FactsThatAreTooLongForItsReaderAreLeftOut) {
  Topology t = as_the_kernel_lists_it();
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kHost) node.attributes["Architecture"] = std::string(300, 'a');
    if (node.kind == NodeKind::kGpu) node.attributes["cuda_sm"] = std::string(300, '9');
  }
  const std::string text = *to_nccl_xml(t);
  EXPECT_THAT(text, Not(HasSubstr("aaaa")));
  EXPECT_THAT(text, Not(HasSubstr("9999")));
  imported(text);
}

/// NCCL tells hosts by their hash, and these have none; and no mask has room for the last CPU.
TEST(NcclWrite, CpusThatItCannotTellApartHaveNumbersOfTheirOwn) {
  Topology t;
  for (const char* host : {"a", "b"}) {
    const std::string prefix = std::string(host) + "/";
    t.nodes.push_back({prefix + "host", NodeKind::kHost});
    t.nodes.push_back({prefix + "numa:1", NodeKind::kNumaNode});
    t.nodes.back().os_index = 1;
    t.nodes.back().cpus = {1, 1 << 16};
    t.edges.push_back({prefix + "host", prefix + "numa:1", "contains", {}, {}});
  }
  const auto xml = to_nccl_xml(t);
  ASSERT_TRUE(xml.ok()) << xml.status().to_string();
  const auto back = import_topology(*xml, "xml");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->of_kind(NodeKind::kNumaNode).size(), 2u);
}

}  // namespace
}  // namespace topocoll
