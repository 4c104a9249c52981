// One machine per fault, and one without any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "topology/formats/machines.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Two NUMA nodes, each with a switch that has a GPU and a NIC below it: nothing is wrong.
Topology healthy() {
  Topology t = imported(R"(<system version="1">
    <cpu numaid="0" affinity="00000003">
      <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
        <pci busid="0000:02:00.0" class="0x030200" vendor="0x10de" link_speed="32.0 GT/s PCIe" link_width="16">
          <gpu dev="0" sm="90"><nvlink target="0000:f0:00.0" count="18" tclass="0x068000"/></gpu></pci>
        <pci busid="0000:03:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
          <nic><net name="mlx5_0" port="1" speed="400000"/></nic></pci></pci></cpu>
    <cpu numaid="1" affinity="0000000c">
      <pci busid="0000:81:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
        <pci busid="0000:82:00.0" class="0x030200" vendor="0x10de" link_speed="32.0 GT/s PCIe" link_width="16">
          <gpu dev="1" sm="90"><nvlink target="0000:f0:00.0" count="18" tclass="0x068000"/></gpu></pci>
        <pci busid="0000:83:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
          <nic><net name="mlx5_1" port="1" speed="400000"/></nic></pci></pci></cpu></system>)");
  for (TopologyNode& node : t.nodes) {
    if (node.bdf.empty()) continue;
    node.pci_link.max_speed_gts = node.pci_link.speed_gts;
    node.pci_link.max_width = node.pci_link.width;
    node.attributes["numa_node"] = node.bdf < "0000:80" ? "0" : "1";
    if (node.kind == NodeKind::kNvSwitch) node.attributes.erase("numa_node");
  }
  t.nodes.front().attributes["shm_bytes"] = "8589934592";
  t.nodes.front().attributes["memlock_bytes"] = "unlimited";
  return t;
}

TopologyNode& node(Topology& t, const std::string& id) {
  const auto found = std::find_if(t.nodes.begin(), t.nodes.end(),
                                  [&](const TopologyNode& n) { return n.id == id; });
  EXPECT_NE(found, t.nodes.end()) << id;
  return *found;
}

/// The only finding of a code, checked to be whole.
Finding only(const Topology& t, const std::string& code) {
  std::vector<Finding> found;
  for (const Finding& f : check_topology(t)) {
    if (f.code == code) found.push_back(f);
  }
  EXPECT_EQ(found.size(), 1U) << code;
  if (found.empty()) return {};
  EXPECT_FALSE(found[0].text.empty());
  EXPECT_FALSE(found[0].evidence.empty());
  EXPECT_FALSE(found[0].fix.empty());
  for (const std::string& id : found[0].nodes) EXPECT_NE(t.find(id), nullptr) << id;
  return found[0];
}

TEST(Check, AHealthyMachineHasNoFindings) {
  EXPECT_EQ(render_text(check_topology(healthy())), "");
  EXPECT_THAT(check_topology(Topology()), IsEmpty());
}

TEST(Check, ALinkWithTooFewLanes) {
  Topology t = healthy();
  node(t, "gpu:0000:02:00.0").pci_link.width = 8;
  const Finding f = only(t, "pcie-width");
  EXPECT_EQ(f.severity, Severity::kError);
  EXPECT_DOUBLE_EQ(*f.loss_percent, 50);
  EXPECT_EQ(f.nodes.front(), "gpu:0000:02:00.0");
  EXPECT_THAT(f.evidence, HasSubstr("32 GT/s x8"));
  EXPECT_THAT(f.fix, HasSubstr("lspci -vv -s 0000:02:00.0"));
  // A slot that has no more lanes is no fault of the card's.
  node(t, "bridge:0000:01:00.0").pci_link.max_width = 8;
  EXPECT_THAT(check_topology(t), IsEmpty());
}

TEST(Check, ASlowLinkIsAFaultUnlessAnIdleGpuHasIt) {
  Topology t = healthy();
  node(t, "nic:0000:03:00.0").pci_link.speed_gts = 16;
  const Finding nic = only(t, "pcie-speed");
  EXPECT_EQ(nic.severity, Severity::kWarning);
  EXPECT_DOUBLE_EQ(*nic.loss_percent, 50);
  t = healthy();
  node(t, "gpu:0000:02:00.0").pci_link.speed_gts = 2.5;
  EXPECT_EQ(only(t, "pcie-speed").severity, Severity::kInfo);
}

