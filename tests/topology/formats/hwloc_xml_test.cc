// hwloc's XML, in and out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/measured_gpus.h"
#include "topology/formats/machines.h"

namespace topocoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One package, two GPUs behind a bridge with an NVLink between them, a NIC with an RDMA device.
std::string machine(const std::string& version = "2.0", const char* rdma_type = "3") {
  const std::string sets =
      "cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" complete_nodeset=\"0x1\" ";
  const auto gpu = [](const char* bus, int gp, const char* uuid) {
    return std::string("<object type=\"PCIDev\" gp_index=\"") + std::to_string(gp) +
           "\" pci_busid=\"0000:" + bus +
           ":00.0\" pci_type=\"0302 [10de:20b0] [10de:134f] a1\" "
           "pci_link_speed=\"31.507692\"><object type=\"OSDev\" gp_index=\"" +
           std::to_string(gp + 10) +
           "\" name=\"nvml0\" subtype=\"NVML\" osdev_type=\"1\"><info name=\"NVIDIAUUID\" "
           "value=\"" +
           uuid +
           "\"/><info name=\"GPUModel\" value=\"A100\"/><info name=\"NVIDIASerial\" "
           "value=\"secret\"/></object></object>\n";
  };
  return "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
         "version=\"" +
         version + "\">\n<object type=\"Machine\" os_index=\"0\" " + sets +
         "allowed_cpuset=\"0x3\" allowed_nodeset=\"0x1\" gp_index=\"1\">\n"
         "<info name=\"HostName\" value=\"box\"/>\n"
         "<object type=\"NUMANode\" os_index=\"0\" " +
         sets +
         "gp_index=\"2\" local_memory=\"1024\"/>\n"
         "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
         "nodeset=\"0x1\" "
         "complete_nodeset=\"0x1\" gp_index=\"3\"/>\n"
         "<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
         "nodeset=\"0x1\" "
         "complete_nodeset=\"0x1\" gp_index=\"4\"/>\n"
         "<object type=\"Bridge\" gp_index=\"5\" bridge_type=\"0-1\" depth=\"0\" "
         "bridge_pci=\"0000:[00-0f]\">\n"
         "<object type=\"Bridge\" gp_index=\"6\" bridge_type=\"1-1\" depth=\"1\" "
         "bridge_pci=\"0000:[01-03]\" "
         "pci_busid=\"0000:00:01.0\" pci_type=\"0604 [1000:c010] [0000:0000] 00\" "
         "pci_link_speed=\"31.507692\">\n" +
         gpu("01", 20, "GPU-a") + gpu("02", 21, "GPU-b") +
         "<object type=\"PCIDev\" gp_index=\"22\" pci_busid=\"0000:03:00.0\" "
         "pci_type=\"0207 [15b3:101b] [0000:0000] 00\" pci_link_speed=\"0.000000\">"
         "<object type=\"OSDev\" gp_index=\"40\" name=\"mlx5_0\" osdev_type=\"" +
         rdma_type +
         "\"><info name=\"NodeGUID\" value=\"secret\"/><info name=\"Port1State\" "
         "value=\"4\"/></object></object>\n"
         "</object></object></object>\n"
         "<distances2hetero nbobjs=\"2\" kind=\"25\" name=\"NVLinkBandwidth\">"
         "<indexes length=\"20\">PCIDev:20 PCIDev:21 </indexes>"
         "<u64values length=\"28\">1000000 50000 50000 1000000 </u64values></distances2hetero>\n"
         "</topology>\n";
}

