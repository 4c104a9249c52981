// Facts of devices, from trees that are made here as the kernel would show them.
#include "topology/sysfs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/cuda/nvml.h"
#include "support/temporary_directory.h"
#include "topocoll/findings.h"
#include "topocoll/topology_formats.h"
#include "topology/gpu_facts.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Sysfs : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/topocoll_sysfs_" + std::to_string(::getpid());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void file(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path, std::ios::binary) << text;
  }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    fs::create_symlink(target, root_ + path);
  }
  SysfsRoot open() {
    auto root = SysfsRoot::open(root_);
    EXPECT_TRUE(root.ok());
    return std::move(root).value();
  }

  /// A bridge with a GPU and a NIC below it.
  static Topology machine() {
    return topology_from_json(R"({"topocoll_topology": 1, "host": "h", "notes": [], "nodes": [
      {"id": "host", "kind": "host", "cpus": [0]}, {"id": "numa:0", "kind": "numa", "os_index": 0, "cpus": [0]},
      {"id": "bridge:0000:01:00.0", "kind": "pci_bridge", "cpus": [], "bdf": "0000:01:00.0"},
      {"id": "gpu:0000:02:00.0", "kind": "gpu", "cpus": [], "bdf": "0000:02:00.0"},
      {"id": "nic:0000:03:00.0", "kind": "nic", "cpus": [], "bdf": "0000:03:00.0"},
      {"id": "port:mlx5_0", "kind": "nic_port", "label": "mlx5_0", "cpus": []}], "edges": [
      {"from": "host", "to": "numa:0", "kind": "contains"},
      {"from": "numa:0", "to": "bridge:0000:01:00.0", "kind": "pci"},
      {"from": "bridge:0000:01:00.0", "to": "gpu:0000:02:00.0", "kind": "pci"},
      {"from": "bridge:0000:01:00.0", "to": "nic:0000:03:00.0", "kind": "pci"},
      {"from": "nic:0000:03:00.0", "to": "port:mlx5_0", "kind": "contains"}]})")
        .value();
  }

  void device(const std::string& bdf, const char* speed, const char* width, const char* max_speed,
              const char* max_width) {
    const std::string path = "/sys/bus/pci/devices/" + bdf;
    file(path + "/current_link_speed", speed);
    file(path + "/current_link_width", width);
    file(path + "/max_link_speed", max_speed);
    file(path + "/max_link_width", max_width);
  }

  std::string root_;
};

TEST_F(Sysfs, FilesListsAndLinks) {
  file("/sys/a/x", "12\n");
  file("/sys/a/y", "text\n\n");
  link("/sys/a/l", "../b/c");
  const SysfsRoot root = open();
  EXPECT_FALSE(root.is_live());
  EXPECT_TRUE(SysfsRoot::open("/").value().is_live());
  EXPECT_EQ(root.number("/sys/a/x"), 12);
  EXPECT_EQ(root.text("/sys/a/y"), "text");
  EXPECT_FALSE(root.number("/sys/a/y").has_value());
  EXPECT_FALSE(root.text("/sys/a/none").has_value());
  EXPECT_FALSE(root.text("/sys/a").has_value());
  EXPECT_EQ(root.link("/sys/a/l"), "../b/c");
  EXPECT_FALSE(root.link("/sys/a/x").has_value());
  EXPECT_THAT(root.list("/sys/a"), ElementsAre("l", "x", "y"));
  EXPECT_FALSE(SysfsRoot::open(root_ + "/none").ok());
}

TEST_F(Sysfs, ARecordedCopyReadsNothingOutsideOfItself) {
  link("/sys/outside", "/proc/self/status");
  link("/sys/above", "../../../../../../../../proc/self/status");
  ASSERT_EQ(::mkfifo((root_ + "/sys/pipe").c_str(), 0600), 0);
  const SysfsRoot root = open();
  EXPECT_FALSE(root.text("/sys/outside").has_value());
  EXPECT_FALSE(root.text("/sys/above").has_value());
  EXPECT_FALSE(root.text("/sys/pipe").has_value());  // and does not wait for a writer
}

TEST_F(Sysfs, LinkStatesAndWhatTheyStandFor) {
  device("0000:01:00.0", "16.0 GT/s PCIe\n", "16\n", "16.0 GT/s PCIe\n", "16\n");
  device("0000:02:00.0", "2.5 GT/s PCIe\n", "8\n", "32.0 GT/s PCIe\n", "16\n");
  device("0000:03:00.0", "Unknown\n", "255\n", "garbage\n", "0\n");
  Topology t = machine();
  add_pci_facts(open(), t);
  const PciLink& gpu = t.find("gpu:0000:02:00.0")->pci_link;
  EXPECT_EQ(gpu, (PciLink{2.5, 8, 32.0, 16}));
  EXPECT_EQ(t.find("nic:0000:03:00.0")->pci_link, PciLink{});
  for (const TopologyEdge& edge : t.edges) {
    if (edge.to != "gpu:0000:02:00.0") continue;
    // An idle GPU: eight lanes at the best speed that both ends have.
    EXPECT_DOUBLE_EQ(*edge.bandwidth_gbps.declared, pci_bandwidth_gbps(16, 8));
  }
}

