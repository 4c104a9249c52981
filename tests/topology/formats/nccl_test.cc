// NCCL's and RCCL's XML, in and out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "topology/formats/machines.h"

namespace topocoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPair[] = R"(<!-- a comment -->
<system version="1">
  <cpu host_hash="0x1" numaid="3" affinity="00000000,000000f0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="3436:0F:00.0" class="0x030200" vendor="0x10de" link_speed="" link_width="0">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:0a:00.0" count="2" tclass="0x030200"/>
          <nvlink target="fffffff:ff:ff.0" count="12" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:0a:00.0" class="0x030200" vendor="0x10de" link_speed="16 GT/s" link_width="8">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="3436:0f:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:0c:00.0" class="0x020700" link_speed="Unknown" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" latency="1.500000" guid="0xd0" maxconn="131072" gdr="1"/>
          <net name="mlx5_1"/>
        </nic>
      </pci>
    </pci>
    <nic>
      <net name="eth0" dev="1" speed="0" port="0"/>
    </nic>
  </cpu>
  <cpu numaid="-1"/>
</system>
)";

TEST(NcclImport, EverythingHasItsPlace) {
  const Topology t = imported(kPair);
  const TopologyNode* numa = t.find("numa:3");
  ASSERT_NE(numa, nullptr);
  EXPECT_THAT(numa->cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(numa->attributes.at("vendor"), "AuthenticAMD");
  EXPECT_EQ(t.find("host")->attributes.at("host_hash"), "0x1");
  EXPECT_EQ(t.find("numa:unknown")->os_index, std::nullopt);
  const TopologyNode* gpu = t.find("gpu:3436:0f:00.0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->attributes.at("sm"), "80");
  EXPECT_FALSE(gpu->pci_link.speed_gts.has_value());
  EXPECT_FALSE(gpu->pci_link.width.has_value());
  EXPECT_EQ(t.parent(gpu->id)->id, "bridge:0000:01:00.0");
  EXPECT_EQ(t.parent("bridge:0000:01:00.0")->id, "numa:3");
  EXPECT_FALSE(
      edge_between(t, "bridge:0000:01:00.0", gpu->id)->bandwidth_gbps.declared.has_value());
  EXPECT_DOUBLE_EQ(
      *edge_between(t, "bridge:0000:01:00.0", "gpu:0000:0a:00.0")->bandwidth_gbps.declared,
      pci_bandwidth_gbps(16, 8));
  EXPECT_FALSE(t.find("nic:0000:0c:00.0")->pci_link.speed_gts.has_value());
}

TEST(NcclImport, LinksAreDuplexAndNominal) {
  const Topology t = imported(kPair);
  const TopologyEdge* pair = edge_between(t, "gpu:3436:0f:00.0", "gpu:0000:0a:00.0");
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(pair->kind, "nvlink");
  EXPECT_EQ(pair->count, 2);
  EXPECT_DOUBLE_EQ(*pair->bandwidth_gbps.declared, 50);
  EXPECT_FALSE(pair->bandwidth_gbps.measured.has_value());
  EXPECT_EQ(t.find("nvswitch:hidden")->kind, NodeKind::kNvSwitch);
  const TopologyEdge* down = edge_between(t, "nvswitch:hidden", "gpu:3436:0f:00.0");
  ASSERT_NE(down, nullptr);
  EXPECT_DOUBLE_EQ(*down->bandwidth_gbps.declared, 300);
  EXPECT_EQ(count_edges(t, "nvlink"), 4U);
}

TEST(NcclImport, PortsAndTheirSpeeds) {
  const Topology t = imported(kPair);
  const TopologyEdge* port = edge_between(t, "nic:0000:0c:00.0", "port:mlx5_0/1");
  ASSERT_NE(port, nullptr);
  EXPECT_DOUBLE_EQ(*port->bandwidth_gbps.declared, 25);
  EXPECT_DOUBLE_EQ(*port->latency_ns.declared, 1500);
  ASSERT_NE(t.find("port:mlx5_1"), nullptr);
  const TopologyEdge* bare = edge_between(t, "nic:eth0", "port:eth0/0");
  ASSERT_NE(bare, nullptr);
  EXPECT_FALSE(bare->bandwidth_gbps.declared.has_value());  // 0 is no speed
  EXPECT_EQ(t.parent("nic:eth0")->id, "numa:3");
}

TEST(NcclImport, OddThingsAreNoted) {
  EXPECT_THAT(imported(kPair).notes, Contains(HasSubstr("a CPU without NUMA id")));
  const auto gpu = [](const std::string& inside) {
    return imported(
        "<system version=\"1\"><cpu numaid=\"0\">"
        "<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"80\">" +
        inside + "</gpu></pci></cpu></system>");
  };
  EXPECT_THAT(gpu("<nvlink target=\"0000:01:00.0\" count=\"12\" tclass=\"0x030200\"/>").notes,
              Contains(HasSubstr("lead to itself")));
  EXPECT_THAT(gpu("<nvlink target=\"0000:02:00.0\" count=\"12\" tclass=\"0x030200\"/>").notes,
              Contains(HasSubstr("0000:02:00.0 is not in the file")));
  EXPECT_THAT(gpu("<future/>").notes, Contains("line 1: <future> is not known and left out"));
  const Topology t =
      imported("<system><cpu numaid=\"0\"><pci busid=\"0000:00:16.0\"/></cpu></system>");
  EXPECT_EQ(t.find("pci:0000:00:16.0")->kind, NodeKind::kPciDevice);
  EXPECT_THAT(t.notes, Contains(HasSubstr("1 PCI device without class")));
  EXPECT_THAT(imported("<system><cpu numaid=\"0\" affinity=\"fff0000,00000000\"/></system>").notes,
              Contains(HasSubstr("fewer than 8 digits")));
}

TEST(NcclImport, LinksToTheCpuAndListedOnce) {
  const Topology t = imported(R"(<system version="1"><cpu numaid="0">
    <pci busid="0004:04:00.0" class="0x030200"><gpu dev="0" sm="60" rank="0" gdr="1">
      <nvlink target="0004:00:00.0" count="2" tclass="0x068001"/>
      <nvlink target="0004:05:00.0" count="1" tclass="0x030200"/></gpu></pci>
    <pci busid="0004:05:00.0" class="0x030200"><gpu dev="1" sm="60" rank="1" gdr="1">
      <c2c count="2" bw="100000"/></gpu></pci></cpu></system>)");
  EXPECT_DOUBLE_EQ(*edge_between(t, "gpu:0004:04:00.0", "numa:0")->bandwidth_gbps.declared, 40);
  EXPECT_DOUBLE_EQ(
      *edge_between(t, "gpu:0004:05:00.0", "gpu:0004:04:00.0")->bandwidth_gbps.declared, 20);
  EXPECT_THAT(t.notes, Contains(HasSubstr("the other end does not list this nvlink link")));
  const TopologyEdge* c2c = edge_between(t, "gpu:0004:05:00.0", "numa:0");
  EXPECT_EQ(c2c->kind, "c2c");
  EXPECT_DOUBLE_EQ(*c2c->bandwidth_gbps.declared, 200);
}

TEST(NcclImport, SeveralHostsKeepTheirDevicesApart) {
  const auto host = [](const char* hash) {
    return std::string("<cpu host_hash=\"") + hash +
           "\" numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu "
           "dev=\"0\"/></pci></cpu>";
  };
  const Topology t = imported("<system version=\"1\">" + host("0xa") + host("0xb") + "</system>");
  EXPECT_EQ(t.of_kind(NodeKind::kHost).size(), 2U);
  EXPECT_NE(t.find("0xa/gpu:0000:01:00.0"), nullptr);
  EXPECT_NE(t.find("0xb/gpu:0000:01:00.0"), nullptr);
}

TEST(NcclImport, RefusalsNameFileLineAndAttribute) {
  const auto pci = [](const std::string& attributes, const std::string& inside = "") {
    return import_error("<system version=\"1\">\n<cpu numaid=\"0\">\n<pci " + attributes + ">" +
                        inside + "</pci>\n</cpu>\n</system>\n");
  };
  const std::string id = "busid=\"0000:01:00.0\" class=\"0x030200\" ";
  EXPECT_EQ(pci(id + "link_speed=\"-16 GT/s\""),
            "f.xml:3: attribute link_speed of <pci>: expected a speed such as \"16.0 GT/s PCIe\", "
            "found \"-16 GT/s\"");
  EXPECT_THAT(pci(id + "link_width=\"-1\""), HasSubstr("f.xml:3: attribute link_width of <pci>"));
  EXPECT_THAT(pci(id + "link_width=\"x\""), HasSubstr("expected an integer from 0 to 64"));
  EXPECT_THAT(pci("class=\"0x030200\""),
              HasSubstr("attribute busid of <pci>: expected a PCI address"));
  EXPECT_THAT(pci(id, "<gpu dev=\"a\"/>"), HasSubstr("attribute dev of <gpu>"));
  EXPECT_THAT(pci(id, "<gpu dev=\"0\"/><gpu dev=\"1\"/>"), HasSubstr("has one GPU"));
  EXPECT_THAT(pci(id, "<gpu dev=\"0\"><nvlink target=\"x\" count=\"1\"/></gpu>"),
              HasSubstr("attribute target of <nvlink>"));
  EXPECT_THAT(pci(id, "<gpu dev=\"0\"><nvlink target=\"0000:02:00.0\" count=\"-1\"/></gpu>"),
              HasSubstr("attribute count of <nvlink>: expected an integer from 1"));
  EXPECT_THAT(pci(id + "class=\"0x060400\""),
              HasSubstr("attribute class of <pci>: is given twice"));
  EXPECT_THAT(
      pci(id, "\n<pci busid=\"0000:01:00.0\"/>"),
      HasSubstr(
          "f.xml:4: attribute busid of <pci>: 0000:01:00.0 is listed twice, first in line 3"));
  EXPECT_THAT(pci(id, "<nic><net speed=\"1\"/></nic>"),
              HasSubstr("attribute name of <net>: is missing"));
  EXPECT_THAT(pci(id, "<nic><net name=\"a\" speed=\"-1\"/></nic>"),
              HasSubstr("attribute speed of <net>"));
  EXPECT_THAT(pci(id, "<nic><net name=\"a\" speed=\"nan\"/></nic>"),
              HasSubstr("attribute speed of <net>"));
  EXPECT_THAT(pci(id, "<nic><net name=\"a\"/><net name=\"a\"/></nic>"),
              HasSubstr("port:a is listed twice"));
  EXPECT_THAT(import_error("<system><cpu numaid=\"0\"/>\n<cpu numaid=\"0\"/></system>"),
              HasSubstr("f.xml:2: attribute numaid of <cpu>: NUMA node 0 is listed twice"));
  EXPECT_THAT(import_error("<system><cpu numaid=\"-2\"/></system>"), HasSubstr("attribute numaid"));
  EXPECT_THAT(import_error("<system><cpu numaid=\"0\" affinity=\"0123456789\"/></system>"),
              HasSubstr("attribute affinity of <cpu>: expected groups"));
}

TEST(NcclExport, SurvivesTheWayThere) {
  const Topology t = imported(kPair);
  const auto text = to_nccl_xml(t);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const Topology back = imported(*text);
  expect_same(t, back);
  EXPECT_EQ(*to_nccl_xml(back), *text);
}

TEST(NcclExport, WhatIsThereIsSaid) {
  const std::string text = *to_nccl_xml(imported(kPair));
  EXPECT_THAT(
      text, HasSubstr("<cpu host_hash=\"0x1\" numaid=\"3\" affinity=\"000000f0\" arch=\"x86_64\""));
  EXPECT_THAT(text, HasSubstr("link_speed=\"16.0 GT/s PCIe\" link_width=\"8\""));
  EXPECT_THAT(text,
              HasSubstr("<nvlink target=\"fffffff:ff:ff.0\" count=\"12\" tclass=\"0x068000\"/>"));
  EXPECT_THAT(
      text, HasSubstr("<net name=\"mlx5_0\" dev=\"0\" port=\"1\" guid=\"0xd0\" maxconn=\"131072\" "
                      "gdr=\"1\" speed=\"200000\" latency=\"1.500000\"/>"));
}

TEST(NcclExport, AMachineWithoutMemoryNodesIsRefused) {
  EXPECT_EQ(to_nccl_xml(Topology()).status().cause(), Cause::kUnsupported);
}

TEST(NcclExport, HwlocsFactsGetNcclsNames) {
  Topology t = synthetic_topology("pack:1 numa:1 core:2 pu:1").value();
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kPackage) node.attributes = {{"CPUVendor", "GenuineIntel"}};
  }
  EXPECT_THAT(*to_nccl_xml(t),
              HasSubstr("numaid=\"0\" affinity=\"00000003\" vendor=\"GenuineIntel\""));
}