TEST(Check, AnUplinkThatDeclaresLessThanWhatIsBelow) {
  Topology t = healthy();
  for (TopologyEdge& edge : t.edges) {
    if (edge.to == "bridge:0000:01:00.0") edge.bandwidth_gbps.declared = pci_bandwidth_gbps(5, 16);
  }
  const Finding f = only(t, "pcie-uplink");
  EXPECT_NEAR(*f.loss_percent, 87.3, 0.1);
  for (TopologyEdge& edge : t.edges) {
    if (edge.to == "bridge:0000:01:00.0") edge.bandwidth_gbps.measured = 60;
  }
  for (const Finding& other : check_topology(t)) EXPECT_NE(other.code, "pcie-uplink");
}

TEST(Check, MeasuredFarBelowDeclared) {
  Topology t = healthy();
  for (TopologyEdge& edge : t.edges) {
    if (edge.to == "gpu:0000:02:00.0" && edge.kind == "pci") {
      edge.bandwidth_gbps.measured = *edge.bandwidth_gbps.declared / 4;
    }
  }
  EXPECT_DOUBLE_EQ(*only(t, "link-slow").loss_percent, 75);
}

TEST(Check, MissingNvlinks) {
  Topology t = healthy();
  for (TopologyEdge& edge : t.edges) {
    if (edge.from == "gpu:0000:82:00.0" && edge.kind == "nvlink") edge.count = 12;
  }
  const Finding f = only(t, "nvlink-missing");
  EXPECT_EQ(f.nodes.front(), "gpu:0000:82:00.0");
  EXPECT_NEAR(*f.loss_percent, 33.3, 0.1);
}

TEST(Check, ErrorCountersAccessControlAndPorts) {
  Topology t = healthy();
  node(t, "gpu:0000:02:00.0").attributes["aer_correctable"] = "5";
  EXPECT_EQ(only(t, "pcie-errors").severity, Severity::kInfo);
  node(t, "gpu:0000:02:00.0").attributes["aer_fatal"] = "1";
  EXPECT_EQ(only(t, "pcie-errors").severity, Severity::kWarning);
  t = healthy();
  node(t, "port:mlx5_0/1").attributes["rdma"] = "mlx5_0";
  node(t, "port:mlx5_0/1").attributes["state"] = "ACTIVE";
  EXPECT_THAT(check_topology(t), IsEmpty());
  node(t, "port:mlx5_0/1").attributes["state"] = "DOWN";
  only(t, "port-down");
}

TEST(Check, AccessControlInASwitch) {
  Topology t = imported(R"(<system><cpu numaid="0"><pci busid="0000:01:00.0" class="0x060400">
    <pci busid="0000:02:00.0" class="0x060400"><pci busid="0000:03:00.0" class="0x030200"/></pci>
    <pci busid="0000:02:01.0" class="0x060400"><pci busid="0000:04:00.0" class="0x030200"/></pci>
    </pci></cpu></system>)");
  node(t, "bridge:0000:02:00.0").attributes["acs_redirect"] = "on";
  node(t, "bridge:0000:02:01.0").attributes["acs_redirect"] = "off";
  node(t, "bridge:0000:01:00.0").attributes["acs_redirect"] = "on";  // a root port: peers are below
  EXPECT_THAT(only(t, "acs-redirect").fix, HasSubstr("setpci -s 0000:02:00.0"));
}

TEST(Check, NumaNodesThatAreUnknownOrContradictThePlace) {
  Topology t = healthy();
  node(t, "gpu:0000:02:00.0").attributes["numa_node"] = "-1";
  EXPECT_EQ(only(t, "numa-unknown").nodes.front(), "gpu:0000:02:00.0");
  node(t, "gpu:0000:02:00.0").attributes["numa_node"] = "1";
  EXPECT_EQ(only(t, "numa-conflict").nodes.back(), "numa:0");
  node(t, "gpu:0000:02:00.0").attributes["numa_node"] = "7";
  EXPECT_THAT(only(t, "numa-conflict").text, HasSubstr("does not exist"));
  only(imported("<system><cpu numaid=\"-1\"/></system>"), "numa-unknown");
  t = healthy();
  node(t, "nic:0000:03:00.0").attributes["local_cpus"] = "00000000,00000003";
  EXPECT_THAT(check_topology(t), IsEmpty());
  node(t, "nic:0000:03:00.0").attributes["local_cpus"] = "00000000,0000000d";
  EXPECT_THAT(only(t, "numa-conflict").evidence, HasSubstr("local_cpus 00000000,0000000d"));
}