TEST_F(Sysfs, NumaNodesDriversErrorsAndAccessControl) {
  const std::string gpu = "/sys/bus/pci/devices/0000:02:00.0";
  file(gpu + "/numa_node", "-1\n");
  link(gpu + "/driver", "../../../bus/pci/drivers/nvidia");
  file(gpu + "/aer_dev_correctable", "RxErr 2\nBadTLP 1\nTOTAL_ERR_COR 3\n");
  file(gpu + "/aer_dev_fatal", "Undefined 0\nDLP 1\n");
  file(gpu + "/aer_dev_nonfatal", "A 18446744073709551615\nB 3\n");
  std::string config(0x1000, '\0');
  config[0x100] = 0x01;  // AER, then ACS at 0x148
  config[0x102] = static_cast<char>(0x82);
  config[0x103] = 0x14;
  config[0x148] = 0x0d;
  config[0x14e] = 0x1d;
  file("/sys/bus/pci/devices/0000:01:00.0/config", config);
  Topology t = machine();
  add_pci_facts(open(), t);
  const auto& facts = t.find("gpu:0000:02:00.0")->attributes;
  EXPECT_EQ(facts.at("numa_node"), "-1");
  EXPECT_EQ(facts.at("driver"), "nvidia");
  EXPECT_EQ(facts.at("aer_correctable"), "3");
  EXPECT_EQ(facts.at("aer_fatal"), "1");
  EXPECT_EQ(facts.at("aer_nonfatal"), "18446744073709551615") << "no more than there is room for";
  EXPECT_EQ(t.find("bridge:0000:01:00.0")->attributes.at("acs_redirect"), "on");
}

TEST_F(Sysfs, AConfigurationSpaceThatLeadsInCirclesEnds) {
  std::string config(0x1000, '\0');
  config[0x100] = 0x01;
  config[0x102] = 0x02;  // next: 0x100
  config[0x103] = 0x10;
  file("/sys/bus/pci/devices/0000:01:00.0/config", config);
  Topology t = machine();
  add_pci_facts(open(), t);
  EXPECT_FALSE(t.find("bridge:0000:01:00.0")->attributes.contains("acs_redirect"));
}