TEST(NcclExport, WhatItsReaderWouldRefuseIsLeftOut) {
  Topology t = imported(kPair);
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kGpu) node.attributes["rank"] = "first";
    if (node.kind == NodeKind::kNicPort) node.attributes["port"] = "-1";
  }
  const std::string text = *to_nccl_xml(t);
  EXPECT_EQ(text.find("first"), text.npos);
  EXPECT_EQ(text.find("port=\"-1\""), text.npos);
  imported(text);
}

TEST(NcclImport, MoreLinksThanOneEdgeStandsForAreRefused) {
  const std::string link = "<nvlink target=\"0000:02:00.0\" count=\"40000\"/>";
  const std::string error = import_error(
      "<system><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu>" + link +
      link + "</gpu></pci><pci busid=\"0000:02:00.0\" class=\"0x030200\"/></cpu></system>");
  EXPECT_THAT(error, HasSubstr("more than 65536 nvlink links"));
}

TEST(NcclImport, NamesThatCannotBeSavedAreRefusedByLine) {
  const std::string name(5000, 'a');
  const std::string element = import_error("<system>\n<" + name + "/></system>");
  EXPECT_THAT(element, HasSubstr("f.xml:2: <aaaa"));
  EXPECT_THAT(element, HasSubstr("a name longer than 96 bytes"));
  const std::string attribute =
      import_error("<system>\n<cpu numaid=\"0\" " + name + "=\"1\"/></system>");
  EXPECT_THAT(attribute, HasSubstr("f.xml:2: <cpu>: an attribute's name longer than 96 bytes"));
  for (const std::string& error : {element, attribute}) EXPECT_LT(error.size(), 300u);
}

TEST(NcclImport, TextsThatAreNotUtf8AreRefusedByLine) {
  for (const std::string bad :
       {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_THAT(import_error("<system>\n<cpu numaid=\"0\" arch=\"" + bad + "\"/></system>"),
                HasSubstr("f.xml:2: not UTF-8"))
        << bad;
  }
  imported("<system><cpu numaid=\"0\" arch=\"\xe2\x82\xac \xf0\x9f\x98\x80\"/></system>");
}

TEST(NcclGraph, IsRecognisedAndRefused) {
  const auto graph = import_topology("<graphs version=\"1\"><graph id=\"0\"/></graphs>", "g.xml");
  EXPECT_EQ(graph.status().cause(), Cause::kUnsupported);
  EXPECT_THAT(graph.status().text(), HasSubstr("g.xml: an NCCL graph file"));
}

}  // namespace
}  // namespace topocoll