TEST(Check, AGpuFarFromEveryNic) {
  Topology t = healthy();
  for (TopologyEdge& edge : t.edges) {
    if (edge.to == "nic:0000:83:00.0") edge.from = "bridge:0000:01:00.0";
  }
  node(t, "nic:0000:83:00.0").attributes["numa_node"] = "0";
  EXPECT_EQ(only(t, "gpu-far-from-nic").nodes.front(), "gpu:0000:82:00.0");
}

/// A port at numa:0, and memory of both nodes that it reads, in so many nanoseconds.
Topology port_that_reads(double ns0, double ns1) {
  Topology t = healthy();
  const auto read = [&](const char* numa, double ns) {
    t.edges.push_back(
        {numa, "port:mlx5_0/1", "transfer", {}, {{}, ns, Spread{ns - 9, ns + 9, ns, 9}}});
  };
  read("numa:0", ns0);
  read("numa:1", ns1);
  return t;
}

TEST(Check, ADeviceThatIsNearAnotherNumaNodeThanIsSaid) {
  EXPECT_THAT(check_topology(port_that_reads(1000, 1200)), IsEmpty());
  EXPECT_THAT(check_topology(port_that_reads(1200, 1160)), IsEmpty()) << "that is noise";
  const Finding f = only(port_that_reads(1250, 1000), "numa-wrong");
  EXPECT_THAT(f.nodes, ::testing::ElementsAre("port:mlx5_0/1", "numa:1", "numa:0"));
  EXPECT_THAT(f.evidence, HasSubstr("1000 and 1250 ns"));
  EXPECT_NEAR(*f.loss_percent, 20, 0.1);
  Topology t = healthy();
  t.edges.push_back({"numa:0", "gpu:0000:82:00.0", "transfer", {}, {{}, 1000.0}});
  t.edges.push_back({"numa:1", "gpu:0000:82:00.0", "transfer", {}, {{}, 1300.0}});
  EXPECT_EQ(only(t, "numa-wrong").nodes.front(), "gpu:0000:82:00.0");
}

TEST(Check, ADeviceOfWhichNothingButReadsTellsThePlace) {
  const auto beside_the_tree = [](double ns0, double ns1) {
    Topology t = port_that_reads(ns0, ns1);
    for (TopologyEdge& edge : t.edges) {
      if (is_tree_edge(edge) && edge.to == "port:mlx5_0/1") edge.from = "host";
    }
    return t;
  };
  EXPECT_THAT(only(beside_the_tree(1250, 1000), "numa-measured").text,
              HasSubstr("port:mlx5_0/1 is near numa:1"));
  EXPECT_THAT(check_topology(beside_the_tree(1000, 1010)), IsEmpty());
}

TEST(Check, AFlatTree) {
  const Topology t =
      imported(R"(<system><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200"/>
    <pci busid="0000:02:00.0" class="0x030200"/></cpu></system>)");
  EXPECT_EQ(only(t, "flat-tree").nodes.size(), 2U);
}

TEST(Check, OneGpuTwice) {
  Topology t = healthy();
  node(t, "gpu:0000:02:00.0").uuid = "GPU-1";
  node(t, "gpu:0000:82:00.0").uuid = "GPU-1";
  EXPECT_EQ(only(t, "device-doubled").severity, Severity::kError);
  node(t, "gpu:0000:82:00.0").uuid = "GPU-2";
  EXPECT_THAT(check_topology(t), IsEmpty());
  node(t, "port:mlx5_0/1").attributes["bond_members"] = "eth0 eth1";
  only(t, "bond");
}