TEST_F(Sysfs, RdmaPortsAndInterfaces) {
  const std::string pci = "../../devices/pci0000:00/0000:01:00.0/0000:03:00.0/";
  link("/sys/class/infiniband/mlx5_0", pci + "infiniband/mlx5_0");
  const std::string real = "/sys/devices/pci0000:00/0000:01:00.0/0000:03:00.0/";
  file(real + "infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  file(real + "infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  file(real + "infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
  file(real + "infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth2\n");
  link("/sys/class/net/eth2", pci + "net/eth2");
  file(real + "net/eth2/mtu", "9000\n");
  file(real + "net/eth2/speed", "100000\n");
  file(real + "net/eth2/operstate", "up\n");
  file("/sys/class/net/docker0/mtu", "1500\n");
  file("/sys/class/net/bond0/bonding/slaves", "eth2 eth3\n");
  file("/sys/class/net/bond0/speed", "-1\n");
  file("/topocoll/process", "address eth2 inet\naddress eth2 inet6\n");
  Topology t = machine();
  add_network_facts(open(), t);
  EXPECT_EQ(t.find("port:mlx5_0"), nullptr);  // it has its number now
  const TopologyNode* port = t.find("port:mlx5_0/1");
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(port->attributes.at("state"), "ACTIVE");
  EXPECT_EQ(port->attributes.at("interface"), "eth2");
  EXPECT_EQ(port->attributes.at("mtu"), "9000");
  EXPECT_EQ(port->attributes.at("address_families"), "inet inet6");
  EXPECT_EQ(t.parent(port->id)->id, "nic:0000:03:00.0");
  EXPECT_EQ(t.find("port:eth2"), nullptr);  // the same port by another name
  EXPECT_EQ(t.find("port:docker0"), nullptr);
  ASSERT_NE(t.find("port:bond0"), nullptr);
  EXPECT_EQ(t.parent("port:bond0")->id, "host");
  for (const TopologyEdge& edge : t.edges) {
    if (edge.to == port->id) {
      EXPECT_DOUBLE_EQ(*edge.bandwidth_gbps.declared, 25);
    }
    if (edge.to == "port:bond0") {
      EXPECT_FALSE(edge.bandwidth_gbps.declared.has_value());
    }
  }
  EXPECT_TRUE(topology_from_json(to_json(t)).ok());
}

TEST_F(Sysfs, AnRdmaPortThatIsAProgramStandsWhereItsInterfaceDoes) {
  link("/sys/class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0");
  const std::string port = "/sys/devices/virtual/infiniband/rxe0/ports/1/";
  file(port + "state", "4: ACTIVE\n");
  file(port + "gid_attrs/ndevs/0", "eth2\n");
  link("/sys/class/infiniband/rxe1", "../../devices/virtual/infiniband/rxe1");
  file("/sys/devices/virtual/infiniband/rxe1/ports/1/state", "1: DOWN\n");
  const std::string pci = "devices/pci0000:00/0000:01:00.0/0000:03:00.0/net/eth2";
  link("/sys/class/net/eth2", "../../" + pci);
  file("/sys/" + pci + "/mtu", "9000\n");
  Topology t = machine();
  add_network_facts(open(), t);
  ASSERT_NE(t.find("port:rxe0/1"), nullptr);
  EXPECT_EQ(t.parent("port:rxe0/1")->id, "nic:0000:03:00.0");
  EXPECT_EQ(t.find("port:rxe0/1")->attributes.at("software"), "yes");
  EXPECT_EQ(t.find("port:rxe0/1")->attributes.at("mtu"), "9000");
  ASSERT_NE(t.find("port:rxe1/1"), nullptr) << "its interface is not known";
  EXPECT_EQ(t.parent("port:rxe1/1")->id, "host");
}

TEST_F(Sysfs, LimitsOfTheProcess) {
  file("/proc/self/limits",
       "Limit                     Soft Limit           Hard Limit           Units     \n"
       "Max locked memory         65536                unlimited            bytes     \n");
  file("/topocoll/process", "cpus 0-3\nshm_bytes 67108864\nCUDA_VISIBLE_DEVICES 0,1\nPASSWORD x\n");
  Topology t = machine();
  add_limits(open(), t);
  const auto& facts = t.nodes.front().attributes;
  EXPECT_EQ(facts.at("memlock_bytes"), "65536");
  EXPECT_EQ(facts.at("shm_bytes"), "67108864");
  EXPECT_EQ(facts.at("CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_FALSE(facts.contains("PASSWORD"));
  EXPECT_EQ(recorded_cpus(open()), "0-3");
}

TEST_F(Sysfs, AddressesInPaths) {
  EXPECT_EQ(bdf_in_path("../../devices/pci0000:00/0000:00:03.0/virtio0/net/eth0"), "0000:00:03.0");
  EXPECT_EQ(bdf_in_path("../../devices/virtual/net/lo"), "");
  EXPECT_EQ(bdf_in_path("pci0000:00/0000:01:00.0/0000:03:00.0"), "0000:03:00.0");
  EXPECT_EQ(bdf_in_path(""), "");
}

TEST_F(Sysfs, ARecordingTellsTheSameAsTheMachine) {
  const std::string copy = root_ + "/copy";
  const Status recorded = record_topology(copy);
  ASSERT_TRUE(recorded.ok()) << recorded.to_string();
  EXPECT_FALSE(record_topology(copy).ok());  // nothing is overwritten
  Topology live = discover_topology().value();
  // A recording has what the driver says; discovery does not ask it.
  if (const auto driver = read_nvml(); driver.ok()) add_gpu_facts(*driver, live);
  auto replayed = discover_topology_at(copy);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  live.notes.clear();
  replayed->notes.clear();
  replayed->host = live.host;
  std::string differences;
  for (const TopologyDifference& d : diff_topologies(live, *replayed)) {
    // What the kernel of the moment says, and what a recording does not tell.
    if (d.field == "uuid" || d.field == "attributes.OSRelease" || d.field == "attributes.OSName" ||
        d.field == "attributes.shm_free_bytes" || d.field == "size_bytes") {
      continue;
    }
    differences += render_text(std::vector<TopologyDifference>{d});
  }
  EXPECT_EQ(differences, "");
}

TEST_F(Sysfs, ARecordingThatCannotBeFinishedLeavesNothing) {
  testing::TemporaryDirectory small;
  if (!small.mount_tmpfs(64 << 10)) GTEST_SKIP() << "mounting a tmpfs needs root";
  const std::string copy = small.path() + "/copy";
  EXPECT_THAT(record_topology(copy).text(), HasSubstr("No space left"));
  EXPECT_FALSE(fs::exists(copy)) << "it would be read as a smaller machine";
}

TEST_F(Sysfs, ARecordingNamesNobody) {
  const std::string copy = root_ + "/copy";
  ASSERT_TRUE(record_topology(copy).ok());
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  std::vector<std::string> secrets;
  if (std::string(host).size() > 4) secrets.emplace_back(host);
  for (const auto& entry : fs::directory_iterator("/sys/class/net")) {
    std::string mac;
    std::ifstream(entry.path() / "address") >> mac;
    if (mac.size() == 17 && mac != "00:00:00:00:00:00") secrets.push_back(mac);
  }
  for (const auto& entry : fs::recursive_directory_iterator(copy)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().filename();
    EXPECT_EQ(name.find("serial"), std::string::npos) << name;
    EXPECT_NE(name, "address");
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const std::string& secret : secrets)
      EXPECT_EQ(text.find(secret), std::string::npos) << name;
  }
}

TEST_F(Sysfs, AFolderThatIsNoRecordingIsRefused) {
  const auto t = discover_topology_at(root_);
  EXPECT_EQ(t.status().cause(), Cause::kInvalidArgument);
  EXPECT_THAT(t.status().text(), HasSubstr("no sys below it"));
  EXPECT_FALSE(discover_topology_at(root_ + "/none").ok());
}

}  // namespace
}  // namespace topocoll