TEST(HwlocImport, DevicesPortsAndLinks) {
  const std::string text = machine();
  const Topology t = imported(text);
  EXPECT_EQ(t.host, "box");
  const TopologyNode* gpu = t.find("gpu:0000:01:00.0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->uuid, "GPU-a");
  EXPECT_EQ(gpu->label, "A100");
  EXPECT_EQ(gpu->attributes.at("os_devices"), "nvml0");
  EXPECT_EQ(t.parent(gpu->id)->id, "bridge:0000:00:01.0");
  EXPECT_EQ(t.parent("bridge:0000:00:01.0")->id, "numa:0");
  EXPECT_NEAR(*edge_between(t, "bridge:0000:00:01.0", gpu->id)->bandwidth_gbps.declared, 31.5,
              0.01);
  const TopologyNode* port = t.find("port:mlx5_0/1");
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(port->attributes.at("rdma"), "mlx5_0");
  EXPECT_EQ(t.parent(port->id)->kind, NodeKind::kNic);
  EXPECT_FALSE(edge_between(t, "bridge:0000:00:01.0", "nic:0000:03:00.0")
                   ->bandwidth_gbps.declared.has_value());
  EXPECT_DOUBLE_EQ(*edge_between(t, gpu->id, "gpu:0000:02:00.0")->bandwidth_gbps.declared, 50);
  EXPECT_EQ(to_json(t).find("secret"), std::string::npos);
}

TEST(HwlocImport, TheThirdVersionIsReadInTheTermsOfTheSecond) {
  std::string text = machine("3.0", "48");
  text.insert(text.find("</topology>"),
              "<info name=\"Architecture\" value=\"x86_64\"/>\n<memtier/>\n");
  const Topology t = imported(text);
  EXPECT_NE(t.find("port:mlx5_0/1"), nullptr);
  EXPECT_EQ(t.find("host")->attributes.at("Architecture"), "x86_64");
  EXPECT_THAT(t.notes, Contains(HasSubstr("written by hwloc 3")));
}

TEST(HwlocImport, Refusals) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text = machine();
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return import_error(text.replace(at, from.size(), to));
  };
  EXPECT_THAT(changed("0000:02:00.0", "0000:01:00.0"),
              HasSubstr("attribute pci_busid of <object>: 0000:01:00.0 is listed twice"));
  EXPECT_THAT(changed("pci_link_speed=\"31.5", "pci_link_speed=\"-31.5"),
              HasSubstr("attribute pci_link_speed"));
  EXPECT_THAT(changed("local_memory=\"1024\"", "local_memory=\"-1\""),
              HasSubstr("attribute local_memory"));
  EXPECT_THAT(changed("type=\"PU\" os_index=\"0\"", "type=\"Nonsense\""),
              HasSubstr("attribute type of <object>"));
  EXPECT_THAT(changed("cpuset=\"0x3\"", "cpuset=\",x3\""), HasSubstr("expected a set such as"))
      << "hwloc ends the process on a comma in front";
  EXPECT_THAT(changed("nbobjs=\"2\"", "nbobjs=\"18446744073709551616\""),
              HasSubstr("attribute nbobjs of <distances2hetero>: expected an integer"));
  EXPECT_THAT(
      changed("nbobjs=\"2\"", "nbobjs=\"5\""),
      HasSubstr("nbobjs of <distances2hetero>: 5 objects have more values than are listed"));
  EXPECT_THAT(changed("version=\"2.0\"", "version=\"9\""),
              HasSubstr("attribute version of <topology>"));
  EXPECT_THAT(import_error("<topology version=\"2.0\"/>"), HasSubstr("no <object> below it"));
}

TEST(HwlocExport, MeasuredFiguresTravelAsDistances) {
  Topology t = imported(
      file_text(std::string(TOPOCOLL_TEST_DATA) + "/topologies/synthetic_v100_cube_mesh.xml"));
  for (TopologyEdge& edge : t.edges) {
    if (edge.kind == "nvlink") edge.bandwidth_gbps.measured = *edge.bandwidth_gbps.declared * 0.875;
  }
  const auto text = to_hwloc_xml(t);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const Topology back = imported(*text);
  EXPECT_EQ(back.of_kind(NodeKind::kGpu).size(), 8U);
  EXPECT_EQ(back.of_kind(NodeKind::kNic).size(), 4U);
  EXPECT_EQ(back.find("host")->cpus, t.find("host")->cpus);
  EXPECT_EQ(back.parent("gpu:0000:06:00.0")->id, t.parent("gpu:0000:06:00.0")->id);
  for (const TopologyEdge& edge : t.edges) {
    if (edge.kind != "nvlink") continue;
    const TopologyEdge* same = edge_between(back, edge.from, edge.to);
    ASSERT_NE(same, nullptr) << edge.from;
    EXPECT_EQ(same->bandwidth_gbps, edge.bandwidth_gbps);
  }
}

TEST(HwlocExport, TransfersOfGpusTravelAsDistancesOfTheirOwn) {
  Topology t = testing::measured_gpus();
  testing::add_nvlinks(t, 380);
  const auto text = to_hwloc_xml(t);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const Topology back = imported(*text);
  EXPECT_EQ(count_edges(back, "transfer"), count_edges(t, "transfer"));
  EXPECT_EQ(count_edges(back, "link"), 0U) << "transfers are no links";
  for (const TopologyEdge& edge : t.edges) {
    if (edge.kind != "transfer") continue;
    const TopologyEdge* same = edge_between(back, edge.from, edge.to);
    ASSERT_NE(same, nullptr) << edge.from << " " << edge.to;
    EXPECT_EQ(same->bandwidth_gbps.measured, edge.bandwidth_gbps.measured);
    EXPECT_EQ(same->latency_ns.measured, edge.latency_ns.measured);
  }
}