TEST(Check, LimitsOfTheProcess) {
  Topology t = healthy();
  auto& facts = t.nodes.front().attributes;
  facts["shm_bytes"] = "67108864";
  const Finding shm = only(t, "shm-small");
  EXPECT_EQ(shm.severity, Severity::kError);
  EXPECT_THAT(shm.text, HasSubstr("64 MiB"));
  EXPECT_THAT(shm.fix, HasSubstr("--shm-size"));
  facts["shm_bytes"] = "536870912";
  EXPECT_EQ(only(t, "shm-small").severity, Severity::kWarning);
  t = healthy();
  t.nodes.front().attributes["memlock_bytes"] = "65536";
  EXPECT_EQ(only(t, "memlock-low").severity, Severity::kInfo);
  node(t, "port:mlx5_0/1").attributes["rdma"] = "mlx5_0";
  EXPECT_EQ(only(t, "memlock-low").severity, Severity::kError);
  t = healthy();
  t.nodes.front().attributes["CUDA_VISIBLE_DEVICES"] = "0";
  EXPECT_EQ(only(t, "gpus-hidden").severity, Severity::kInfo);
  t = healthy();
  node(t, "numa:1").cpus.clear();
  EXPECT_EQ(only(t, "cpuset").nodes.front(), "gpu:0000:82:00.0");
}

TEST(Check, TheWorstComesFirstAndJsonSaysTheSame) {
  Topology t = healthy();
  node(t, "gpu:0000:02:00.0").pci_link.width = 4;
  t.nodes.front().attributes["CUDA_VISIBLE_DEVICES"] = "";
  const auto findings = check_topology(t);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_THAT(render_text(findings),
              HasSubstr("error pcie-width: gpu:0000:02:00.0 runs on 4 of 16 PCIe lanes "
                        "(loses 75 %)\n  seen: "));
  const auto json = nlohmann::json::parse(to_json(findings));
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["code"], "pcie-width");
  EXPECT_EQ(json[0]["loss_percent"], 75.0);
  EXPECT_EQ(json[0]["nodes"][0], "gpu:0000:02:00.0");
  EXPECT_EQ(json[1]["severity"], "info");
  EXPECT_FALSE(json[1].contains("loss_percent"));
  EXPECT_EQ(to_json(std::vector<Finding>{}), "[]\n");
}

TEST(Check, MasksThatHwlocEndsTheProcessOnAreNoFinding) {
  Topology t = healthy();
  node(t, "gpu:0000:02:00.0").attributes["local_cpus"] = ",x00000001";
  EXPECT_THAT(check_topology(t), IsEmpty());
}

TEST(Diff, NodesEdgesAndFieldsThatDiffer) {
  const Topology before = healthy();
  Topology after = before;
  EXPECT_THAT(diff_topologies(before, after), IsEmpty());
  node(after, "gpu:0000:02:00.0").pci_link.width = 8;
  for (TopologyEdge& edge : after.edges) {
    if (edge.kind == "nvlink" && edge.from == "gpu:0000:02:00.0") {
      edge.bandwidth_gbps.declared = *edge.bandwidth_gbps.declared * 1.0001;  // the same
      edge.bandwidth_gbps.measured = 400;
    }
  }
  after.notes.emplace_back("new");
  const auto gone = std::remove_if(after.nodes.begin(), after.nodes.end(),
                                   [](const TopologyNode& n) { return n.id == "port:mlx5_1/1"; });
  after.nodes.erase(gone, after.nodes.end());
  EXPECT_EQ(render_text(diff_topologies(before, after)),
            "~ node gpu:0000:02:00.0  pci_link.width: 16 → 8\n"
            "- node port:mlx5_1/1\n"
            "~ edge gpu:0000:02:00.0 → nvswitch:0000:f0:00.0 (nvlink)  bandwidth_gbps.measured: "
            "(absent) → 400\n"
            "+ note new\n");
  const auto json = nlohmann::json::parse(to_json(diff_topologies(before, after)));
  ASSERT_EQ(json.size(), 4U);
  EXPECT_EQ(json[0]["before"], "16");
  EXPECT_EQ(json[1]["what"], "node");
  EXPECT_FALSE(json[1].contains("after"));
  EXPECT_EQ(to_json(diff_topologies(before, before)), "[]\n");
}

}  // namespace
}  // namespace topocoll