TEST(HwlocExport, PartsOfPackagesSurvive) {
  const Topology t = synthetic_topology("pack:2 numa:2 l3:1 core:2 pu:2").value();
  const auto text = to_hwloc_xml(t);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const Topology back = imported(*text);
  for (const TopologyNode& node : t.nodes) {
    const TopologyNode* same = back.find(node.id);
    ASSERT_NE(same, nullptr) << node.id;
    EXPECT_EQ(same->cpus, node.cpus) << node.id;
    EXPECT_EQ(same->size_bytes, node.size_bytes) << node.id;
    if (t.parent(node.id) != nullptr) {
      EXPECT_EQ(back.parent(node.id)->id, t.parent(node.id)->id) << node.id;
    }
  }
}

TEST(HwlocExport, ThisMachine) {
  const Topology t = discover_topology().value();
  const auto text = to_hwloc_xml(t);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_EQ(imported(*text).of_kind(NodeKind::kCpu).size(), t.nodes.front().cpus.size());
}

TopologyNode numa_node(const std::string& id, int number) {
  TopologyNode node;
  node.id = id;
  node.kind = NodeKind::kNumaNode;
  node.os_index = number;
  return node;
}

/// Sets are bits from number 0 on, and matrices hold every pair.
TEST(HwlocExport, NumbersThatWouldFillTheDiskAreRefused) {
  Topology far;
  far.nodes.resize(2);
  far.nodes[0].id = "host";
  far.nodes[0].cpus = {0};
  far.nodes[1] = numa_node("numa:7", 2147483647);
  far.edges.push_back({"host", "numa:7", "contains", {}, {}});
  EXPECT_THAT(to_hwloc_xml(far).status().text(), HasSubstr("numa:7 has number 2147483647"));
  far.nodes[1].os_index = 65535;
  EXPECT_TRUE(to_hwloc_xml(far).ok());

  Topology wide;
  wide.nodes.resize(1);
  wide.nodes[0].id = "host";
  for (int cpu = 60'000; cpu < 61'000; ++cpu) wide.nodes[0].cpus.push_back(cpu);
  EXPECT_THAT(to_hwloc_xml(wide).status().text(), HasSubstr("larger than 8 MiB"));

  Topology measured;
  measured.nodes.resize(1);
  measured.nodes[0].id = "host";
  for (int cpu = 0; cpu < 6'000; ++cpu) {
    const std::string id = "numa:" + std::to_string(cpu);
    measured.nodes[0].cpus.push_back(cpu);
    measured.nodes.push_back(numa_node(id, 0));
    measured.edges.push_back({"host", id, "contains", {}, {}});
    measured.edges.push_back({id, "numa:0", "interconnect", {{}, 1.0}, {}});
  }
  EXPECT_THAT(to_hwloc_xml(measured).status().text(), HasSubstr("larger than 8 MiB"));
}

TEST(HwlocExport, NumaNodesOfOneNumberGetTheNextFreeOnes) {
  Topology t;
  t.nodes.resize(1);
  t.nodes[0].id = "host";
  t.nodes[0].cpus = {0};
  const std::vector<int> numbers{0, 0, 1, 0, 3, 1};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::string id = "numa:" + std::to_string(i);
    t.nodes.push_back(numa_node(id, numbers[i]));
    t.edges.push_back({"host", id, "contains", {}, {}});
  }
  const auto xml = to_hwloc_xml(t);
  ASSERT_TRUE(xml.ok()) << xml.status().to_string();
  for (int number = 0; number < 6; ++number) {
    const std::string object = "type=\"NUMANode\" os_index=\"" + std::to_string(number) + "\"";
    EXPECT_EQ(occurrences(*xml, object), 1u) << number;
  }
}

TEST(HwlocExport, MachinesWithoutCpusAreRefused) {
  const auto text = to_hwloc_xml(imported("<system><cpu numaid=\"0\"/></system>"));
  EXPECT_EQ(text.status().cause(), Cause::kUnsupported);
  EXPECT_THAT(text.status().text(), HasSubstr("no CPU"));
}

}  // namespace
}  // namespace topocoll
